"""A cheap HTTP load: keeps some connections busy and counts the answers.

Decides: how requests are sent and timed. Never: what is measured; ``bench/rows.py`` says that.
Follows: it shares the two cores of a small machine with the daemon, so it does little: one write per request,
one search for the end of the headers per answer, and nothing is parsed but the length.

Reads a JSON object from standard input, writes one to standard output:
{"host", "port", "method", "path", "headers", "body", "connections", "seconds", "requests", "start"}; ``{n}``
in path, headers and body becomes a number that no other request has. Bounded by seconds and by requests.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from typing import Any

import uvloop

BUFFER_BYTES = 1 << 20


class Plan:
    """What to send, how often, and until when."""

    def __init__(self, config: dict[str, Any]) -> None:
        head = [f"{config.get('method', 'GET')} {config['path']} HTTP/1.1"]
        head.append(f"Host: {config['host']}:{config['port']}")
        head += [f"{name}: {value}" for name, value in config.get("headers", {}).items()]
        self.head = "\r\n".join(head)
        self.body = config.get("body") or ""
        self.left = int(config.get("requests", 1_000_000))
        self.ends_s = time.perf_counter() + float(config.get("seconds", 3.0))
        self.start = int(config.get("start", 0))
        self.sent = 0
        self.fixed = None if "{n}" in self.head + self.body else self.render(0)

    def render(self, number: int) -> bytes:
        body = self.body.replace("{n}", str(number))
        size = f"\r\nContent-Type: application/json\r\nContent-Length: {len(body)}" if body else ""
        return f"{self.head.replace('{n}', str(number))}{size}\r\n\r\n{body}".encode()

    def next(self) -> bytes | None:
        """The next request, or None when it is over."""
        if self.sent >= self.left or time.perf_counter() >= self.ends_s:
            return None
        self.sent += 1
        return self.fixed or self.render(self.start + self.sent)


class Connection(asyncio.Protocol):
    """One kept-alive connection, one request at a time."""

    def __init__(self, plan: Plan, latencies_s: list[float], statuses: dict[str, int]) -> None:
        self.plan, self.latencies_s, self.statuses = plan, latencies_s, statuses
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.buffer = b""
        self.wanted = -1
        self.began_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.transport = transport
        self.send()

    def send(self) -> None:
        request = self.plan.next()
        if request is None:
            self.transport.close()
            return
        self.began_s = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self.wanted < 0:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            self.wanted = end + 4 + content_length(self.buffer[: end + 2])
        if len(self.buffer) >= self.wanted:
            self.latencies_s.append(time.perf_counter() - self.began_s)
            status = self.buffer[9:12].decode()
            self.statuses[status] = self.statuses.get(status, 0) + 1
            self.buffer, self.wanted = self.buffer[self.wanted :], -1
            self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


def content_length(head: bytes) -> int:
    found = head.lower().find(b"content-length:")
    return int(head[found + 15 : head.index(b"\r\n", found)]) if found >= 0 else 0


async def run(config: dict[str, Any]) -> dict[str, Any]:
    plan = Plan(config)
    latencies_s: list[float] = []
    statuses: dict[str, int] = {}
    loop = asyncio.get_running_loop()
    began_s = time.perf_counter()
    made = [
        await loop.create_connection(
            lambda: Connection(plan, latencies_s, statuses), config["host"], config["port"]
        )
        for _ in range(int(config.get("connections", 1)))
    ]
    await asyncio.wait_for(asyncio.gather(*(made[i][1].done for i in range(len(made)))), 120)
    took_s = time.perf_counter() - began_s
    latencies_s.sort()
    count = len(latencies_s)
    return {
        "count": count,
        "per_s": count / took_s if took_s else 0.0,
        "median_ms": latencies_s[count // 2] * 1000 if count else None,
        "p95_ms": latencies_s[count * 95 // 100] * 1000 if count else None,
        "statuses": statuses,
    }


def main() -> None:
    print(json.dumps(uvloop.run(run(json.load(sys.stdin)))))


if __name__ == "__main__":
    main()
