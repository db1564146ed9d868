"""Credentials of munge through its C library: who made this, and over which bytes.

`libmunge` talks to the machine's munged over a Unix socket; munged knows the uid of each process from the kernel.
"""

import ctypes
import functools
import hashlib
import os

import msgspec

from ones_slurm.model.errors import NotAllowed, OnesError, Unreachable

_LIBRARY = "libmunge.so.2"

# Option and error numbers of munge's public interface (munge_ctx(3), munge_enum(3)).
_OPT_SOCKET = 8
_SUCCESS = 0
_E_SOCKET = 6
_E_TIMEOUT = 7
_WORDS = {
    8: "the credential is malformed",
    14: "the credential was made with another munge key, or was altered on its way",
    15: "the credential has expired",
    16: "the credential comes from the future",
    17: "the credential has been used before",
    18: "the credential is meant for somebody else",
}
_HINTS = {
    14: "all hosts must share one /etc/munge/munge.key",
    15: "do the clocks of the two hosts agree?",
    16: "do the clocks of the two hosts agree?",
}


class Credential(msgspec.Struct, frozen=True):
    """What a decoded credential says: the uid and gid of the process that made it, and its payload."""

    uid: int
    gid: int
    payload: bytes


def request_digest(method: str, target: str, body: bytes) -> bytes:
    """The payload that ties a credential to one request: the SHA-256, in hex, of method, path with query, and body."""
    return hashlib.sha256(f"{method}\n{target}\n".encode() + body).hexdigest().encode()


def encode(payload: bytes, socket: str = "") -> str:
    """A credential of this process over `payload`, good for one use within munge's time to live (5 minutes).

    `socket` is munged's, "" for the system's. Raises `Unreachable` when munged or its library is missing.
    """
    library = _library()
    text = ctypes.c_void_p()
    with _Context(library, socket) as context:
        error = library.munge_encode(ctypes.byref(text), context, payload, len(payload))
        if error != _SUCCESS:
            raise _failure(error, _words(library, error), socket)
        try:
            return ctypes.string_at(text).decode()
        finally:
            library.free(text)


def decode(credential: str, socket: str = "") -> Credential:
    """Checks a credential and marks it as used; a second decode of the same one is refused.

    Raises `NotAllowed` for every fault of the credential, `Unreachable` when munged or its library is missing.
    """
    library = _library()
    payload, length = ctypes.c_void_p(), ctypes.c_int()
    uid, gid = ctypes.c_uint32(), ctypes.c_uint32()
    with _Context(library, socket) as context:
        error = library.munge_decode(
            credential.encode(errors="replace"),
            context,
            ctypes.byref(payload),
            ctypes.byref(length),
            ctypes.byref(uid),
            ctypes.byref(gid),
        )
        try:
            if error != _SUCCESS:
                raise _failure(error, _words(library, error), socket)
            return Credential(uid.value, gid.value, ctypes.string_at(payload, length.value) if payload else b"")
        finally:
            library.free(payload)


class _Context:
    """A munge context for one call; they are cheap, and sharing one between threads is not allowed."""

    def __init__(self, library: ctypes.CDLL, socket: str) -> None:
        self._library = library
        self._handle = ctypes.c_void_p(library.munge_ctx_create())
        if socket:
            library.munge_ctx_set(self._handle, _OPT_SOCKET, ctypes.c_char_p(os.fsencode(socket)))

    def __enter__(self) -> ctypes.c_void_p:
        return self._handle

    def __exit__(self, *_: object) -> None:
        self._library.munge_ctx_destroy(self._handle)


@functools.cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise Unreachable(
            f"munge's library {_LIBRARY} cannot be loaded: {error}",
            hint='install it (Debian: libmunge2), or set daemon.auth = "socket" in the site file',
        ) from error
    pointer, number = ctypes.c_void_p, ctypes.c_int
    library.munge_ctx_create.restype = pointer
    library.munge_ctx_create.argtypes = []
    library.munge_ctx_destroy.argtypes = [pointer]
    library.munge_encode.argtypes = [pointer, pointer, ctypes.c_char_p, number]
    library.munge_decode.argtypes = [ctypes.c_char_p, pointer, pointer, pointer, pointer, pointer]
    library.munge_strerror.restype = ctypes.c_char_p
    library.munge_strerror.argtypes = [number]
    library.free.argtypes = [pointer]
    return library


def _words(library: ctypes.CDLL, error: int) -> str:
    said = library.munge_strerror(error)
    return said.decode(errors="replace") if said else f"munge error {error}"


def _failure(error: int, said: str, socket: str) -> OnesError:
    if error in (_E_SOCKET, _E_TIMEOUT):
        where = socket or "its usual socket"
        return Unreachable(f"munged does not answer at {where}: {said}", hint="is the service munge running?")
    return NotAllowed(_WORDS.get(error, f"munge refuses the credential: {said}"), hint=_HINTS.get(error))
