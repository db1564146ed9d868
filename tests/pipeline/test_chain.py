"""Chains run on torch's own pipeline runtime."""

from __future__ import annotations

import pytest
from ranks import on_ranks

from ones_slurm.model.errors import UsageError
from ones_slurm.pipeline import by_name, presets, search
from ones_slurm.pipeline.chain import actions, chain_runtime
from ones_slurm.pipeline.shapes import chain

pytestmark = pytest.mark.torch


def test_a_schedule_reads_as_torch_writes_it() -> None:
    schedule = next(s for s in presets(by_name("V2"), 3) if s.source == "1f1b")
    assert actions(schedule) == [
        ["0F0", "0F1", "0B0", "0F2", "0B1", "0B2"],
        ["1F0", "1B0", "1F1", "1B1", "1F2", "1B2"],
    ]


def test_gradients_on_torchs_runtime_are_those_of_the_model_in_one_piece() -> None:
    from torch.distributed.pipelining import schedules

    if not hasattr(schedules._PipelineScheduleRuntime, "_prepare_schedule_with_comms"):
        pytest.skip("this torch has another pipeline runtime, and is refused")
    uneven = chain([0, 1, 2, 3, 1, 0], name="uneven")
    cases = [search(placement, 6, 2).schedule for placement in (by_name("V4"), by_name("V4x2"), by_name("ZB4"), uneven)]
    answers = on_ranks(4, "models", "chain_steps", cases)
    assert max(map(max, answers)) < 1e-12


def test_a_placement_that_is_no_chain_is_sent_to_the_other_executor() -> None:
    with pytest.raises(UsageError, match=r"no chain.*'E'"):
        actions(search(by_name("M2"), 2, 1).schedule)


def test_another_torch_is_refused_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.pipelining import schedules

    monkeypatch.delattr(schedules._PipelineScheduleRuntime, "_prepare_schedule_with_comms", raising=False)
    with pytest.raises(UsageError, match="has not the pipeline runtime") as refused:
        chain_runtime(search(by_name("V2"), 2, 1).schedule, [], lambda output, target: output)
    assert "Executor" in (refused.value.hint or "")
