"""Requests that meet: two on one name, one whose answer is lost, an end at every moment, ids that begin
alike, and more than there are machines for."""

from __future__ import annotations

import io
import json
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from tests.conftest import RunningDaemon, free_port
from tests.requests.test_requests import Api

import sky
from sky import exceptions

pytestmark = pytest.mark.real

DEADLINE_S = 60.0
MANY = 501
"""More than one look at those under way takes."""
LAUNCH = """
import sys, sky
sky.api_info(), print("there", flush=True), sys.stdin.readline()
print(sky.get(sky.launch(sky.Task(run="echo from " + sys.argv[2]), cluster_name=sys.argv[1]))[0])
"""


@pytest.fixture
def api(daemon: RunningDaemon) -> Api:
    return Api(daemon.url)


@pytest.fixture(autouse=True)
def _server(daemon: RunningDaemon, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SKYPILOT_API_SERVER_ENDPOINT", daemon.url)


@pytest.fixture
def cluster(api: Api) -> Iterator[str]:
    """A name for a cluster, which is taken down afterwards."""
    name = f"o-{secrets.token_hex(4)}"
    yield name
    record = api.get(api.ask("down", cluster_name=name)["request_id"])
    assert record["status"] == "SUCCEEDED" or record["error"]["type"] == "ClusterDoesNotExist"


# ── launches ────────────────────────────────────────────────────────────────────────────────────


def test_two_programs_that_launch_on_one_name_have_one_cluster_and_a_job_each(cluster: str) -> None:
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", LAUNCH, cluster, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    for program in programs:
        assert program.stdout is not None
        assert program.stdout.readline() == "there\n"
    for program in programs:
        assert program.stdin is not None
        program.stdin.write("now\n")
        program.stdin.flush()
    outs = [program.communicate(timeout=DEADLINE_S) for program in programs]
    assert sorted(out for out, _ in outs) == ["1\n", "2\n"], outs
    [record] = sky.get(sky.status([cluster]))
    assert (record.nodes, record["nodes_ready"]) == (1, 1)
    said = io.StringIO()
    assert [sky.tail_logs(cluster, number, True, output_stream=said) for number in (1, 2)] == [0, 0]
    assert sorted(said.getvalue().splitlines()) == ["(task) from 0", "(task) from 1"]


class LosesAnswers:
    """A way to a daemon on which the answers to some of the first requests get lost."""

    def __init__(self, port: int, lost: int) -> None:
        self._port = port
        self._lost = lost
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self.answers: list[bytes] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            with client, socket.create_connection(("127.0.0.1", self._port)) as there:
                self._exchange(client, there)

    def _exchange(self, client: socket.socket, there: socket.socket) -> None:
        """One request, and its answer unless that gets lost; the connection ends behind it."""
        head, body = self._message(client)
        lines = [one for one in head.split(b"\r\n") if one and not one.lower().startswith(b"host:")]
        lines += [b"Host: 127.0.0.1:%d" % self._port, b"Connection: close"]
        there.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + body)
        answer = b"".join(iter(lambda: there.recv(65536), b""))
        self.answers.append(answer)
        if len(self.answers) > self._lost:
            client.sendall(answer)

    def _message(self, client: socket.socket) -> tuple[bytes, bytes]:
        got = b""
        while b"\r\n\r\n" not in got and (piece := client.recv(65536)):
            got += piece
        head, _, body = got.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next((int(one.split(b":")[1]) for one in lines if one.startswith(b"content-length:")), 0)
        while len(body) < length and (piece := client.recv(65536)):
            body += piece
        return head + b"\r\n\r\n", body

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(DEADLINE_S)


def test_a_launch_whose_answer_is_lost_twice_is_one_launch(
    daemon: RunningDaemon, api: Api, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(LosesAnswers(daemon.port, 2)) as way:
        monkeypatch.setenv("SKYPILOT_API_SERVER_ENDPOINT", way.url)
        request_id = sky.launch(sky.Task(run="echo once"), cluster_name=cluster)
        told = [json.loads(one.partition(b"\r\n\r\n")[2])["request_id"] for one in way.answers]
        assert told == [request_id] * 3, "every answer was about the same request"
        assert sky.get(request_id)[0] == 1
    shown = api.http.get("/api/status", params={"cluster_name": cluster, "all_status": True}).json()
    assert [one["request_id"] for one in shown["items"]] == [request_id]
    assert len(api.do("queue", cluster_name=cluster)) == 1


# ── ends at every moment ────────────────────────────────────────────────────────────────────────


def compute_of(api: Api, cluster: str) -> str:
    """The compute of a cluster that is being launched."""
    return api.do("status", cluster_names=[cluster])[0]["handle"]["compute_id"]


def nodes_of(api: Api, compute: str) -> list[str]:
    """The states of a compute's nodes."""
    return [one["state"] for one in api.http.get(f"/v1/computes/{compute}/nodes").json()["items"]]


MOMENTS: dict[str, Callable[[Api, str], bool]] = {
    "as soon as it is acknowledged": lambda api, compute: True,
    "when a machine is wanted": lambda api, compute: bool(nodes_of(api, compute)),
    "when a machine is bought": lambda api, compute: bool(
        {"connecting", "ready"} & {*nodes_of(api, compute)}
    ),
    "when a machine has called": lambda api, compute: "ready" in nodes_of(api, compute),
}


@pytest.mark.parametrize("how", ["cancelled", "taken down"])
def test_a_launch_that_is_ended_leaves_no_machine_whenever_that_is(
    api: Api, daemon: RunningDaemon, how: str
) -> None:
    before = set(daemon.agents())
    task = {"setup": "sleep 600", "run": "true"}
    names: list[str] = []
    up: set[str] = set()
    for reached in MOMENTS.values():
        names.append(f"ends-{secrets.token_hex(4)}")
        request_id = api.ask("launch", task=task, cluster_name=names[-1])["request_id"]
        compute, deadline = compute_of(api, names[-1]), time.monotonic() + DEADLINE_S
        while not reached(api, compute):
            assert time.monotonic() < deadline
        if how == "cancelled":
            ended = api.http.post("/api/cancel", json={"request_ids": [request_id]}).json()
            assert ended["request_ids"] == [request_id]
        else:
            api.do("down", cluster_name=names[-1])
        kind = "RequestCancelled" if how == "cancelled" else "ClusterDoesNotExist"
        assert api.get(request_id)["error"]["type"] == kind
        if "ready" in nodes_of(api, compute):  # on a slow computer also of those that were ended before
            up.add(names[-1])
        again = api.http.post("/api/cancel", json={"request_ids": [request_id]}).json()
        assert again["request_ids"] == [], "the end of a request is final"
    left = [one["name"] for one in api.do("status", cluster_names=names)]
    assert set(left) <= up, "only a cluster that was up by then is one"
    deadline = time.monotonic() + DEADLINE_S
    for name in left:  # its job is told to end with the request, and has ended once its machine says so
        while (jobs := [job["status"] for job in api.do("queue", cluster_name=name)]) != ["CANCELLED"]:
            assert time.monotonic() < deadline, jobs
        api.do("down", cluster_name=name)
    deadline = time.monotonic() + DEADLINE_S
    while set(daemon.agents()) - before:
        assert time.monotonic() < deadline, "a machine is left"


# ── ids ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_beginning_of_an_id_is_enough_unless_another_one_begins_so_too() -> None:
    one, other = str(sky.status()), str(sky.status())
    alike = one[: next(place for place, pair in enumerate(zip(one, other, strict=True)) if len({*pair}) > 1)]
    assert len(alike) >= 4
    others = {record.request_id for record in sky.api_status(all_status=True)} - {one}
    assert other in others
    enough = next(one[:n] for n in range(1, len(one)) if not any(o.startswith(one[:n]) for o in others))
    assert enough.startswith(alike)
    assert sky.get(enough) == sky.get(one)
    assert [record.request_id for record in sky.api_status(enough)] == [one]
    for ask in (sky.get, sky.stream_and_get, sky.api_cancel):
        with pytest.raises(exceptions.RequestNotFound, match=f"several requests begin with '{alike}'"):
            ask(alike)
    found = {record.request_id for record in sky.api_status(alike)}
    assert found >= {one, other}


# ── many ────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon that knows a cloud with offers, and without a machine."""
    running = RunningDaemon(tmp_path_factory.mktemp("full"), free_port(), {"SKY_FAKE_PROVIDER": "1"})
    running.start()
    body = {"kind": "fake", "name": "full", "config": {"refuse": "no machine is left here"}}
    assert Api(running.url).http.post("/v1/providers", json=body).status_code == 201
    yield running
    running.stop()


def test_all_that_wait_for_machines_are_cancelled_at_once(full: RunningDaemon) -> None:
    api = Api(full.url)
    task = {"run": "true", "machines": [{"infra": "full"}]}

    def ask(number: int) -> str:
        return api.ask("launch", task=task, cluster_name=f"many-{number}", retry_until_up=True)["request_id"]

    with ThreadPoolExecutor(4) as pool:
        asked = list(pool.map(ask, range(MANY)))
    assert api.http.get("/api/get", params={"request_id": asked[0], "wait": 0}).json()["finished_at"] is None
    assert len(set(asked)) == MANY
    ended = api.http.post("/api/cancel", json={}).json()["request_ids"]
    assert sorted(ended) == sorted(asked)
    assert api.http.get("/api/status").json()["items"] == []
    assert api.do("status") == []
