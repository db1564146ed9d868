"""What the wish of a pipeline job names, looked at before anything is started."""

import pathlib

from ones_slurm.model.errors import UsageError
from ones_slurm.model.wish import parse_wish


def pipeline_file(comment: str, submit_dir: str) -> pathlib.Path | None:
    """The file with the blocks that the wish in this comment names; None for any other job.

    Raises `NotFound` or `UsageError` for a file that holds no placement, or one on other devices than the wish says.
    """
    try:
        wish = parse_wish(comment)
    except UsageError:
        return None  # `ones queue` says what is wrong with it; the job trains at its size
    if wish is None or not wish.pipeline:
        return None
    from ones_slurm.pipeline.files import read_blocks

    path = pathlib.Path(submit_dir, wish.pipeline)
    devices = read_blocks(path).devices
    if wish.devices not in (0, devices):
        raise UsageError(
            f"the wish says devices={wish.devices}, and {path} places its blocks on {devices}",
            hint="leave devices= out, or correct it",
        )
    return path
