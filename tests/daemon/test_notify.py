"""What systemd hears."""

import socket

import pytest

from ones_slurm.daemon.notify import tell_systemd


@pytest.mark.parametrize("abstract", [False, True])
def test_a_state_is_sent_to_the_socket_that_systemd_names(tmp_path, monkeypatch, abstract):
    address = f"\0ones-{tmp_path.name}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", address.replace("\0", "@"))
        tell_systemd("READY=1")
        assert systemd.recv(100) == b"READY=1"


def test_without_systemd_nothing_happens(tmp_path, monkeypatch):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    tell_systemd("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    tell_systemd("READY=1")
