"""Whose the other end of a connection is, by what the kernel says of its socket.

Decides: that a socket is somebody's only as long as he has it. Never: asks a daemon (``api/test_who_may``).
Follows: who connects, says what he wants and is gone before he was looked at is nobody.
"""

from __future__ import annotations

import os
import socket

import pytest

from sky.kit.lent import is_lent, lent_connection
from sky.server.peer import uid_of


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_socket_that_was_closed_is_nobodys(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as door:
        ours = door.getsockname()[:2]
        kept, left = (socket.create_connection(ours) for _ in range(2))
        kept.shutdown(socket.SHUT_WR)
        left.sendall(b"DELETE / HTTP/1.1\r\n\r\n")
        gone = left.getsockname()[:2]
        left.close()
        assert uid_of(kept.getsockname()[:2], ours) == os.getuid()
        assert uid_of(gone, ours) is None
        kept.close()


async def test_a_socket_that_is_lent_is_never_ours() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        ours = door.getsockname()[:2]
        async with lent_connection("127.0.0.1", ours[1], 5.0) as (_, writer):
            name = writer.get_extra_info("sockname")[:2]
            writer.write(b"DELETE / HTTP/1.1\r\n\r\n")
            assert is_lent(name)
        assert not is_lent(name)
        assert uid_of(name, ours) is None, "it is closed before it is no longer lent"
