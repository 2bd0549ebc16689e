"""The rows that need nothing but HTTP, the same for ours and for a peer with the same interface.

Decides: which request is repeated, how many at once, and for how long. Never: starts a daemon.
Follows: computes have no nodes and tasks wait in the queue, so a row is the price of the write itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import lz4.frame
from bench.target import Target

MANY = 16
BLOB_BYTES = 10_000_000
READ_BYTES = 1 << 20
LOAD = Path(__file__).with_name("load.py")
JSON_HEADERS = {"Accept": "application/json"}


class Numbers:
    """A number that no request of this run had before."""

    def __init__(self) -> None:
        self.next = 0

    def take(self, count: int = 10_000_000) -> int:
        self.next += count
        return self.next - count


NUMBERS = Numbers()


def load(
    target: Target, method: str, path: str, connections: int, seconds: float, **more: Any
) -> dict[str, Any]:
    """Keep ``connections`` busy for ``seconds``, from a process of its own."""
    host, port = target.address
    config = {
        "host": host,
        "port": port,
        "method": method,
        "path": path,
        "connections": connections,
        "seconds": seconds,
        "start": NUMBERS.take(),
        "headers": {**JSON_HEADERS, **target.headers, **more.pop("headers", {})},
        **more,
    }
    done = subprocess.run(
        [sys.executable, LOAD],
        input=json.dumps(config).encode(),
        stdout=subprocess.PIPE,
        timeout=180,
        check=True,
    )
    result = json.loads(done.stdout)
    bad = {status: count for status, count in result["statuses"].items() if not status.startswith("2")}
    if bad or not result["count"]:
        print(f"  {target.name} {method} {path}: {bad or 'no answers'}", file=sys.stderr)
    return result


def keyed(body: Any) -> dict[str, Any]:
    return {"body": json.dumps(body), "headers": {"Idempotency-Key": f"bench-{os.getpid()}-{{n}}"}}


def blob(target: Target) -> tuple[float, float]:
    """10 MB up and down over one connection, in MB/s."""
    content = os.urandom(BLOB_BYTES)
    path = f"/v1/blobs/{hashlib.sha256(content).hexdigest()}"
    head = f"PUT {path} HTTP/1.1\r\nHost: {target.url.removeprefix('http://')}\r\n"
    head += f"Content-Type: application/vnd.skyward.blob\r\nContent-Length: {BLOB_BYTES}\r\n\r\n"
    with socket.create_connection(target.address, timeout=60) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began_s = time.perf_counter()
        link.sendall(head.encode())
        link.sendall(content)
        answer, _ = read(link)
        up_s = time.perf_counter() - began_s
        assert answer[9:10] == b"2", answer[:200]
        began_s = time.perf_counter()
        link.sendall(f"GET {path} HTTP/1.1\r\nHost: {target.url.removeprefix('http://')}\r\n\r\n".encode())
        _, size = read(link)
        down_s = time.perf_counter() - began_s
        assert size == BLOB_BYTES, size
    return BLOB_BYTES / up_s / 1e6, BLOB_BYTES / down_s / 1e6


def read(link: socket.socket) -> tuple[bytes, int]:
    """Read one answer: its head, and how many bytes of content came (chunks are only counted)."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += received(link)
    head, _, rest = data.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:])
    if b"content-length" in fields:
        wanted, size = int(fields[b"content-length"]), len(rest)
        while size < wanted:
            size += len(received(link))
        return head, size
    if b"chunked" not in fields.get(b"transfer-encoding", b""):
        return head, 0
    parts = [rest]
    while not parts[-1].endswith(b"0\r\n\r\n"):
        parts.append(received(link))
    body, size = b"".join(parts), 0
    while body:
        length, _, body = body.partition(b"\r\n")
        size, body = size + int(length, 16), body[int(length, 16) + 2 :]
    return head, size


def received(link: socket.socket) -> bytes:
    data = link.recv(READ_BYTES)
    if not data:
        raise ConnectionError("the daemon closed the connection")
    return data


def measure(target: Target, seconds: float, note: Callable[[str, float], None]) -> None:
    """One round of every row; ``note(row, value)`` keeps each value."""
    live = load(target, "GET", "/v1/health/live", MANY, seconds)
    note("health_live_16_per_s", live["per_s"])

    compute = target.ask("POST", "/v1/computes", target.compute_body)["id"]
    one = load(target, "GET", f"/v1/computes/{compute}", 1, seconds)
    note("compute_get_ms", one["median_ms"])
    note("compute_get_16_per_s", load(target, "GET", f"/v1/computes/{compute}", MANY, seconds)["per_s"])

    salt = os.urandom(8)
    function = lz4.frame.compress(cloudpickle.dumps(lambda: salt))
    name = hashlib.sha256(function).hexdigest()
    target.ask("PUT", f"/v1/blobs/{name}", function)
    target.ask("PUT", f"/v1/functions/{name}", function)
    task = keyed({"compute": compute, "function": name, "args_sha256": name, "dispatch": "one"})
    note("task_post_ms", load(target, "POST", "/v1/tasks", 1, seconds, **task)["median_ms"])
    note("task_post_16_per_s", load(target, "POST", "/v1/tasks", MANY, seconds, **task)["per_s"])

    create = keyed(target.compute_body)
    note(
        "compute_post_ms",
        load(target, "POST", "/v1/computes", 1, seconds, requests=500, **create)["median_ms"],
    )
    note("compute_post_16_per_s", load(target, "POST", "/v1/computes", MANY, seconds, **create)["per_s"])

    up, down = blob(target)
    note("blob_up_mb_per_s", up)
    note("blob_down_mb_per_s", down)
