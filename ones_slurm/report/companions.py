"""Companions: Slurm jobs of their own that only lend their nodes to another job, their *base*.

They say so in their comment, `ones:companion-of=12`, and are told as what they are: a part of the base, which is then
larger for as long as they last. A comment is anybody's text, so only a job of the same user can be a base.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from ones_slurm.report.segments import JobHistory, Segment

_WORD = re.compile(r"(?:^|[\s;,])ones:companion-of=(\d{1,10}(?:_\d{1,10})?)(?=$|[\s;,])", re.ASCII)


def base_of(comment: str) -> str | None:
    """The id of the job that a comment names as the base."""
    match = _WORD.search(comment) if "ones:companion-of=" in comment else None
    return match[1] if match else None


def folded(base: JobHistory, companions: Sequence[JobHistory]) -> JobHistory:
    """The history of a job with its companions in it: cut wherever one came or went.

    A piece holds the nodes and GPUs of all. One that ends because a companion comes or goes has `ended_by` RESIZED;
    the base's own words, waits and moves stay where they were. A companion that holds its nodes while the base holds
    none makes a piece of its own. What still goes on must be settled before, for a cut needs its time.
    """
    lent = [piece for job in companions for piece in job.segments if piece.start_s is not None and piece.duration_s]
    pieces: list[Segment] = []
    free_s = 0  # up to here the base has been told
    for own in base.segments:
        if own.start_s is None:
            pieces.append(own)
            continue
        pieces += _alone(own, lent, free_s, own.start_s)
        pieces += _cut(own, lent)
        free_s = max(free_s, own.end_s)
    pieces += _alone(base.segments[-1], lent, free_s, max((piece.end_s for piece in lent), default=0))
    oddities = (*base.oddities, *(oddity for job in companions for oddity in job.oddities))
    return msgspec.structs.replace(base, segments=tuple(pieces), oddities=oddities)


def _cut(own: Segment, lent: Iterable[Segment]) -> list[Segment]:
    """A segment of the base, cut at each coming and going within it."""
    assert own.start_s is not None
    here = [piece for piece in lent if piece.start_s is not None and _overlap(piece, own.start_s, own.end_s)]
    cuts = {at_s for piece in here for at_s in (piece.start_s or 0, piece.end_s) if own.start_s < at_s < own.end_s}
    times = [own.start_s, *sorted(cuts), own.end_s]
    parts = []
    for number, (from_s, to_s) in enumerate(pairwise(times)):
        part = _with(own, [piece for piece in here if _overlap(piece, from_s, to_s)], from_s, to_s)
        if number:
            part = msgspec.structs.replace(part, submit_s=from_s, wait_since_s=None, move="", reason="")
        if to_s != own.end_s:
            part = msgspec.structs.replace(
                part, open=False, ended_by="RESIZED", ended_how="", restart_cost_s=0, samples=None
            )
        parts.append(part)
    return parts


def _alone(like: Segment, lent: Iterable[Segment], from_s: int, to_s: int) -> list[Segment]:
    """What companions hold between two times while the base holds nothing."""
    here = [piece for piece in lent if _overlap(piece, from_s, to_s)]
    times = sorted({min(max(at_s, from_s), to_s) for piece in here for at_s in (piece.start_s or 0, piece.end_s)})
    bare = msgspec.structs.replace(
        like, nodes=(), gpus=0, wait_since_s=None, restart_cost_s=0, move="", reason="", samples=None, ended_how=""
    )
    parts = []
    for begin_s, end_s in pairwise(times):
        now_here = [piece for piece in here if _overlap(piece, begin_s, end_s)]
        if now_here:
            last = max(now_here, key=lambda piece: piece.end_s)
            part = msgspec.structs.replace(
                bare, submit_s=begin_s, open=last.open and end_s == last.end_s, ended_by=last.ended_by
            )
            parts.append(_with(part, now_here, begin_s, end_s))
    return parts


def _with(own: Segment, lent: Sequence[Segment], from_s: int, to_s: int) -> Segment:
    return msgspec.structs.replace(
        own,
        start_s=from_s,
        end_s=to_s,
        nodes=(*own.nodes, *(name for piece in lent for name in piece.nodes if name not in own.nodes)),
        gpus=own.gpus + (lent_gpus := sum(piece.gpus for piece in lent)),
        lent_gpus=lent_gpus,
        companions=tuple(dict.fromkeys(piece.job_id for piece in lent)),
    )


def _overlap(piece: Segment, from_s: int, to_s: int) -> bool:
    return piece.start_s is not None and piece.start_s < to_s and from_s < piece.end_s
