"""Commands, files, ports and shells of nodes, through plain HTTP, on real nodes.

Decides: that the bytes are the same on both sides, that several nodes are served at once, and that a client
that leaves takes its command with it. Never: reaches a node by another way.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.ports import free_port

from sky.api.channels import Channels
from sky.domain.errors import NotFound

BYTES = "application/octet-stream"
READ_S = 60.0


def run(api: Any, compute: dict[str, Any], command: str, node: str = "all") -> dict[str, Any]:
    answer = api.http.post(
        f"/v1/computes/{compute['id']}/exec", params={"command": command, "node": node}, timeout=READ_S
    )
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_a_command_runs_on_all_nodes_or_one(api: Any, ready: dict[str, Any]) -> None:
    found = run(api, ready, "echo out; echo err >&2; exit 3")
    assert len(found) == 2
    for result in found.values():
        assert result == {"exit_code": 3, "stdout": "out\n", "stderr": "err\n"}
    nodes = api("GET", f"/v1/computes/{ready['id']}/nodes?include_terminal=false").json["items"]
    assert list(run(api, ready, "true", "1")) == [nodes[1]["id"]]
    assert list(run(api, ready, "true", nodes[0]["id"])) == [nodes[0]["id"]]
    assert next(iter(run(api, ready, "no-such-command", "0").values()))["exit_code"] == 127


def test_what_a_compute_costs_is_the_sum_of_its_machines_and_is_told(
    api: Any, tools: Any, fresh_name: str
) -> None:
    dear = {"name": fresh_name, "kind": "local", "config": {"price_per_hour_usd": 3600.0}}
    provider = api("POST", "/v1/providers", dear).json
    compute = api.create({"specs": [{"provider": {"kind": fresh_name}, "cpus": 1}], "nodes": {"desired": 2}})
    path = f"/v1/computes/{compute['id']}"

    def status() -> dict[str, Any]:
        return api("GET", path).json["status"]

    try:
        tools.until(lambda: status()["state"] == "ready", "ready")
        nodes = api("GET", f"{path}/nodes").json["items"]
        before = status()
        assert before["price_per_hour"] == sum(node["price_per_hour"] for node in nodes) > 0
        assert tools.until(lambda: (now := status()["cost"]) > before["cost"] and now, "a higher cost")
        query = f"/v1/events?compute={compute['id']}&types=compute.cost"
        with api.http.stream("GET", query, timeout=READ_S) as events:
            told = next(line for line in events.iter_lines() if line.startswith("data: "))
        event = json.loads(told.removeprefix("data: "))
        assert (event["type"], event["compute"], event["nodes"]) == ("compute.cost", compute["id"], 2)
        assert before["cost"] < event["cost"] <= status()["cost"]
        recorded = api("GET", f"{query}&follow=false").content
        assert b"data: " not in recorded, "it is told, and not recorded"
    finally:
        api.delete(compute["id"])
        tools.until(lambda: status()["state"] == "deleted", "its end")
        assert status()["price_per_hour"] == 0
        api("DELETE", f"/v1/providers/{provider['id']}", if_match="*")


@pytest.mark.parametrize("node", ["7", "nod_nobody", "first"])
def test_a_node_that_is_not_there_is_not_found(api: Any, ready: dict[str, Any], node: str) -> None:
    api("POST", f"/v1/computes/{ready['id']}/exec?command=true&node={node}").error(404)


def test_a_compute_without_nodes_is_not_connected(api: Any, idle: dict[str, Any]) -> None:
    error = api("POST", f"/v1/computes/{idle['id']}/exec?command=true").error(409, "compute_not_connected")
    assert error["retryable"] is True
    api("POST", f"/v1/computes/{idle['id']}/exec").error(400)


def test_endless_output_is_cut_and_said_to_be(api: Any, ready: dict[str, Any]) -> None:
    result = next(iter(run(api, ready, "head -c 12000000 /dev/zero | tr '\\0' x", "0").values()))
    assert result["exit_code"] == 0
    kept = result["stdout"].rstrip("\n").partition("\n")[0]
    assert len(kept) == 10 * 1024 * 1024
    assert f"{12_000_000 - len(kept)} bytes more were left out" in result["stdout"]


def test_a_client_that_leaves_takes_its_command_with_it(
    api: Any, daemon: Any, ready: dict[str, Any], tools: Any, tmp_path: Path
) -> None:
    mark = tmp_path / "pid"
    command = f"echo $$ > {mark}; sleep 300".replace(" ", "%20").replace(";", "%3B").replace("$", "%24")
    with socket.create_connection(("127.0.0.1", daemon.port)) as client:
        line = f"POST /v1/computes/{ready['id']}/exec?command={command}&node=0 HTTP/1.1"
        client.sendall(f"{line}\r\nHost: 127.0.0.1:{daemon.port}\r\nContent-Length: 0\r\n\r\n".encode())
        tools.until(lambda: mark.exists() and mark.read_text().strip(), "the command began")
    pid = int(mark.read_text())
    tools.until(lambda: not Path(f"/proc/{pid}").exists(), "the command was stopped")


def test_a_node_tells_how_it_is(api: Any, ready: dict[str, Any], tools: Any) -> None:
    nodes = f"/v1/computes/{ready['id']}/nodes?include_terminal=false"

    def told() -> bool:
        return all("cpu_percent" in node["metrics"] for node in api("GET", nodes).json["items"])

    tools.until(told, "every node has told its gauges")
    first = api("GET", nodes).json["items"][0]
    gauges = api("GET", f"/v1/computes/{ready['id']}/nodes/{first['id']}").json["metrics"]
    assert 0 < gauges["memory_used_bytes"] < gauges["memory_total_bytes"]
    assert 0 <= gauges["cpu_percent"] <= 100


# ── files ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [0, 10, 5_000_000])
def test_a_file_goes_to_every_node_and_comes_back(api: Any, ready: dict[str, Any], size: int) -> None:
    content = os.urandom(size)
    files = f"/v1/computes/{ready['id']}/files"
    sent = api("PUT", f"{files}?path=data/f{size}.bin", content, content_type=BYTES)
    assert sent.status == 200
    assert list(sent.json.values()) == [None, None]
    for rank in ("0", "1"):
        back = api("GET", f"{files}/content?path=data/f{size}.bin&node={rank}")
        assert (back.status, back.content) == (200, content)
    listed = api("GET", f"{files}?path=data&node=1").json
    assert f"f{size}.bin" in next(iter(listed.values()))["stdout"]
    removed = api("DELETE", f"{files}?path=data/f{size}.bin").json
    assert [result["exit_code"] for result in removed.values()] == [0, 0]
    api("GET", f"{files}/content?path=data/f{size}.bin").error(404)


def test_a_file_is_streamed_to_one_node(api: Any, ready: dict[str, Any], tools: Any) -> None:
    pieces = [os.urandom(100_000) for _ in range(30)]
    files = f"/v1/computes/{ready['id']}/files"
    sent = api.http.put(
        f"{files}?path=streamed&node=1", content=iter(pieces), headers={"content-type": BYTES}, timeout=READ_S
    )
    assert list(sent.json().values()) == [None]
    back = api("GET", f"{files}/content?path=streamed&node=1")
    assert tools.sha256(back.content) == tools.sha256(b"".join(pieces))
    api("GET", f"{files}/content?path=streamed&node=0").error(404)


def test_a_node_that_does_not_answer_does_not_keep_a_file_from_the_others(
    api: Any, ready: dict[str, Any]
) -> None:
    first, second = api("GET", f"/v1/computes/{ready['id']}/nodes?include_terminal=false").json["items"]
    os.kill(second["provider_binding"]["pid"], signal.SIGSTOP)
    try:
        answer = api.http.put(
            f"/v1/computes/{ready['id']}/files",
            params={"path": "all.bin"},
            content=b"x",
            headers={"content-type": BYTES},
            timeout=READ_S,
        )
    finally:
        os.kill(second["provider_binding"]["pid"], signal.SIGCONT)
    assert answer.status_code == 200, answer.content
    told = answer.json()
    assert told[first["id"]] is None
    assert "did not answer" in told[second["id"]]


@pytest.mark.parametrize("size", [0, 10, 20_000_000])
@pytest.mark.parametrize(("path", "said"), [(".", "is a folder"), ("in-the-way/under", "in-the-way")])
@pytest.mark.parametrize("node", ["0", "all"])
def test_a_node_that_does_not_take_a_file_says_why(
    api: Any, ready: dict[str, Any], size: int, path: str, said: str, node: str
) -> None:
    run(api, ready, "touch in-the-way")
    files = f"/v1/computes/{ready['id']}/files"
    answer = api.http.put(
        files,
        params={"path": path, "node": node},
        content=b"x" * size,
        headers={"Content-Type": BYTES},
        timeout=READ_S,
    )
    assert answer.status_code == 200, answer.content
    assert len(answer.json()) == (1 if node == "0" else 2)
    for why in answer.json().values():
        assert said in why


def test_a_folder_is_no_file(api: Any, ready: dict[str, Any]) -> None:
    run(api, ready, "mkdir -p afolder")
    error = api("GET", f"/v1/computes/{ready['id']}/files/content?path=afolder").error(400)
    assert error["details"]["field"] == "path"
    listed = api("GET", f"/v1/computes/{ready['id']}/files?path=nothing-here").json
    assert next(iter(listed.values()))["exit_code"] != 0


# ── connections ─────────────────────────────────────────────────────────────────────────────────


class Both:
    """Both halves of a connection: a request that sends, and one that receives."""

    def __init__(self, api: Any, compute: dict[str, Any], kind: str, cid: str, query: str) -> None:
        self.pieces: list[bytes] = []
        self.wake = threading.Condition()
        self.closed = False
        self.received = b""
        self.statuses: dict[str, int] = {}
        self.broken: Exception | None = None
        base = f"/v1/computes/{compute['id']}/{kind}"

        def send() -> None:
            answer = api.http.post(
                f"{base}/up?cid={cid}{query}",
                content=self._body(),
                headers={"content-type": BYTES},
                timeout=2 * READ_S,
            )
            self.statuses["up"] = answer.status_code

        def receive() -> None:
            with api.http.stream("GET", f"{base}/down?cid={cid}", timeout=2 * READ_S) as answer:
                self.statuses["down"] = answer.status_code
                try:
                    for piece in answer.iter_raw():
                        with self.wake:
                            self.received += piece
                            self.wake.notify_all()
                except httpx2.TransportError as error:
                    self.broken = error

        self.threads = [threading.Thread(target=work, daemon=True) for work in (send, receive)]
        for thread in self.threads:
            thread.start()

    def _body(self) -> Iterator[bytes]:
        while True:
            with self.wake:
                self.wake.wait_for(lambda: self.pieces or self.closed, READ_S)
                pieces, self.pieces = self.pieces, []
                over = self.closed
            yield from pieces
            if over:
                return

    def send(self, content: bytes) -> None:
        with self.wake:
            self.pieces.append(content)
            self.wake.notify_all()

    def close(self) -> None:
        with self.wake:
            self.closed = True
            self.wake.notify_all()

    def wait_for(self, content: bytes) -> None:
        with self.wake:
            assert self.wake.wait_for(lambda: content in self.received, READ_S), self.received[-500:]

    def wait(self) -> dict[str, int]:
        for thread in self.threads:
            thread.join(READ_S)
            assert not thread.is_alive()
        return self.statuses


@pytest.fixture
def service() -> Iterator[int]:
    """A port of this computer, and so of its nodes, that answers each line and then says goodbye."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, connection.makefile("rwb") as file:
                for line in file:
                    file.write(b"heard " + line)
                    file.flush()
                file.write(b"goodbye\n")

    threading.Thread(target=serve, daemon=True).start()
    yield server.getsockname()[1]
    server.close()


def test_a_port_is_forwarded_and_each_direction_ends_by_itself(
    api: Any, ready: dict[str, Any], service: int, fresh_name: str
) -> None:
    both = Both(api, ready, "forward", fresh_name, f"&port={service}")
    both.send(b"one\n")
    both.wait_for(b"heard one\n")
    both.send(b"two\n")
    both.wait_for(b"heard two\n")
    both.close()
    assert both.wait() == {"up": 200, "down": 200}
    assert both.received == b"heard one\nheard two\ngoodbye\n"


def test_much_goes_through_both_ways(api: Any, ready: dict[str, Any], service: int, fresh_name: str) -> None:
    both = Both(api, ready, "forward", fresh_name, f"&port={service}")
    line = b"x" * 10_000 + b"\n"
    for _ in range(300):
        both.send(line)
    both.close()
    both.wait()
    assert both.received == (b"heard " + line) * 300 + b"goodbye\n"


def test_a_port_that_nobody_serves_is_said_to_be(api: Any, ready: dict[str, Any], fresh_name: str) -> None:
    port = free_port()
    both = Both(api, ready, "forward", fresh_name, f"&port={port}")
    both.threads[1].join(READ_S)
    both.close()
    assert both.wait() == {"up": 409, "down": 409}
    assert f"nothing answers on port {port}" in both.received.decode()


def test_what_a_service_breaks_off_is_cut_off(api: Any, ready: dict[str, Any], fresh_name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        both = Both(api, ready, "forward", fresh_name, f"&port={server.getsockname()[1]}")
        connection, _ = server.accept()
        connection.sendall(b"some of it")
        both.wait_for(b"some of it")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    both.threads[1].join(READ_S)
    both.close()
    assert both.wait() == {"up": 409, "down": 200}
    assert isinstance(both.broken, httpx2.RemoteProtocolError)


def test_a_shell_tells_how_it_ended(api: Any, ready: dict[str, Any], fresh_name: str, tools: Any) -> None:
    told = f"/v1/computes/{ready['id']}/shell/exit?cid={fresh_name}"
    api("GET", told).error(404)
    both = Both(api, ready, "shell", fresh_name, "&command=echo%20here;read%20code;exit%20$code")
    both.wait_for(b"here")
    assert api("GET", told).json == {"state": "open", "exit_code": None, "error": None}
    both.send(b"41\n")
    both.threads[1].join(READ_S)
    assert api("GET", told).json == {"state": "ended", "exit_code": 41, "error": None}
    both.close()
    assert both.wait() == {"up": 200, "down": 200}


def test_a_shell_whose_node_dies_is_lost(api: Any, tools: Any, fresh_name: str) -> None:
    compute = api.create(tools.local_spec(nodes={"desired": 1}))
    nodes = f"/v1/computes/{compute['id']}/nodes?include_terminal=false"
    tools.until(lambda: [n["state"] for n in api("GET", nodes).json["items"]] == ["ready"], "a ready node")
    both = Both(api, compute, "shell", fresh_name, "")
    both.send(b"echo he''re\n")
    both.wait_for(b"here")
    os.kill(api("GET", nodes).json["items"][0]["provider_binding"]["pid"], signal.SIGKILL)
    both.threads[1].join(READ_S)
    told = api("GET", f"/v1/computes/{compute['id']}/shell/exit?cid={fresh_name}").json
    assert (told["state"], told["exit_code"]) == ("lost", None)
    both.close()
    assert both.wait() == {"up": 409, "down": 200}
    assert isinstance(both.broken, httpx2.RemoteProtocolError)
    api.delete(compute["id"])


def test_a_shell_is_a_terminal(api: Any, ready: dict[str, Any], fresh_name: str) -> None:
    both = Both(api, ready, "shell", fresh_name, "&columns=77&rows=11&term=vt100")
    both.send(b"stty size; echo $TERM\n")
    both.wait_for(b"11 77")
    both.wait_for(b"vt100")
    answer = api("POST", f"/v1/computes/{ready['id']}/shell/resize?cid={fresh_name}&columns=99&rows=22")
    assert answer.status == 204
    both.send(b"stty size\n")
    both.wait_for(b"22 99")
    both.send(b"exit\n")
    both.threads[1].join(READ_S)
    both.close()
    assert both.wait() == {"up": 200, "down": 200}
    api("POST", f"/v1/computes/{ready['id']}/shell/resize?cid={fresh_name}&columns=9&rows=2").error(404)


def test_a_connection_has_one_of_each_half(api: Any, ready: dict[str, Any], fresh_name: str) -> None:
    both = Both(api, ready, "shell", fresh_name, "&command=cat")
    both.send(b"there\n")
    both.wait_for(b"there")
    api("GET", f"/v1/computes/{ready['id']}/shell/down?cid={fresh_name}").error(400)
    api("POST", f"/v1/computes/{ready['id']}/shell/up?cid={fresh_name}", b"").error(400)
    both.close()
    both.wait()


@pytest.mark.parametrize("cid", ["", "x" * 129, "a%20b", "a/b"])
def test_a_cid_is_a_short_word(api: Any, ready: dict[str, Any], cid: str) -> None:
    api("GET", f"/v1/computes/{ready['id']}/shell/down?cid={cid}").error(400)


@pytest.mark.parametrize("query", ["port=0", "port=65536", "port=http", "", "port=80&route=random"])
def test_a_forward_needs_a_port(api: Any, ready: dict[str, Any], query: str) -> None:
    api("POST", f"/v1/computes/{ready['id']}/forward/up?cid=x&{query}", b"").error(400)


async def test_a_half_that_stays_alone_is_told_so() -> None:
    channels = Channels(pair_s=0.05)
    with pytest.raises(NotFound, match="no shell/up with cid 'c1' came within"):
        await channels.down(("shell", "cmp_x", "c1"))
    with pytest.raises(NotFound, match="no shell/down with cid 'c1' came within"):
        await channels.up(("shell", "cmp_x", "c1"), never, nothing())
    with pytest.raises(NotFound):
        await channels.down(("shell", "cmp_x", "c1"))


async def never() -> Any:
    raise AssertionError("a node was called although nobody reads what it says")


async def nothing() -> AsyncIterator[bytes]:
    return
    yield b""
