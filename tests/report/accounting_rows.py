"""Rows of accounting to tell stories with."""

from ones_slurm.slurm.client import AccountingRow


def row(
    job_id: str = "1",
    *,
    state: str = "COMPLETED",
    submit: int,
    start: int | None = None,
    end: int | None = None,
    eligible: int | None = None,
    nodes: tuple[str, ...] = (),
    gpus: int | None = None,
    **more: object,
) -> AccountingRow:
    """A row whose times are plain seconds and whose other columns do not matter."""
    given: dict[str, object] = {
        "job_id": job_id,
        "raw_id": job_id,
        "user": "user1",
        "account": "acc",
        "partition": "v100",
        "name": "train",
        "state": state,
        "cancelled_by": None,
        "submit_s": float(submit),
        "eligible_s": float(submit if eligible is None else eligible),
        "start_s": None if start is None else float(start),
        "end_s": None if end is None else float(end),
        "nodes": nodes,
        "nnodes": len(nodes),
        "gpus": gpus,
        "cpus": 0,
        "exit_status": 0,
        "signal": 0,
        "time_limit_s": None,
    }
    return AccountingRow(**(given | more))
