"""Which fault comes when: drawn by a seed, before anything runs."""

import random

import msgspec

# How often each kind comes, in comparison. Cheap and frequent ones often, those that stop everything seldom.
WEIGHTS = {
    "kill onesd": 10,
    "kill onesd in a move": 5,
    "stop onesd": 4,
    "second onesd": 3,
    "broken site file": 2,
    "kill ones-run": 3,
    "stop ones-run": 4,
    "kill worker": 6,
    "stop worker": 5,
    "kill srun": 4,
    "kill slurmd": 6,
    "stop slurmd": 4,
    "kill slurmctld": 5,
    "kill slurmctld in a move": 5,
    "stop slurmctld": 3,
    "kill slurmdbd": 4,
    "kill mariadbd": 3,
    "kill munged": 4,
    "cut node": 5,
    "flapping node": 4,
    "disk full for a checkpoint": 5,
    "disk full for the journal": 4,
}
KINDS = tuple(WEIGHTS)
# Most are short, some outlast Slurm's patience with a silent node (SlurmdTimeout, 30 s in the lab).
SHORT_S, LONG_S, LONG_SHARE = (0.5, 4.0), (35.0, 60.0), 0.1
LASTS_LONG = ("stop worker", "stop ones-run", "stop slurmd", "cut node", "stop onesd")


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault. `victim`, between 0 and 1, chooses among those that there are when it comes."""

    number: int
    kind: str
    lasts_s: float
    pause_s: float
    victim: float


def schedule(
    seed: int, count: int, kinds: tuple[str, ...] = KINDS, *, long: bool = True, pace: float = 1.0
) -> list[Fault]:
    """`count` faults: the same for the same seed. The first ones are one of each kind, in a drawn order.

    With `pace` below 1 they last shorter and come faster.
    """
    rng = random.Random(f"faults {seed}")
    drawn = rng.sample(kinds, len(kinds))[:count]
    drawn += rng.choices(kinds, [WEIGHTS[kind] for kind in kinds], k=count - len(drawn))
    faults, rng = [], random.Random(f"times {seed}")
    for number, kind in enumerate(drawn):
        lasts_long = long and kind in LASTS_LONG and rng.random() < LONG_SHARE
        lasts_s, pause_s = rng.uniform(*(LONG_S if lasts_long else SHORT_S)), rng.uniform(0.5, 4.0)
        times = {"lasts_s": lasts_s * pace, "pause_s": pause_s * pace}
        faults.append(Fault(number=number, kind=kind, victim=rng.random(), **times))
    return faults
