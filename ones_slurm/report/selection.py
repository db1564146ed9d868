"""Which jobs a report is about."""

import msgspec


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that were queued or running between `since_s` and `until_s`; an empty tuple does not restrict.

    A job id stands for all of its array tasks and components: `12` for `12_3`, `12_[4-9]` and `12+1`.
    """

    since_s: float = 0.0
    until_s: float | None = None
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    job_ids: tuple[str, ...] = ()
