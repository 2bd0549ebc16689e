"""The stream of events: from where it is read, that nothing is missing, and who is let go.

Decides: what a reader may rely on across broken connections. Never: sleeps to let something happen.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.conftest import RunningDaemon, free_port
from tests.proof import record

READ_S = 60.0


class Reader:
    """One reader of the stream: messages as (id, name, payload)."""

    def __init__(self, response: Any) -> None:
        self.lines = response.iter_lines()
        self.comments = 0

    def __iter__(self) -> Iterator[tuple[int | None, str, dict[str, Any]]]:
        found: dict[str, str] = {}
        for line in self.lines:
            if line.startswith(":"):
                self.comments += 1
            elif line:
                name, _, value = line.partition(": ")
                found[name] = value
            elif "data" in found:
                seq = int(found["id"]) if "id" in found else None
                yield seq, found["event"], json.loads(found["data"])
                found = {}

    def take(self, count: int) -> list[tuple[int | None, str, dict[str, Any]]]:
        messages = iter(self)
        return [next(messages) for _ in range(count)]


@contextmanager
def follow(api: Any, query: str = "", **headers: str) -> Iterator[Reader]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with api.http.stream("GET", f"/v1/events{query}", headers=named, timeout=READ_S) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Reader(response)


def newest(api: Any, tools: Any) -> int:
    """A cursor that is near the end of the log."""
    compute = api.create(tools.idle_spec())
    with follow(api, f"?compute={compute['id']}") as reader:
        found = reader.take(1)[0][0]
    api.delete(compute["id"])
    assert found is not None
    return found


def test_the_end_of_what_is_recorded_is_marked(api: Any, tools: Any) -> None:
    compute = api.create(tools.idle_spec())
    path = f"/v1/events?compute={compute['id']}&types=compute.created"
    whole = api("GET", f"{path}&follow=false").content.decode()
    blocks = [block for block in whole.split("\n\n") if "id: " in block]
    assert [len(block.splitlines()) for block in blocks] == [3, 1], "one event, then an id without one"
    first, marked = (int(block.partition("\n")[0].removeprefix("id: ")) for block in blocks)
    assert marked >= first
    # Who comes back with the mark is told nothing again; a follower finds it before what is new.
    again = api("GET", f"{path}&follow=false&after={marked}").content.decode()
    assert "event:" not in again
    with follow(api, f"?compute={compute['id']}&types=compute.deleted&after={marked}") as reader:
        while not next(reader.lines).startswith("id: "):
            pass
        api.delete(compute["id"])
        assert reader.take(1)[0][1] == "compute.deleted"


def test_a_compute_is_told_from_its_beginning(api: Any, tools: Any) -> None:
    compute = api.create(tools.idle_spec())
    with follow(
        api, f"?compute={compute['id']}&types=compute.created,compute.deleting,compute.deleted"
    ) as reader:
        seq, name, payload = reader.take(1)[0]
        assert (name, payload["type"], payload["compute"]) == (
            "compute.created",
            "compute.state",
            compute["id"],
        )
        assert seq
        api.delete(compute["id"])
        assert [m[1] for m in reader.take(2)] == ["compute.deleting", "compute.deleted"]


def test_a_reader_of_all_begins_now(api: Any, tools: Any) -> None:
    old = api.create(tools.idle_spec())
    with follow(api, "?types=compute.created") as reader:
        new = api.create(tools.idle_spec())
        assert reader.take(1)[0][2]["compute"] == new["id"]
    for compute in (old, new):
        api.delete(compute["id"])


def test_a_name_stands_for_its_compute(api: Any, tools: Any, fresh_name: str) -> None:
    compute = api.create(tools.idle_spec(), fresh_name)
    with follow(api, f"?compute={fresh_name}") as reader:
        assert reader.take(1)[0][2]["compute"] == compute["id"]
    api.delete(compute["id"])


def test_nothing_is_missing_while_a_thousand_events_are_written(api: Any, tools: Any) -> None:
    """Readers come, leave and come back at their last id; together each has seen every id once."""
    compute = api.create(tools.idle_spec())
    path = f"/v1/computes/{compute['id']}"
    after = newest(api, tools)
    done = threading.Event()

    def write(worker: int) -> None:
        for turn in range(125):
            nodes = {"desired": 0, "min": 0, "max": 1 + (worker + turn) % 5}
            assert api("PATCH", path, {"nodes": nodes}, if_match="*").status == 200

    def read(step: int) -> list[int]:
        seen: list[int] = []
        cursor = after
        while True:
            with follow(api, f"?compute={compute['id']}", Last_Event_ID=str(cursor)) as reader:
                for seq, name, _ in reader:
                    assert seq is not None
                    seen.append(seq)
                    cursor = seq
                    if name == "compute.deleting":
                        return seen
                    if len(seen) % step == 0:
                        break

    with ThreadPoolExecutor(8) as pool:
        readers = [pool.submit(read, step) for step in (37, 101, 10_000)]
        writers = [pool.submit(write, worker) for worker in range(4)]
        for writer in writers:
            writer.result()
        api.delete(compute["id"])
        seen = [reader.result(READ_S) for reader in readers]
    done.set()
    with follow(api, f"?compute={compute['id']}", Last_Event_ID=str(after)) as reader:
        whole = [seq for seq, _, _ in reader.take(len(seen[0]))]
    assert len(whole) >= 1000
    for one in seen:
        assert one == whole
    record(events=len(whole), readers=len(seen), missed=0)


def test_after_and_last_event_id_mean_the_same(api: Any, tools: Any) -> None:
    compute = api.create(tools.idle_spec())
    for high in (2, 3, 4):
        nodes = {"desired": 0, "min": 0, "max": high}
        api("PATCH", f"/v1/computes/{compute['id']}", {"nodes": nodes}, if_match="*")
    query = f"?compute={compute['id']}"
    with follow(api, query) as reader:
        first, second, third = (m[0] for m in reader.take(3))
    with follow(api, f"{query}&after={first}") as reader:
        assert [m[0] for m in reader.take(2)] == [second, third]
    with follow(api, f"{query}&after=0", Last_Event_ID=str(second)) as reader:
        assert reader.take(1)[0][0] == third
    with follow(api, f"{query}&after=0") as reader:
        assert reader.take(1)[0][0] == first
    api.delete(compute["id"])


def test_a_message_is_one_line_of_ascii(api: Any, ready: dict[str, Any]) -> None:
    """Some readers end a line at U+2028, and none may be ended by what a user prints."""
    nasty = "a\\u2028b\\u2029c\\u00e9\\U0001f680 data: x"
    code = f"python3 -c \"print('{nasty}')\""
    node = api("GET", f"/v1/computes/{ready['id']}/nodes?include_terminal=false").json["items"][0]
    assert node["state"] == "ready"
    assert api("POST", f"/v1/computes/{ready['id']}/exec?command={code}&node=0").status == 200
    with api.http.stream("GET", f"/v1/events?compute={ready['id']}", timeout=READ_S) as response:
        raw = b""
        for piece in response.iter_bytes():
            raw += piece
            if raw.count(b"\n\n") > 8:
                break
    assert raw.isascii()
    for message in raw.split(b"\n\n")[1:-1]:
        assert [line.split(b": ")[0] for line in message.split(b"\n")] == [b"id", b"event", b"data"]


def test_a_reader_that_never_reads_holds_nobody_up(api: Any, daemon: Any, tools: Any) -> None:
    """It is left behind; writers and other readers do not notice."""
    after = newest(api, tools)
    with socket.create_connection(("127.0.0.1", daemon.port)) as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.sendall(f"GET /v1/events?after=0 HTTP/1.1\r\nHost: 127.0.0.1:{daemon.port}\r\n\r\n".encode())
        compute = api.create(tools.idle_spec())
        begun = time.monotonic()
        with follow(api, f"?compute={compute['id']}", Last_Event_ID=str(after)) as reader:
            for high in range(1, 101):
                nodes = {"desired": 0, "min": 0, "max": high}
                answer = api("PATCH", f"/v1/computes/{compute['id']}", {"nodes": nodes}, if_match="*")
                assert answer.status == 200
            assert len(reader.take(101)) == 101
        assert time.monotonic() - begun < READ_S
        api.delete(compute["id"])


def test_readers_that_leave_are_forgotten(api: Any, daemon: Any) -> None:
    """Many short readers leave no connection behind on our side."""

    def connections() -> int:
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
        ours = f"0100007F:{daemon.port:04X}"
        return sum(line.split()[1] == ours and line.split()[3] == "08" for line in lines)

    for _ in range(50):
        with follow(api, "?after=0"):
            pass
    deadline = time.monotonic() + READ_S
    while connections() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert connections() == 0


def test_what_is_no_longer_kept_is_refused_and_told_where_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tools: Any
) -> None:
    monkeypatch.setenv("SKY_EVENTS_KEPT_SECONDS", "1")
    daemon = RunningDaemon(tmp_path, free_port())
    daemon.start()
    try:
        with httpx2.Client(base_url=daemon.url, timeout=READ_S, trust_env=False) as http:
            for _ in range(2):
                assert http.post("/v1/computes", json={"spec": tools.idle_spec()}).status_code == 201
            path = "/v1/events?follow=false&after="
            expired = tools.until(
                lambda: one if (one := http.get(f"{path}0")).status_code == 410 else None,
                "nothing is dropped",
            )
            told = expired.json()
            assert (told["code"], told["details"]["after"]) == ("cursor_expired", 0)
            assert told["details"]["oldest"] >= 1
    finally:
        daemon.stop()
