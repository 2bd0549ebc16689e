"""Tells the service manager that started the daemon how it is: ready, or stopping.

Decides: the words, which are those that systemd listens for. Never: fails the daemon; a manager that is not
there, or does not listen, is told nothing. Follows: what waits for the daemon starts when it answers, and not
when its process exists; the variable is taken away, so that no process of ours can speak in our name.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, MutableMapping

VARIABLE = "NOTIFY_SOCKET"
READY = "READY=1"
STOPPING = "STOPPING=1"
SEND_S_MAX = 1.0


def teller(environ: MutableMapping[str, str] = os.environ) -> Callable[..., None]:
    """What tells the manager some lines; it tells nobody where none is named."""
    address = environ.pop(VARIABLE, "")

    def tell(*lines: str) -> None:
        if not address:
            return
        # An address that begins with @ is no file, but a name that only the kernel keeps.
        where = "\0" + address[1:] if address.startswith("@") else address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.settimeout(SEND_S_MAX)
            line.sendto("\n".join(lines).encode(), where)

    return tell
