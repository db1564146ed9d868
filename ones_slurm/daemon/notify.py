"""A word to systemd, if it started us: that we are ready, alive, or about to stop (sd_notify(3))."""

import os
import socket


def tell_systemd(state: str) -> None:
    """Sends `state` ("READY=1", "WATCHDOG=1", "STOPPING=1") to `$NOTIFY_SOCKET`; without one there is nobody to tell.

    A systemd that does not listen is no reason to stop, so nothing is raised.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as datagram:
        datagram.setblocking(False)
        try:
            datagram.sendto(state.encode(), address)
        except OSError:
            return
