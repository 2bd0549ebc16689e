"""Where a webhook may go: public addresses alone, however they are spelled and whatever a name leads to."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest
from aiohttp.abc import ResolveResult

from sky.reconcile import sender
from sky.reconcile.sender import NotPublicError, PublicResolver, Sender, check_address
from sky.reconcile.turns import HUNG_AT_ONCE_MAX, OF_OWNER_MAX, REST_US, Turns


def is_public(address: str) -> bool:
    """Whether something may be sent there."""
    try:
        check_address(address, loopback=False)
    except NotPublicError:
        return False
    return True


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1%eth0",
        "fd00::1",
        "ff02::1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
    ],
)
def test_a_private_address_is_refused(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"])
def test_a_public_address_is_taken(address: str) -> None:
    assert is_public(address)


def test_the_setting_allows_this_computer_and_nothing_else() -> None:
    check_address("127.0.0.1", loopback=True)
    with pytest.raises(NotPublicError):
        check_address("10.0.0.1", loopback=True)


async def test_a_name_with_one_private_address_among_public_ones_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [
        ResolveResult(hostname="x", host=host, port=443, family=socket.AF_INET, proto=0, flags=0)
        for host in ("93.184.216.34", "10.0.0.1")
    ]

    class Names:
        async def resolve(self, *_: object) -> list[ResolveResult]:
            return found

        async def close(self) -> None:
            return

    monkeypatch.setattr(sender.aiohttp, "ThreadedResolver", Names)
    resolver = PublicResolver(loopback=False)
    with pytest.raises(NotPublicError, match=r"10\.0\.0\.1"):
        await resolver.resolve("x", 443)
    del found[1]
    assert await resolver.resolve("x", 443) == found


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127。0。0。1",
        "①②⑦.0.0.1",
        "127.0.0.\uff11",
        "0x7f.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
    ],
)
async def test_this_computer_is_not_connected_to_however_it_is_spelled(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"https://{host}:{listener.getsockname()[1]}/"
        sent = await Sender(loopback=False).send(url, "evt_1", 1, b"{}", ["whsec_" + "A" * 44])
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert sent.error is not None
    assert "no public address" in sent.error


@pytest.mark.parametrize(("status", "taken"), [(200, True), (500, False)])
async def test_the_status_is_the_answer_although_its_body_never_ends(status: int, taken: bool) -> None:
    over = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: 1000\r\n\r\nso far" % status)
        await writer.drain()
        await over.wait()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        sent = await Sender(loopback=True).send(url, "evt_1", 1, b"{}", ["whsec_" + "A" * 44])
        over.set()
    assert (sent.status, sent.taken, sent.hung) == (status, taken, False)


def test_endpoints_that_hang_rest_longer_each_time_and_share_a_few_places() -> None:
    turns = Turns()
    for number in range(2 * HUNG_AT_ONCE_MAX):
        turns.did_not_answer(f"whk_{number}", 0)
    assert turns.rests_until_us("whk_0") == REST_US
    turns.did_not_answer("whk_0", 0)
    assert turns.rests_until_us("whk_0") == 2 * REST_US
    with contextlib.ExitStack() as stack:
        for number in range(HUNG_AT_ONCE_MAX):
            assert turns.has_room(f"owner-{number}", f"whk_{number}")
            stack.enter_context(turns.taken(f"owner-{number}", f"whk_{number}"))
        assert not turns.has_room("another", f"whk_{HUNG_AT_ONCE_MAX}")
        for number in range(OF_OWNER_MAX):
            assert turns.has_room("healthy", f"fine-{number}")
            stack.enter_context(turns.taken("healthy", f"fine-{number}"))
        assert not turns.has_room("healthy", "fine")
        assert turns.has_room("other", "fine")
    turns.answered("whk_0")
    assert (turns.rests_until_us("whk_0"), turns.has_room("healthy", "whk_0")) == (0, True)


async def test_an_answer_is_not_unpacked() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnone")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        sent = await Sender(loopback=True).send(url, "evt_1", 1, b"{}", ["whsec_" + "A" * 44])
    assert (sent.status, sent.error) == (200, None)
