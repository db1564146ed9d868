"""The site file of a lab, so that `onesd`, `ones` and `ones-run` work in it without a word."""

import toml

from .slurm_conf import PARTITIONS
from .spec import PROFILES, LabSpec

PORT = 7077


def site_file(spec: LabSpec) -> str:
    """A site in a hurry: decisions every three seconds and moves soon after each other, for people who watch.

    Real sites take the defaults, ten times slower (`site_configs/`).
    """
    counted_by_slurm = PROFILES[spec.profile].gres
    tables: dict[str, object] = {
        "name": spec.name,
        "engine": {"interval_s": 3.0, "grow_patience_ticks": 2, "min_move_gap_s": 15.0},
        # What a small training on an idle machine needs; from the first moves on, onesd counts with what they took.
        "costs": {"start_s": 6.0, "save_s": 2.0, "rescale_s": 5.0, "rebatch_s": 6.0},
        "moves": {"leave_timeout_s": 60.0, "start_timeout_s": 60.0},
        "daemon": {
            "url": f"http://head:{PORT}",
            "listen": f"0.0.0.0:{PORT}",
            "state_dir": "/home/operator/onesd",
        },
    }
    if not counted_by_slurm:
        tables["partitions"] = {name: {"gpus_per_node": spec.gpus_per_node} for name in PARTITIONS}
    return toml.dumps(tables)
