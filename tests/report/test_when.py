"""Times as people type them."""

from datetime import datetime

import pytest

from ones_slurm.model.errors import UsageError
from ones_slurm.report.when import parse_when

NOW = datetime(2026, 11, 30, 14, 30, 15)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("now", "2026-11-30T14:30:15"),
        ("now-7days", "2026-11-23T14:30:15"),
        ("now-1week", "2026-11-23T14:30:15"),
        ("now-90minutes", "2026-11-30T13:00:15"),
        ("now-90m", "2026-11-30T13:00:15"),
        ("now-2hours", "2026-11-30T12:30:15"),
        ("now-15", "2026-11-30T14:30:00"),
        ("now+1day", "2026-12-01T14:30:15"),
        ("today", "2026-11-30T00:00:00"),
        ("midnight", "2026-11-30T00:00:00"),
        ("noon", "2026-11-30T12:00:00"),
        ("08:05", "2026-11-30T08:05:00"),
        ("08:05:06", "2026-11-30T08:05:06"),
        ("2026-10-01", "2026-10-01T00:00:00"),
        ("2026-10-01T12:30", "2026-10-01T12:30:00"),
        ("2026-10-01T12:30:01", "2026-10-01T12:30:01"),
        ("11/29", "2026-11-29T00:00:00"),
        ("12/24", "2025-12-24T00:00:00"),
        ("12/24/24-18:00", "2024-12-24T18:00:00"),
    ],
)
def test_a_time_means_what_it_means_to_slurm(typed, meant):
    assert parse_when(typed, NOW) == datetime.fromisoformat(meant).timestamp()


@pytest.mark.parametrize("typed", ["", "yesterdayish", "1430", "25:00", "2026-13-01", "now-", "now-3fortnights"])
def test_what_is_no_time_is_answered_with_what_would_be(typed):
    with pytest.raises(UsageError) as refused:
        parse_when(typed, NOW)
    assert refused.value.hint
