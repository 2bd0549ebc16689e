"""How long an event takes from the request that causes it to whoever listens, and whether any is lost.

Decides: what counts as the moment of cause: the POST leaving, so the write itself is part of the time.
Never: drops or samples events. Follows: every reader must see every compute created, in order, once.
"""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time
from collections.abc import Callable

from bench.target import Target

EVENTS = 40
READERS = 500
CREATED = b"event: compute.created"
READ_BYTES = 1 << 16
WAIT_S = 30.0


class Readers:
    """Open subscriptions, read by one thread; ``seen`` has each reader's moments of arrival."""

    def __init__(self, target: Target, count: int) -> None:
        self.selector = selectors.DefaultSelector()
        self.seen: list[list[float]] = [[] for _ in range(count)]
        self.tails = [b""] * count
        self.links: list[socket.socket] = []
        self.open = True
        host = target.url.removeprefix("http://")
        request = f"GET /v1/events?types=compute.created HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        for number in range(count):
            link = socket.create_connection(target.address, timeout=WAIT_S)
            link.sendall(request)
            while b"\r\n\r\n" not in self.tails[number]:
                self.tails[number] += link.recv(READ_BYTES)
            link.setblocking(False)
            self.links.append(link)
            self.selector.register(link, selectors.EVENT_READ, number)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self) -> None:
        while self.open:
            for key, _ in self.selector.select(0.1):
                number: int = key.data
                data = self.links[number].recv(READ_BYTES)
                if not data:
                    self.selector.unregister(self.links[number])
                    continue
                now_s = time.perf_counter()
                text = self.tails[number] + data
                self.seen[number] += [now_s] * text.count(CREATED)
                self.tails[number] = text[text.rfind(CREATED) + 1 :][-len(CREATED) + 1 :]

    def close(self) -> None:
        self.open = False
        self.thread.join(5)
        for link in self.links:
            link.close()


def subscribers(target: Target, count: int) -> tuple[list[float], int]:
    """Milliseconds from each POST to each reader that saw its event, and how many never did."""
    readers = Readers(target, count)
    try:
        # A stream answers before it replays; what was there before is drained first.
        wait_until(quiet(readers))
        before = [len(seen) for seen in readers.seen]
        sent_s: list[float] = []
        body = json.dumps(target.compute_body).encode()
        with socket.create_connection(target.address, timeout=WAIT_S) as link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            head = f"POST /v1/computes HTTP/1.1\r\nHost: {target.url.removeprefix('http://')}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            for number in range(1, EVENTS + 1):
                sent_s.append(time.perf_counter())
                link.sendall(head.encode() + body)
                link.recv(READ_BYTES)
                wanted = number

                def arrived(wanted: int = wanted) -> bool:
                    return all(
                        len(seen) - had >= wanted for seen, had in zip(readers.seen, before, strict=True)
                    )

                wait_until(arrived)
        took_ms, lost = [], 0
        for seen, had in zip(readers.seen, before, strict=True):
            moments = seen[had:]
            lost += EVENTS - len(moments)
            took_ms += [(at - sent) * 1000 for at, sent in zip(moments, sent_s, strict=False)]
        return took_ms, lost
    finally:
        readers.close()


def quiet(readers: Readers) -> Callable[[], bool]:
    """True once nothing has arrived for a quarter of a second."""
    last = [sum(map(len, readers.seen)), time.perf_counter()]

    def check() -> bool:
        count = sum(map(len, readers.seen))
        if count != last[0]:
            last[:] = [count, time.perf_counter()]
        return time.perf_counter() - last[1] > 0.25

    return check


def wait_until(holds: Callable[[], bool]) -> None:
    deadline_s = time.perf_counter() + WAIT_S
    while not holds() and time.perf_counter() < deadline_s:
        time.sleep(0.0005)


def measure(target: Target, note: Callable[[str, float], None]) -> None:
    for count, row in ((1, "event_ms"), (READERS, "event_500_readers_ms")):
        took_ms, lost = subscribers(target, count)
        for value in took_ms:
            note(row, value)
        note(f"{row.removesuffix('_ms')}_lost", float(lost))
