"""Many readers who read a long log at once keep nobody else waiting, and each gets all of it, in order."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
from contextlib import closing
from typing import Any

from tests.api.conftest import Api
from tests.databases import IN_A_FILE

EVENTS = 1_200
READERS = 60
PAGES = EVENTS // 270 + 1
"""Pages of a reader, by their size in bytes."""


def write_log(home: Any) -> int:
    """Record so many events of a kilobyte, as if they had happened; returns the last one's number."""
    payload = {"type": "node.console", "compute": "cmp_1", "node": "nod_1", "content": "x" * 900}
    text = json.dumps({**payload, "stream": "stdout"})
    with closing(sqlite3.connect(home / "sky.db")) as log, log:
        (first,) = log.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
        last = first + EVENTS
        rows = ((seq, "node.console", text, "cmp_1", "nod_1", 1) for seq in range(first + 1, last + 1))
        log.executemany(
            "INSERT INTO events (seq, name, payload, compute_id, node_id, at_us) VALUES (?, ?, ?, ?, ?, ?)",
            rows,
        )
        log.execute(
            "INSERT INTO counters VALUES ('events', ?) ON CONFLICT (name) DO UPDATE SET value = ?",
            (last, last),
        )
    return last


def read_all(daemon: Any, ended: list[list[int]]) -> None:
    """Read every recorded event, and note their numbers."""
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=60) as link:
        path = "/v1/events?after=0&follow=false&types=node.console"
        link.sendall(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{daemon.port}\r\nConnection: close\r\n\r\n".encode()
        )
        pieces: list[bytes] = []
        while piece := link.recv(1 << 18):
            pieces.append(piece)
    lines = b"".join(pieces).replace(b"\r\n", b"\n").split(b"\n")
    ended.append([int(line[4:]) for line in lines if line.startswith(b"id: ")])


@IN_A_FILE
def test_readers_of_a_long_log_keep_nobody_waiting(own_daemon: Any) -> None:
    own_daemon.stop()
    last = write_log(own_daemon.home)
    own_daemon.start()
    api = Api(own_daemon.url)
    ended: list[list[int]] = []
    readers = [threading.Thread(target=read_all, args=(own_daemon, ended)) for _ in range(READERS)]
    for reader in readers:
        reader.start()
    answers = 0
    while len(ended) < READERS // 2:
        assert api("GET", "/v1/computes").status == 200
        answers += 1
    for reader in readers:
        reader.join(60)
    assert answers > 3 * PAGES, "behind a page of every reader, there would be one answer for each page"
    assert len(ended) == READERS
    for seen in ended:
        assert seen == [*range(last - EVENTS + 1, last + 1), last], "and then where the log ends"
    api.http.close()
