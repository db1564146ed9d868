"""A placement is checked when it is made, and says what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ones_slurm.model.errors import NotFound, UsageError
from ones_slurm.pipeline import Block, Placement, by_name, read_placement, write_placement


def two_blocks(**changes: object) -> Placement:
    """A forward and its backward on device 0, one of them changed."""
    fields = {"name": "B", "time_us": 3, "devices": (0,), "memory": -1, "after": ("F",), "kind": "backward", "of": "F"}
    forward = Block(name="F", time_us=1, devices=(0,), memory=1)
    return Placement(name="p", devices=2, blocks=(forward, Block(**(fields | changes))))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"devices": ()}, "'B': is on no device"),
        ({"devices": (2,)}, "device 2 does not exist"),
        ({"devices": (0, 0)}, "names one twice"),
        ({"time_us": 0}, "time_us = 0"),
        ({"time_us": -3}, "time_us = -3"),
        ({"time_us": float("nan")}, "time_us = nan"),
        ({"after": ("G",)}, "'G' that does not exist"),
        ({"after": ("B",)}, "circle: B -> B"),
        ({"name": "F"}, "used twice"),
        ({"kind": "sideways"}, "kind 'sideways'"),
        ({"memory": -2}, "leaves -1 memory behind"),
        ({"transfer_us": -1}, "transfer_us = -1"),
    ],
)
def test_a_wrong_block_is_named(changes: dict[str, object], complaint: str) -> None:
    assert two_blocks().devices == 2
    with pytest.raises(UsageError, match=complaint):
        two_blocks(**changes)


def test_a_circle_of_dependencies_is_shown() -> None:
    ring = tuple(Block(name=a, time_us=1, devices=(0,), after=(b,)) for a, b in ("ac", "ba", "cb"))
    with pytest.raises(UsageError, match=r"circle: \w -> \w -> \w -> \w"):
        Placement(name="ring", devices=1, blocks=ring)


def test_blocks_may_be_written_in_any_order() -> None:
    late = Block(name="late", time_us=1, devices=(0,), after=("early",))
    early = Block(name="early", time_us=1, devices=(0,))
    assert [b.name for b in Placement(name="p", devices=1, blocks=(late, early)).blocks] == ["early", "late"]


def test_memory_limits_are_checked() -> None:
    with pytest.raises(UsageError, match="names 1 devices of 4"):
        by_name("V4").with_memory([3])
    with pytest.raises(UsageError, match="memory of device 0 is -1"):
        by_name("V4").with_memory(-1)


@pytest.mark.parametrize(
    ("name", "blocks", "work", "critical_path"),
    [
        ("V4", 8, 4, 16),
        ("V4x2", 16, 8, 32),
        ("X4", 16, 8, 16),
        ("M4", 10, 6, 18),
        ("K4", 10, 6, 10),
        ("NN4", 12, 8, 20),
        ("ZB4", 12, 3, 9),
        ("NN3", 10, 8, 16),
        ("K3", 8, 6, 10),
    ],
)
def test_the_shapes_are_those_of_the_paper(name: str, blocks: int, work: float, critical_path: float) -> None:
    shape = by_name(name)
    assert len(shape.blocks) == blocks
    assert set(shape.work_us) == {work}
    assert shape.critical_path_us == critical_path


@pytest.mark.parametrize(("name", "blocks", "work"), [("V4", 4, 1), ("K4", 5, 2), ("NN4", 6, 3)])
def test_inference_leaves_the_backwards_away(name: str, blocks: int, work: float) -> None:
    shape = by_name(name, inference=True)
    assert (len(shape.blocks), set(shape.work_us)) == (blocks, {work})


@pytest.mark.parametrize("name", ["Q4", "V", "V0", "M4x2", "v4", "X1"])
def test_an_unknown_shape_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        by_name(name)


@pytest.mark.parametrize("ending", [".toml", ".json"])
def test_a_placement_survives_its_file(tmp_path: Path, ending: str) -> None:
    placement = by_name("NN4").with_memory([4, 3.5, 2, 1])
    path = tmp_path / f"nn{ending}"
    write_placement(placement, path)
    assert read_placement(path) == placement


def test_a_placement_that_a_person_wrote(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text(
        """
        name = "two stages"
        devices = 2
        memory = [2, 1]
        transfer_us = 40

        [[blocks]]
        name = "stage0"
        time_us = 1500.5
        devices = [0]
        [[blocks]]
        name = "stage1"
        time_us = 900
        devices = [1]
        after = ["stage0"]
        """
    )
    placement = read_placement(path)
    assert placement.work_us == (1500.5, 900)
    assert placement.critical_path_us == 1500.5 + 40 + 900


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("devices = ", "is not TOML"),
        ('name = "p"\ndevices = 1\n', "blocks"),
        ('name = "p"\ndevices = 1\nblocks = [{name = "a", time_us = "x", devices = [0]}]', r"blocks\[0\].time_us"),
        ('name = "p"\ndevices = 1\ncolour = 3\nblocks = []', "colour"),
        ('name = "p"\ndevices = 1\nblocks = [{name = "a", time_us = 1, devices = [3]}]', "device 3 does not exist"),
    ],
)
def test_a_bad_file_is_named_with_the_place(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=complaint) as refused:
        read_placement(path)
    assert "bad.toml" in refused.value.message


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_placement(tmp_path / "none.toml")
