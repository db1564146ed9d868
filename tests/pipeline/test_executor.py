"""Training with a schedule gives what plain autograd gives."""

from __future__ import annotations

import pytest
from ranks import on_ranks

from ones_slurm.pipeline import Schedule, by_name, presets, search

pytestmark = pytest.mark.torch

SHAPES = ("V4", "V4x2", "X4", "M4", "K4", "NN4", "ZB4")


def searched(name: str, micro_batches: int) -> Schedule:
    return search(by_name(name), micro_batches, 2).schedule


@pytest.fixture(scope="module")
def errors() -> dict[str, float]:
    """For each case, the largest difference to plain autograd on any of four ranks; two steps, the last one counts."""
    cases = {name: searched(name, 6) for name in SHAPES}
    cases |= {f"{name}, fewer micro-batches than devices": searched(name, 2) for name in ("V4", "NN4")}
    cases |= {f"ZB4 {schedule.source}": schedule for schedule in presets(by_name("ZB4"), 5)}
    answers = on_ranks(4, "models", "train_steps", list(cases.values()), 1, 2)
    return {case: max(answer[i] for answer in answers) for i, case in enumerate(cases)}


@pytest.mark.parametrize("name", SHAPES)
def test_gradients_are_those_of_the_model_in_one_piece(errors: dict[str, float], name: str) -> None:
    assert errors[name] < 1e-12


def test_gradients_are_right_for_every_number_of_micro_batches_and_preset(errors: dict[str, float]) -> None:
    assert max(errors.values()) < 1e-12
    assert len(errors) > len(SHAPES) + 4


def test_replicas_train_on_their_own_micro_batches_and_average() -> None:
    cases = [searched(name, 4) for name in ("V2", "X2", "M2", "NN2")]
    answers = on_ranks(4, "models", "train_steps", cases, 2)
    assert max(map(max, answers)) < 1e-12


def test_split_backwards_also_work_without_torchs_private_functions() -> None:
    answers = on_ranks(2, "models", "train_steps_without_private_torch", [searched("ZB2", 4)])
    assert max(map(max, answers)) < 1e-12
