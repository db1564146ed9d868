"""Nodes that break and are repaired, at moments given or drawn from a seed."""

from collections.abc import Sequence

import msgspec
import numpy as np


class Outage(msgspec.Struct, frozen=True, order=True):
    """One node is gone from `from_s` until `until_s`."""

    from_s: float
    until_s: float
    node: str


def draw_outages(
    nodes: Sequence[str], *, horizon_s: float, mean_up_s: float, mean_down_s: float, seed: int
) -> tuple[Outage, ...]:
    """Each node is up and down for exponentially distributed times (the usual assumption; independent nodes)."""
    outages = []
    for place, node in enumerate(nodes):
        rng = np.random.default_rng([seed, place])
        at_s = rng.exponential(mean_up_s)
        while at_s < horizon_s:
            down_s = rng.exponential(mean_down_s)
            outages.append(Outage(float(at_s), float(at_s + down_s), node))
            at_s += down_s + rng.exponential(mean_up_s)
    return tuple(sorted(outages))
