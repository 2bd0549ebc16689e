"""Clusters of local nodes that stop and start: what their scripts have written is there again, and nothing is
left of one that was taken down."""

from __future__ import annotations

import os
import re
import secrets
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event

import httpx2
import pytest
from tests.conftest import RunningDaemon
from tests.requests.test_requests import DEADLINE_S, Api


@pytest.fixture
def api(daemon: RunningDaemon) -> Api:
    return Api(daemon.url)


@pytest.fixture
def cluster(api: Api) -> Iterator[str]:
    name = f"s-{secrets.token_hex(4)}"
    yield name
    record = api.get(api.ask("down", cluster_name=name)["request_id"])
    assert record["status"] == "SUCCEEDED" or record["error"]["type"] == "ClusterDoesNotExist"


def disks(daemon: RunningDaemon) -> list[Path]:
    return sorted((daemon.home / "disks").glob("*"))


def run(api: Api, cluster: str, script: str, **more: object) -> list[str]:
    """What a script prints on a cluster, for which it must end well."""
    job_id = api.do("exec", task={"run": script, **more}, cluster_name=cluster)["job_id"]
    lines, end = api.logs(cluster, job_id)
    assert end["end"] == "SUCCEEDED", lines
    return [re.sub(r"^\([^)]*\) ", "", line) for line in lines]


def until_state(api: Api, cluster: str, *states: str) -> str:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        [record] = api.do("status", cluster_names=[cluster])
        if record["status"] in states:
            return record["status"]
        assert time.monotonic() < deadline, record


def test_what_scripts_wrote_outlives_a_stop(api: Api, cluster: str, daemon: RunningDaemon) -> None:
    before = {*disks(daemon)}  # of those that other tests have left, some may be going still
    task = {
        "num_nodes": 2,
        "setup": "echo ready > ~/ready",
        "run": "echo $SKY_NODE_RANK > ~/mine; cat given > here",
        "files": [{"target": ".", "sha256": api.upload(given="from home")}],
    }
    api.do("launch", task=task, cluster_name=cluster)
    assert api.logs(cluster)[1]["end"] == "SUCCEEDED"
    job = api.do("exec", task={"run": "sleep 300", "num_nodes": 2}, cluster_name=cluster)
    assert job["job_id"] == 2
    api.do("stop", cluster_name=cluster)
    [record] = api.do("status", cluster_names=[cluster])
    assert (record["status"], record["nodes_ready"]) == ("STOPPED", 0)
    queue = {job["job_id"]: job for job in api.do("queue", cluster_name=cluster)}
    assert [queue[number]["status"] for number in (1, 2)] == ["SUCCEEDED", "CANCELLED"]
    assert "stopped" in queue[2]["error"]
    api.do("stop", cluster_name=cluster)
    error = api.fails("exec", task={"run": "true"}, cluster_name=cluster)
    assert error["type"] == "ClusterNotUpError"
    assert f"sky start {cluster}" in error["message"]
    handle = api.do("start", cluster_name=cluster)
    assert len(handle["nodes"]) == 2
    api.do("start", cluster_name=cluster)
    there = run(api, cluster, "cat ~/mine ~/ready here", num_nodes=2)
    assert sorted(there) == sorted(["0", "1", "ready", "ready", "from home", "from home"])
    assert [job["job_id"] for job in api.do("queue", cluster_name=cluster)] == [3, 2, 1]
    assert len({*disks(daemon)} - before) == 2
    api.do("stop", cluster_name=cluster)
    api.do("launch", task={"run": "cat ~/mine", "setup": "test -f ~/ready"}, cluster_name=cluster)
    lines, end = api.logs(cluster)
    assert (lines, end["end"]) == (["(task) 0"], "SUCCEEDED")
    api.do("stop", cluster_name=cluster)
    api.do("down", cluster_name=cluster)
    assert {*disks(daemon)} - before == set(), "a cluster that is down has no disks"


def test_a_node_that_dies_comes_back_with_its_disk(api: Api, cluster: str, daemon: RunningDaemon) -> None:
    api.do("launch", task={"num_nodes": 2, "run": "echo $SKY_NODE_RANK > ~/mine"}, cluster_name=cluster)
    assert api.logs(cluster)[1]["end"] == "SUCCEEDED"
    compute = api.do("status", cluster_names=[cluster])[0]["handle"]["compute_id"]
    nodes = api.http.get(f"/v1/computes/{compute}/nodes").json()["items"]
    [victim] = [node for node in nodes if node["rank"] == 1]
    identity = (daemon.home / "nodes" / victim["id"] / "agent.pid").read_text()
    os.kill(int(re.search(r'"pid":(\d+)', identity)[1]), signal.SIGKILL)
    assert until_state(api, cluster, "INIT") == "INIT"
    api.do("start", cluster_name=cluster)
    assert sorted(run(api, cluster, "cat ~/mine", num_nodes=2)) == ["0", "1"]


def test_an_idle_cluster_stops_by_itself_and_a_launch_starts_it(api: Api, cluster: str) -> None:
    api.do("launch", task={"run": "echo kept > ~/file"}, cluster_name=cluster)
    assert api.logs(cluster)[1]["end"] == "SUCCEEDED"
    api.do("autostop", cluster_name=cluster, idle_minutes=0)
    assert until_state(api, cluster, "STOPPED") == "STOPPED"
    api.do("launch", task={"run": "cat ~/file"}, cluster_name=cluster, idle_minutes_to_autostop=-1)
    assert api.logs(cluster)[0] == ["(task) kept"]
    [record] = api.do("status", cluster_names=[cluster])
    assert (record["status"], record["autostop"]) == ("UP", -1)


def test_an_open_shell_keeps_a_cluster_from_being_idle(api: Api, cluster: str) -> None:
    handle = api.do("launch", task={"run": "true"}, cluster_name=cluster)["handle"]
    path, closed = f"/v1/computes/{handle['compute_id']}/shell", Event()

    up = {"cid": cluster, "command": "echo $((40 + 2)); read line"}

    def typed() -> Iterator[bytes]:
        closed.wait(DEADLINE_S)
        yield b"enough\n"

    with ThreadPoolExecutor(1) as pool:
        typing = pool.submit(api.http.post, f"{path}/up", params=up, content=typed())
        with api.http.stream("GET", f"{path}/down", params={"cid": cluster}) as shown:
            seen = b""
            # Its end lets the cluster stop at once, which may come before its last word.
            with suppress(httpx2.RemoteProtocolError):
                for piece in shown.iter_raw():
                    seen += piece
                    if b"42" in seen and not closed.is_set():
                        api.do("autostop", cluster_name=cluster, idle_minutes=0)
                        run(api, cluster, "true")
                        assert api.do("status", cluster_names=[cluster])[0]["status"] == "UP"
                        closed.set()
        assert typing.result(DEADLINE_S).status_code == 200
    assert closed.is_set(), seen
    assert until_state(api, cluster, "STOPPED") == "STOPPED"


def test_a_stop_and_a_start_survive_a_daemon_that_dies(own_daemon: RunningDaemon) -> None:
    api = Api(own_daemon.url)
    api.do("launch", task={"run": "echo kept > ~/file"}, cluster_name="dies")
    assert api.logs("dies")[1]["end"] == "SUCCEEDED"
    with ThreadPoolExecutor(1) as pool:
        for name in ("stop", "start"):
            request_id = api.ask(name, cluster_name="dies")["request_id"]
            waiting = pool.submit(api.get, request_id)
            own_daemon.kill()
            own_daemon.start()
            record = waiting.result(DEADLINE_S)
            assert record["status"] == "SUCCEEDED", record
    assert run(api, "dies", "cat ~/file") == ["kept"]
    api.do("down", cluster_name="dies")
    assert disks(own_daemon) == []
    assert own_daemon.agents() == []
