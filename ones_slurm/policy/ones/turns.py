"""Whose turn it is: shortest remaining GPU time first, by the weight that the site gives, and nobody waits for ever.

A job that has waited for `MAX_WAIT_S` goes first, whatever it needs; one that has waited nearly as long counts as
shorter than it is. What was waited is not forgotten once it runs, or it would be stopped again at once.
"""

import numpy as np

from ones_slurm.policy.ones.goodput import Ints
from ones_slurm.policy.ones.situation import Bools, Situation
from ones_slurm.policy.ones.throughput import Floats

# A day is the longest that a job waits which can be placed at all (ours).
MAX_WAIT_S = 86400.0
# length · (1 − (waited / longest)^4): a quarter of the bound changes nothing, 20 h halve it. Ageing in proportion to
# the wait cost all jobs 2 % of their time on average (ours).
AGEING = 4.0
# weight = (1 + place / 3)^-2: the first three jobs decide as much as all behind them (ours; long queues stay finite).
WEIGHT_PLACES = 3.0
# Middles of eight equally likely parts of a normal distribution: draws that are the same for all and at every decision.
DRAWS = np.array([-1.534121, -0.887147, -0.488776, -0.157311, 0.157311, 0.488776, 0.887147, 1.534121])


def overdue(at: Situation) -> Bools:
    """(J,) who has waited for longer than anybody should."""
    late: Bools = at.waited_s >= MAX_WAIT_S
    return late


def order_of(at: Situation) -> Ints:
    """Jobs as they are served: the overdue, then by the least GPU time left for their weight, then as in the view."""
    return np.argsort(_keys(at), kind="stable")


def prices(at: Situation, order: Ints) -> Floats:
    """(J,) what a second on one unit costs a job in the waiting of those behind it, by their weights over its own."""
    price = np.empty(len(order))
    weight = at.weight[order]
    behind = weight[::-1].cumsum()[::-1] - weight
    price[order] = at.constants.alpha * behind / weight / max(at.capacity, 1)
    return price


def importance(at: Situation) -> Floats:
    """(J,) how much a job's cost counts in a plan: its weight, less for who is served late and planned again till then.

    Where it is not known what is left, places are those in eight draws at once: expected, not lucky.
    """
    key = _keys(at)
    if not at.doubt.any():
        keys = key[None, :]
    else:
        drawn = np.exp(at.doubt[None, :] * DRAWS[:, None])
        keys = key[None, :] * drawn / drawn.mean(axis=0)
    place = np.empty(keys.shape)
    np.put_along_axis(place, np.argsort(keys, axis=1, kind="stable"), np.arange(keys.shape[1], dtype=float)[None, :], 1)
    counts: Floats = ((1.0 + place / WEIGHT_PLACES) ** -2.0).mean(axis=0) * at.weight
    return counts


def _keys(at: Situation) -> Floats:
    rest = np.maximum(1.0 - (at.waited_s / MAX_WAIT_S) ** AGEING, 0.0)
    return at.area / at.weight * rest
