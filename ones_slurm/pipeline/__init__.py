"""Tessel: the pipeline schedule of any placement of blocks, searched, proved or bounded, and run.

The search needs OR-Tools (`pip install ones-slurm[pipeline]`). What needs torch is in `executor`, `chain` and
`profile`, which are imported by name.
"""

from ones_slurm.pipeline.book import Book
from ones_slurm.pipeline.files import (
    Plan,
    is_plan,
    read_blocks,
    read_placement,
    read_plan,
    write_placement,
    write_plan,
)
from ones_slurm.pipeline.picture import colour, plain, svg, text_rows
from ones_slurm.pipeline.presets import presets
from ones_slurm.pipeline.replay import Deadlock, replay
from ones_slurm.pipeline.schedule import Op, Orders, Schedule
from ones_slurm.pipeline.search import Answer, Progress, search
from ones_slurm.pipeline.shapes import Times, by_name
from ones_slurm.pipeline.spec import Block, Placement
from ones_slurm.pipeline.verify import Verdict, verify

__all__ = [
    "Answer",
    "Block",
    "Book",
    "Deadlock",
    "Op",
    "Orders",
    "Placement",
    "Plan",
    "Progress",
    "Schedule",
    "Times",
    "Verdict",
    "by_name",
    "colour",
    "is_plan",
    "plain",
    "presets",
    "read_blocks",
    "read_placement",
    "read_plan",
    "replay",
    "search",
    "svg",
    "text_rows",
    "verify",
    "write_placement",
    "write_plan",
]
