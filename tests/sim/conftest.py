"""An application made from formulas, so that no measured data is needed."""

import pathlib

import pytest


@pytest.fixture
def profiles(tmp_path: pathlib.Path) -> pathlib.Path:
    """An application called bert: a step takes 1 s + 0.1 s a sample; 0.5 s of exchange on more than one GPU.

    Two epochs of 100 steps at the initial batch of 12; a batch of 384 needs twice as many samples.
    """
    folder = tmp_path / "profiles" / "bert"
    folder.mkdir(parents=True)
    placements = ["placement,local_bsz,step_time,sync_time"]
    for shape in ("1", "2", "3", "4", "11", "12", "22", "44", "111", "1111"):
        for local in (4, 12):
            sync = 0.0 if shape == "1" else 0.5
            placements.append(f"{shape},{local},{1 + 0.1 * local + sync},{sync}")
    (folder / "placements.csv").write_text("\n".join(placements) + "\n")
    scaled = ["num_nodes,num_replicas,local_bsz,step_time,sync_time"]
    scaled += [
        f"{count},{gpus},{local},{1 + 0.1 * local + 0.5},0.5"
        for count in (1, 2, 16)
        for gpus in (count, 64)
        for local in (4, 12)
    ]
    (folder / "scalability.csv").write_text("\n".join(scaled) + "\n")
    for batch, factor in ((12, 1.0), (384, 2.0)):
        lines = ["progress,iteration,metric,grad_sqr,grad_var"]
        lines += [f"{100 * epoch},{int(100 * epoch * factor * 12 / batch)},0,1.0,{31.0}" for epoch in (1, 2)]
        (folder / f"validation-{batch}.csv").write_text("\n".join(lines) + "\n")
    return folder.parent
