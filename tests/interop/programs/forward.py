"""A server on a node, reached at a port here."""

from __future__ import annotations

import socket
import sys

import skyward as sky
from local import PYTHON, Local, tell


@sky.function
def serve() -> int:
    import socket
    import threading

    server = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        while True:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"heard " + connection.recv(100))

    threading.Thread(target=answer, daemon=True).start()
    return server.getsockname()[1]


def free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def say(port: int, text: bytes) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(text)
        return b"".join(iter(lambda: connection.recv(100), b"")).decode()


name = sys.argv[1]
image = sky.Image(python=PYTHON)
with sky.Compute(provider=Local(), image=image, name=name, console=False, delete_on_exit=False) as pool:
    remote, first = serve() >> pool, pool.id
local = free()
ports = [sky.Port(remote=remote, local=local)]
again = sky.Compute.attached(name, console=False, delete_on_exit=True)
again._ports = tuple(ports)  # attaching has no word for ports of its own
with again as pool:
    tell(same=pool.id == first, compute=pool.id, heard=[say(local, b"one"), say(local, b"two")])
