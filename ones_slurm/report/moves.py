"""The journal joined to accounting: which move began a segment and why, and the batch that it trained with.

Accounting alone decides who held what and when; the journal only explains it, and splits a segment in which the nodes
stayed and the batch changed.
"""

import math
from collections.abc import Container, Sequence

import msgspec

from ones_slurm.engine.records import Holding, MoveRow
from ones_slurm.model.plan import Status
from ones_slurm.report.segments import JobHistory, Segment

# Ours: accounting keeps whole seconds, and the clocks of two hosts under NTP differ by less than one.
_CLOCKS_DIFFER_S = 2.0

# What ends the segment before a move, in the words of `Segment.ended_by`.
_ENDED_BY = {"shrink": "RESIZED", "requeue": "REQUEUED"}


def with_moves(job: JobHistory, moves: Sequence[MoveRow], holdings: Sequence[Holding] = ()) -> JobHistory:
    """The history with the journal's moves of that job written into its segments.

    A move that failed or is still under way may have changed the nodes, so it explains a segment; but only one that
    was done is known to have changed the batch. Where no move began a run, `holdings` tell the batch that the job
    itself named there.
    """
    begun: dict[int, MoveRow] = {}
    cuts = []
    for move in sorted(moves, key=lambda move: move.sent_s):
        if move.outcome in (Status.REFUSED, Status.OBSERVED):
            continue
        number = _begun_by(move, job.segments, begun)
        if number is not None:
            begun[number] = move
        elif move.outcome == Status.DONE:
            cuts.append(move)
    told: list[Segment] = []
    batch: int | None = None
    for number, segment in enumerate(job.segments):
        for part, by in _parts(segment, begun.get(number), cuts):
            if by is not None and by.outcome == Status.DONE and by.batch:
                batch = by.batch
            elif by is None:
                batch = _named_batch(part, holdings) or batch
            told.append(_told(part, by, batch))
    paused = [move for move in moves if move.outcome in (Status.DONE, Status.FAILED)]
    if paused:
        told = [_with_pauses(segment, paused) for segment in told]
    return msgspec.structs.replace(job, segments=tuple(told))


def _begun_by(move: MoveRow, segments: Sequence[Segment], begun: Container[int]) -> int | None:
    """The number of the segment that a move began: one of its kind, within the time that the move took."""
    earliest_s, latest_s = move.sent_s - _CLOCKS_DIFFER_S, _ended_s(move) + _CLOCKS_DIFFER_S
    for number, segment in enumerate(segments):
        before = segments[number - 1].ended_by if number else ""
        # A requeued job ends at the beginning of its move and starts again at the end of it.
        left_s = segment.start_s if number == 0 or move.kind == "start" else segments[number - 1].end_s
        if (
            number not in begun
            and segment.start_s is not None
            and left_s is not None
            and (before != "RESIZED" if move.kind == "start" else before == _ENDED_BY.get(move.kind))
            and left_s <= latest_s
            and segment.start_s >= earliest_s
        ):
            return number
    return None


def _named_batch(segment: Segment, holdings: Sequence[Holding]) -> int:
    """The batch that the job named while it held these nodes in this time; 0 if it named none."""
    if segment.start_s is None:
        return 0
    earliest_s, latest_s = segment.start_s - _CLOCKS_DIFFER_S, segment.end_s + _CLOCKS_DIFFER_S
    named = (
        holding.batch
        for holding in holdings
        if earliest_s <= holding.seen_s <= latest_s and set(holding.nodes) == set(segment.nodes)
    )
    return next(named, 0)


def _parts(segment: Segment, first: MoveRow | None, cuts: Sequence[MoveRow]) -> list[tuple[Segment, MoveRow | None]]:
    """A segment cut at each change of batch within it, each part with the move that began it."""
    parts: list[tuple[Segment, MoveRow | None]] = []
    rest, begun_by = segment, first
    for move in sorted(cuts, key=_ended_s):
        at_s = round(_ended_s(move))
        if rest.start_s is None or not rest.start_s < at_s < rest.end_s:
            continue
        done = {"end_s": at_s, "open": False, "ended_by": "REBATCHED", "ended_how": "", "restart_cost_s": 0}
        parts.append((msgspec.structs.replace(rest, **done), begun_by))
        rest, begun_by = msgspec.structs.replace(rest, submit_s=at_s, start_s=at_s, wait_since_s=None), move
    return [*parts, (rest, begun_by)]


def _told(segment: Segment, move: MoveRow | None, batch: int | None) -> Segment:
    if segment.start_s is None:
        return segment
    if move is None:
        return msgspec.structs.replace(segment, batch=batch)
    failed = " (failed)" if move.outcome == Status.FAILED else ""
    return msgspec.structs.replace(segment, batch=batch, move=move.kind + failed, reason=move.why)


def _with_pauses(segment: Segment, moves: Sequence[MoveRow]) -> Segment:
    """The segment with the time that moves took of it: at most, for a job may train on under an order for a while."""
    if segment.start_s is None:
        return segment
    startup_s = moving_s = 0
    for move in moves:
        begin_s, end_s = max(segment.start_s, move.sent_s), min(segment.end_s, _ended_s(move))
        if begin_s >= end_s:
            continue
        if move.kind in {"start", "requeue"} and segment.start_s >= move.sent_s - _CLOCKS_DIFFER_S:
            startup_s = max(startup_s, round(end_s - begin_s))
        else:
            moving_s += round(end_s - begin_s)
    left_s = segment.duration_s - startup_s
    return msgspec.structs.replace(segment, startup_s=startup_s, moving_s=min(moving_s, left_s))


def _ended_s(move: MoveRow) -> float:
    return math.inf if move.ended_s is None else move.ended_s
