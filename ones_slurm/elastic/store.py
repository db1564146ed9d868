"""The rendezvous store: torch's TCPStore, on a socket that somebody bound before."""

import datetime
import os
import socket

from torch.distributed import TCPStore  # type: ignore[attr-defined]

# torch's own default for collectives; a rank waits at the store no longer than it would in an all-reduce.
WAIT_AT_MOST = datetime.timedelta(minutes=30)


def open_store(address: str, port: int, *, serve: int | None = None, here: bool = False) -> TCPStore:
    """A client of the store at this address, which with `serve` or `here` lives in this process.

    `serve` is a listening socket that is taken over: a child that inherited it would keep the port. Raises `ValueError`
    when it is none.
    """
    if serve is not None:
        os.set_inheritable(serve, False)
        _must_listen(serve)

    def opened(*, libuv: bool) -> TCPStore:
        return TCPStore(
            address,
            port,
            None,
            here or serve is not None,
            WAIT_AT_MOST,
            wait_for_workers=False,
            master_listen_fd=serve,
            use_libuv=libuv,
        )

    try:
        return opened(libuv=True)
    except RuntimeError as error:
        if "libuv support" not in str(error):
            raise
        return opened(libuv=False)  # Debian builds its torch without, and torch has no way to ask before


def _must_listen(descriptor: int) -> None:
    try:
        with socket.socket(fileno=os.dup(descriptor)) as seen:
            seen.getsockname()
    except OSError as error:
        raise ValueError(f"ONES_STORE_FD={descriptor} is not a socket ({error.strerror})") from error
