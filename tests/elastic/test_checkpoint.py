"""A checkpoint is whole, or it does not count."""

import errno
import os
import pathlib
import resource
import signal

import pytest

torch = pytest.importorskip("torch")

from ones_slurm.elastic import checkpoint  # noqa: E402
from ones_slurm.model.errors import Failed, NotAllowed  # noqa: E402

pytestmark = pytest.mark.torch


def state(value: float) -> dict[str, object]:
    return {"weights": torch.full((7,), value), "step": int(value)}


def test_what_is_saved_is_what_is_loaded(tmp_path: pathlib.Path) -> None:
    path = checkpoint.save(tmp_path, 3, state(3))
    assert checkpoint.load(path)["weights"].tolist() == [3.0] * 7
    assert [file.name for file in tmp_path.iterdir()] == ["step-000000000003.pt"]


def test_the_last_two_are_kept(tmp_path: pathlib.Path) -> None:
    for step in (1, 2, 3):
        checkpoint.save(tmp_path, step, state(step))
    assert [checkpoint.load(path)["step"] for path in checkpoint.newest_first(tmp_path)] == [3, 2]


def test_a_newest_one_cut_at_any_byte_is_passed_over_and_noted(tmp_path: pathlib.Path) -> None:
    checkpoint.save(tmp_path, 1, state(1))
    newest = checkpoint.save(tmp_path, 2, state(2))
    content = newest.read_bytes()
    for length in [*range(0, len(content), 37), *range(len(content) - 60, len(content))]:
        newest.write_bytes(content[:length])
        found, notes = checkpoint.find_whole(tmp_path)
        assert found is not None
        assert checkpoint.load(found)["step"] == 1
        assert notes == ["checkpoint step-000000000002.pt is truncated; resumed from step-000000000001.pt"]


def test_any_flipped_bit_is_found(tmp_path: pathlib.Path) -> None:
    path = checkpoint.save(tmp_path, 1, state(1))
    content = path.read_bytes()
    for at in range(0, len(content), 23):
        path.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        with pytest.raises(checkpoint.Broken):
            checkpoint.load(path)


def test_with_none_whole_there_is_none_and_all_are_noted(tmp_path: pathlib.Path) -> None:
    for step in (1, 2):
        checkpoint.save(tmp_path, step, state(step)).write_bytes(b"half")
    found, notes = checkpoint.find_whole(tmp_path)
    assert found is None
    assert len(notes) == 2
    assert "began anew" in notes[0]


def test_a_broken_one_does_not_push_out_a_whole_one(tmp_path: pathlib.Path) -> None:
    checkpoint.save(tmp_path, 1, state(1))
    checkpoint.save(tmp_path, 9, state(9)).write_bytes(b"half")
    checkpoint.find_whole(tmp_path)
    checkpoint.save(tmp_path, 2, state(2))
    assert [path.name for path in checkpoint.newest_first(tmp_path)] == [checkpoint.name_of(2), checkpoint.name_of(1)]


def test_a_full_disk_is_an_oserror_and_leaves_the_old_one_alone(tmp_path: pathlib.Path) -> None:
    checkpoint.save(tmp_path, 1, state(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(OSError) as fault:
            checkpoint.save(tmp_path, 2, {"weights": torch.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert fault.value.errno in (errno.EFBIG, errno.ENOSPC)
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.name_of(1)]


def test_links_are_refused(tmp_path: pathlib.Path) -> None:
    elsewhere = checkpoint.save(tmp_path, 1, state(1)).rename(tmp_path / "elsewhere")
    (tmp_path / checkpoint.name_of(2)).symlink_to(elsewhere)
    with pytest.raises(NotAllowed, match="symbolic link"):
        checkpoint.find_whole(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file away needs root")
def test_somebody_elses_file_is_refused(tmp_path: pathlib.Path) -> None:
    path = checkpoint.save(tmp_path, 1, state(1))
    os.chown(path, 61002, -1)
    with pytest.raises(NotAllowed, match="not a plain file of yours"):
        checkpoint.load(path)


class Planted:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch planted",)


def test_a_planted_object_is_not_built(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = checkpoint.save(tmp_path, 1, {"evil": Planted()})
    with pytest.raises(Failed, match="more than tensors"):
        checkpoint.load(path)
    assert not (tmp_path / "planted").exists()
