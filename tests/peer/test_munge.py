"""Who made this, and over which bytes: with a real munged."""

import os

import pytest
from other_user import NOBODY, python_as

from ones_slurm.model.errors import NotAllowed, Unreachable
from ones_slurm.peer import munge


def test_a_credential_says_who_made_it_and_what_it_carries(munge_socket):
    made = munge.encode(b"what I ask for", munge_socket)
    assert munge.decode(made, munge_socket) == munge.Credential(os.getuid(), os.getgid(), b"what I ask for")


def test_an_empty_payload_comes_back_empty(munge_socket):
    assert munge.decode(munge.encode(b"", munge_socket), munge_socket).payload == b""


def test_another_user_cannot_pass_for_us(munge_socket):
    imports = "from ones_slurm.peer import munge"
    made = python_as(NOBODY, imports, f"print(munge.encode(b'hello', {munge_socket!r}))")
    assert munge.decode(made, munge_socket).uid == NOBODY


def test_a_credential_is_good_once(munge_socket):
    made = munge.encode(b"", munge_socket)
    munge.decode(made, munge_socket)
    with pytest.raises(NotAllowed, match="used before"):
        munge.decode(made, munge_socket)


def test_an_altered_credential_is_refused(munge_socket):
    made = munge.encode(b"x" * 40, munge_socket)
    middle = len(made) // 2
    altered = made[:middle] + ("A" if made[middle] != "A" else "B") + made[middle + 1 :]
    with pytest.raises(NotAllowed, match=r"altered|malformed|refuses"):
        munge.decode(altered, munge_socket)


@pytest.mark.parametrize("junk", ["", "MUNGE:", "MUNGE:AAAA:", "\x00", "ü" * 5000, "MUNGE:" + "A" * 100_000 + ":"])
def test_junk_is_refused(munge_socket, junk):
    with pytest.raises(NotAllowed):
        munge.decode(junk, munge_socket)


def test_no_munged_is_said_with_the_place_where_it_was_looked_for():
    with pytest.raises(Unreachable, match=r"/nowhere/munge\.socket"):
        munge.encode(b"", "/nowhere/munge.socket")


def test_the_digest_changes_with_each_part_of_a_request():
    digests = {
        munge.request_digest("GET", "/v1/queue", b""),
        munge.request_digest("POST", "/v1/queue", b""),
        munge.request_digest("GET", "/v1/queue?wait_s=1", b""),
        munge.request_digest("GET", "/v1/queue", b"{}"),
    }
    assert len(digests) == 4
