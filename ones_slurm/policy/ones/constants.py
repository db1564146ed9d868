"""The constants of the rule and of the score that a site may find better ones for (see `study/tuning.py`)."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Constants:
    """The defaults are ours, found on published workloads; they are a plateau, so small changes make no difference.

    `alpha` scales the price of a GPU-second. A growth must bring the rest of a job below `grow_below` of its time,
    pause included, or `grow_below_cheap` where a pause is short; a shrink must divide the priced cost by `shrink_gain`.
    To depart from the rule must gain `departure` of a job's cost, for predictions err by tenths.
    """

    alpha: float = 1.0
    grow_below: float = 0.7
    grow_below_cheap: float = 0.8
    shrink_gain: float = 2.0
    departure: float = 0.3


DEFAULTS = Constants()
