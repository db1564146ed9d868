"""How the exchange of gradients slows down over nodes at this site, learnt from all of its jobs together.

One job has seen one or two shapes; together they have seen most. What they share is the network: that two nodes may be
slower than three, and how much dearer it is to cross between nodes than to stay within one. So the logarithm of the
exchange time of job j on k nodes is taken as the job's own level plus a part of the site's that depends on k alone:

    log sync_j(k) = u_j + v_k,   v drawn towards zero as if by one measurement, and read off between the k seen
"""

import functools
from collections.abc import Sequence

import msgspec
import numpy as np

from ones_slurm.model.cluster import Past, Speed
from ones_slurm.policy.ones.facts import credible
from ones_slurm.policy.ones.throughput import GAMMAS, NO_NETWORK, Network, SpeedModel, fit_speeds

# Ended jobs that say something of it, the latest ones (ours: more say no more).
MOST_JOBS = 64
# Jobs that tried both one node and several before what they say of crossing is believed (ours).
LEAST_CROSSINGS = 2
# Exchange times below this part of a step are hidden behind the computing, and no measurement (ours).
VISIBLE = 0.02
# All of it is rounded to so much of a logarithm, so that one more job seldom changes it, and with it every fit (ours).
GRAIN = 0.05


def network_of(past: Sequence[Past]) -> Network:
    """What ended jobs measured on GPUs of several types and on several nodes; without any, that nothing is known."""
    latest = [(job, credible(job.speeds)) for job in past[-MOST_JOBS:]]
    paces: tuple[tuple[str, float], ...] = ()
    if len({speed.gpu_type for _, speeds in latest for speed in speeds}) > 1:
        kinds: dict[tuple[str, str], tuple[Speed, ...]] = {}
        for at, (job, speeds) in enumerate(latest):
            name = (job.user, job.recipe or str(at))
            kinds[name] = (*kinds.get(name, ()), *speeds)
        paces = _paces(tuple(kinds.values()))
    told = [speeds for _, speeds in latest if len(speeds) > 1 and any(speed.nodes > 1 for speed in speeds)]
    known = _learn(tuple(told), paces) if told else NO_NETWORK
    return msgspec.structs.replace(known, paces=paces)


@functools.lru_cache(maxsize=16)
def _paces(kinds: tuple[tuple[Speed, ...], ...]) -> tuple[tuple[str, float], ...]:
    """Speed by type: by how much steps on it are shorter than what is fitted to a kind of job whatever the type."""
    types = sorted({speed.gpu_type for speeds in kinds for speed in speeds if speed.gpu_type})
    matrix, right = np.eye(len(types)) * GRAIN, np.zeros(len(types))
    for speeds in kinds:
        mine = [speed for speed in speeds if speed.gpu_type]
        if len({speed.gpu_type for speed in mine}) < 2:
            continue
        fit = fit_speeds(speeds)
        shape = [np.array([getattr(speed, name) for speed in mine], float) for name in ("gpus", "nodes", "local_batch")]
        faster = np.log(fit.step_s(shape[0], shape[1], shape[2]) / np.array([speed.step_s for speed in mine]))
        of_type = np.array([[speed.gpu_type == each for each in types] for speed in mine], float)
        centred = of_type - of_type.mean(axis=0)
        matrix += centred.T @ centred
        right += centred.T @ (faster - faster.mean())
    factors = np.linalg.solve(matrix, right)
    return tuple((name, float(np.exp(_rounded(factor)))) for name, factor in zip(types, factors, strict=True))


@functools.lru_cache(maxsize=16)
def _learn(jobs: tuple[tuple[Speed, ...], ...], paces: tuple[tuple[str, float], ...]) -> Network:
    """Least squares over all jobs at once, the levels u eliminated."""
    fits = [fit_speeds(speeds, network=Network(paces=paces)) for speeds in jobs]
    gamma = float(np.exp(np.mean(np.log([fit.gamma for fit in fits]))))
    gamma = float(GAMMAS[np.argmin(np.abs(np.log(GAMMAS / gamma)))])
    seen = sorted({speed.nodes for speeds in jobs for speed in speeds if speed.nodes > 1})
    matrix, right = np.eye(len(seen)), np.zeros(len(seen))
    levels = []
    for speeds, fit in zip(jobs, fits, strict=True):
        within, between = _exchange(speeds, fit, gamma)
        at = [seen.index(nodes) for nodes in between]
        log_s = np.array([np.mean(each) for each in between.values()])
        matrix[np.ix_(at, at)] += np.eye(len(at)) - 1.0 / len(at)
        right[at] += log_s - log_s.mean()
        if within:
            levels.append((at, log_s, np.mean(within[max(within)])))
    factors = np.linalg.solve(matrix, right)
    crossings = [float(np.mean(log_s - factors[at]) - inside) for at, log_s, inside in levels]
    return Network(
        nodes=tuple(float(np.log(nodes)) for nodes in seen),
        factors=tuple(_rounded(factor) for factor in factors),
        crossing=_rounded(np.median(crossings)) if len(crossings) >= LEAST_CROSSINGS else None,
        gamma=gamma,
    )


def _rounded(logarithm: float) -> float:
    return GRAIN * round(float(logarithm) / GRAIN)


def _exchange(
    speeds: Sequence[Speed], fit: SpeedModel, gamma: float
) -> tuple[dict[int, list[float]], dict[int, list[float]]]:
    """Logarithms of exchange times, had nothing overlapped: within a node by GPUs, between nodes by nodes."""
    within: dict[int, list[float]] = {}
    between: dict[int, list[float]] = {}
    for speed in speeds:
        compute_s = fit.constant + fit.per_sample * speed.local_batch
        step_s = speed.step_s * fit.network.pace(speed.gpu_type)
        hidden = max(step_s**gamma - compute_s**gamma, 0.0) ** (1.0 / gamma)
        log_s = float(np.log(max(hidden, VISIBLE * step_s)))
        if speed.nodes > 1:
            between.setdefault(speed.nodes, []).append(log_s)
        elif speed.gpus > 1:
            within.setdefault(speed.gpus, []).append(log_s)
    return within, between
