"""What an administrator said stands after a restart, and nobody's file or link is written through."""

import pytest

from ones_slurm.daemon.control import ControlFile
from ones_slurm.model.adoption import Control
from ones_slurm.model.errors import Failed


def test_a_pause_outlives_the_daemon(tmp_path):
    assert ControlFile(tmp_path).word() is Control.RUN
    told = ControlFile(tmp_path).tell(Control.PAUSE, "root")
    again = ControlFile(tmp_path)
    assert again.standing == told
    again.tell(Control.RUN, "root")
    assert ControlFile(tmp_path).word() is Control.RUN
    assert [path.name for path in tmp_path.iterdir()] == ["control.json"]


@pytest.mark.parametrize("content", [b"", b"{", b'{"word": "go"}', b"\xff\xfe", b"[]"])
def test_a_file_that_cannot_be_read_is_taken_for_a_pause(tmp_path, content):
    (tmp_path / "control.json").write_bytes(content)
    control = ControlFile(tmp_path)
    assert control.word() is Control.PAUSE
    control.tell(Control.RUN, "root")
    assert ControlFile(tmp_path).word() is Control.RUN


def test_a_link_in_its_place_is_replaced_and_not_followed(tmp_path):
    other = tmp_path / "other"
    other.write_text("mine")
    state = tmp_path / "state"
    state.mkdir()
    for name in ("control.json", "control.new"):
        (state / name).symlink_to(other)
    ControlFile(state).tell(Control.DRAIN, "root")
    assert other.read_text() == "mine"
    assert ControlFile(state).word() is Control.DRAIN


def test_a_disk_that_does_not_take_it_leaves_the_old_word(tmp_path):
    control = ControlFile(tmp_path / "gone")
    with pytest.raises(Failed, match=r"control\.new"):
        control.tell(Control.PAUSE, "root")
    assert control.word() is Control.RUN
