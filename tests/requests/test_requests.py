"""Requests over HTTP: a cluster of local nodes from launch to down, with real scripts, and a daemon that
dies."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import secrets
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from tests.conftest import RunningDaemon

DEADLINE_S = 60.0


class Api:
    """Somebody who speaks plain HTTP to a daemon."""

    def __init__(self, url: str) -> None:
        self.http = httpx2.Client(base_url=url, timeout=DEADLINE_S, trust_env=False)

    def ask(self, name: str, key: str | None = None, **body: Any) -> dict[str, Any]:
        """Submit a request; its record."""
        headers = {} if key is None else {"idempotency-key": key}
        answer = self.http.post(f"/{name}", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert answer.headers["x-skypilot-request-id"] == told["request_id"]
        return told["record"]

    def get(self, request_id: str) -> dict[str, Any]:
        """A request's end, also when the daemon goes away meanwhile."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                answer = self.http.get("/api/get", params={"request_id": request_id, "wait": 5})
                if answer.status_code == 200 and answer.json()["finished_at"] is not None:
                    return answer.json()
            except httpx2.TransportError:
                time.sleep(0.1)  # real: the daemon is being started again
            assert time.monotonic() < deadline, request_id

    def do(self, name: str, **body: Any) -> Any:
        """Submit a request and have its result."""
        record = self.get(self.ask(name, **body)["request_id"])
        assert record["status"] == "SUCCEEDED", record
        return record["result"]

    def fails(self, name: str, **body: Any) -> dict[str, Any]:
        """Submit a request and have its error."""
        record = self.get(self.ask(name, **body)["request_id"])
        assert record["status"] == "FAILED", record
        return record["error"]

    def logs(self, cluster: str, job_id: int | None = None, **more: Any) -> tuple[list[str], dict[str, Any]]:
        """What a job printed to its end, and what its end says."""
        lines: list[str] = []
        with self.http.stream(
            "POST", "/logs", json={"cluster_name": cluster, "job_id": job_id, **more}
        ) as answer:
            assert answer.status_code == 200
            for line in answer.iter_lines():
                told = json.loads(line)
                if "end" in told:
                    return lines, told
                lines += told["text"].split("\n")
        raise AssertionError(lines)

    def upload(self, **files: str) -> str:
        """Files as an archive in the daemon; its name."""
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w") as archive:
            for name, text in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
        content = gzip.compress(raw.getvalue(), mtime=0)
        sha256 = hashlib.sha256(content).hexdigest()
        answer = self.http.put(
            f"/v1/blobs/{sha256}", content=content, headers={"content-type": "application/octet-stream"}
        )
        assert answer.status_code in (200, 201), answer.text
        return sha256


@pytest.fixture
def api(daemon: RunningDaemon) -> Api:
    return Api(daemon.url)


@pytest.fixture
def cluster(api: Api) -> Iterator[str]:
    """A name for a cluster, which is taken down afterwards."""
    name = f"c-{secrets.token_hex(4)}"
    yield name
    record = api.get(api.ask("down", cluster_name=name)["request_id"])
    assert record["status"] == "SUCCEEDED" or record["error"]["type"] == "ClusterDoesNotExist"


def test_a_task_runs_on_two_nodes_with_its_files_setup_and_environment(api: Api, cluster: str) -> None:
    task = {
        "name": "greet",
        "num_nodes": 2,
        "envs": {"WHO": "world"},
        "secrets": {"TOKEN": "s3cr3t-value"},
        "setup": "echo set up $SKYPILOT_NODE_RANK; cat ~/data/words > ready",
        "run": 'echo "hello $WHO from $SKYPILOT_NODE_RANK of $SKY_NUM_NODES: $(cat ready) $(cat script.txt)"',
        "files": [
            {"target": ".", "sha256": api.upload(**{"script.txt": "script"})},
            {"target": "~/data", "sha256": api.upload(words="words")},
        ],
    }
    result = api.do("launch", task=task, cluster_name=cluster)
    assert result["job_id"] == 1
    assert result["handle"]["cluster_name"] == cluster
    lines, end = api.logs(cluster)
    assert (end["end"], end["exit_codes"]) == ("SUCCEEDED", [0, 0])
    assert sorted(line for line in lines if line.startswith("(greet")) == [
        f"(greet, rank={rank}) hello world from {rank} of 2: words script" for rank in range(2)
    ]
    assert sorted(line for line in lines if line.startswith("(setup")) == [
        f"(setup, rank={rank}) set up {rank}" for rank in range(2)
    ]
    [record] = api.do("status", cluster_names=[cluster])
    assert (record["status"], record["nodes"], record["cloud"]) == ("UP", 2, "local")
    assert "s3cr3t-value" not in json.dumps(record)
    [job] = api.do("queue", cluster_name=cluster)
    assert (job["job_id"], job["job_name"], job["status"]) == (1, "greet", "SUCCEEDED")
    again = api.do("exec", task={"run": "exit 5"}, cluster_name=cluster)
    assert again["job_id"] == 2
    _, end = api.logs(cluster, 2)
    assert (end["end"], end["exit_codes"]) == ("FAILED", [5])
    assert api.do("job_status", cluster_name=cluster, job_ids=[1, 2, 9]) == {
        "1": "SUCCEEDED",
        "2": "FAILED",
        "9": None,
    }


def test_a_running_job_is_cancelled_and_leaves_nothing(api: Api, cluster: str) -> None:
    api.do(
        "launch",
        task={"run": "trap 'echo bye; exit 1' TERM; echo up; sleep 600 & wait"},
        cluster_name=cluster,
    )
    deadline = time.monotonic() + DEADLINE_S
    while "(task) up" not in api.logs(cluster, follow=False)[0]:
        assert time.monotonic() < deadline
    assert api.do("cancel", cluster_name=cluster) == [1]
    lines, end = api.logs(cluster)
    assert end["end"] == "CANCELLED"
    assert "(task) bye" in lines


def test_everything_survives_a_daemon_that_dies(own_daemon: RunningDaemon) -> None:
    api = Api(own_daemon.url)
    with ThreadPoolExecutor(8) as pool:
        asked = [
            api.ask("launch", key=f"l{n}", task={"run": f"sleep 1; echo done {n}"}, cluster_name=f"dies-{n}")
            for n in range(3)
        ]
        waiting = [pool.submit(api.get, record["request_id"]) for record in asked]
        own_daemon.kill()
        own_daemon.start()
        repeated = api.ask("launch", key="l0", task={"run": "sleep 1; echo done 0"}, cluster_name="dies-0")
        assert repeated["request_id"] == asked[0]["request_id"]
        records = [one.result(DEADLINE_S) for one in waiting]
    assert [record["status"] for record in records] == ["SUCCEEDED"] * 3
    for n in range(3):
        lines, end = api.logs(f"dies-{n}")
        assert (lines, end["end"]) == ([f"(task) done {n}"], "SUCCEEDED")
    assert len(api.do("status")) == 3
    for n in range(3):
        api.do("down", cluster_name=f"dies-{n}")
    assert api.do("status") == []


def test_what_is_not_there_is_told_by_name_and_status_of_nothing_is_empty(api: Api) -> None:
    for name in ("down", "queue", "autostop", "exec"):
        more = {"autostop": {"idle_minutes": 5, "down": True}, "exec": {"task": {"run": "true"}}}.get(
            name, {}
        )
        error = api.fails(name, cluster_name="nosuch", **more)
        assert error["type"] == "ClusterDoesNotExist"
        assert "nosuch" in error["message"]
    assert api.do("status", cluster_names=["nosuch"]) == []
    for path in (
        "/api/get?request_id=nosuch",
        "/api/stream?request_id=nosuch",
        "/api/status?request_ids=nosuch",
    ):
        answer = api.http.get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    answer = api.http.post("/api/cancel", json={"request_ids": ["nosuch"]})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("launch", {"task": {"run": "x", "rnu": "y"}}, "task.rnu"),
        ("launch", {"task": {"num_nodes": 0}}, "task.num_nodes"),
        ("launch", {"task": {"envs": {"1x": "y"}}}, "task.envs..."),
        ("launch", {}, "task"),
        ("status", {"everything": True}, "everything"),
        ("down", {"cluster_name": 5}, "cluster_name"),
    ],
)
def test_a_body_that_does_not_fit_is_refused_by_field(api: Api, name: str, body: Any, field: str) -> None:
    answer = api.http.post(f"/{name}", json=body)
    assert answer.status_code == 400
    assert answer.json()["details"]["field"].startswith(field.removesuffix("...")), answer.json()


def test_versions_are_numbers_and_not_too_old(api: Api) -> None:
    told = api.http.get("/api/health").json()
    assert told["status"] == "healthy"
    assert int(told["min_compatible_api_version"]) <= int(told["api_version"])
    for version, status in (("x", 400), ("1", 400), (told["api_version"], 200), ("999", 200)):
        answer = api.http.post("/status", json={}, headers={"x-skypilot-api-version": version})
        assert answer.status_code == status, version
    too_old = api.http.post("/status", json={}, headers={"x-skypilot-api-version": "1"}).json()
    assert told["api_version"] in too_old["message"]
    assert "upgrade the client" in too_old["message"]


def test_a_request_is_found_by_how_its_id_begins_and_its_lines_are_followed(api: Api, cluster: str) -> None:
    request_id = api.ask("launch", task={"run": "true"}, cluster_name=cluster)["request_id"]
    api.get(request_id)
    assert api.http.get("/api/get", params={"request_id": request_id[:20]}).json()["request_id"] == request_id
    lines = [
        json.loads(x)
        for x in api.http.get("/api/stream", params={"request_id": request_id}).text.splitlines()
    ]
    assert any(line.get("text") == f"launching cluster '{cluster}' with 1 node" for line in lines)
    assert lines[-1]["end"]["status"] == "SUCCEEDED"
    rest = api.http.get("/api/stream", params={"request_id": request_id, "after": len(lines) - 1}).text
    assert len(rest.splitlines()) == 1


def test_the_document_that_is_served_is_the_one_that_is_printed(api: Api) -> None:
    served = api.http.get("/api/openapi.json").json()
    printed = subprocess.run(
        [sys.executable, "-m", "sky.server.openapi", "requests"], capture_output=True, check=True, timeout=120
    )
    assert served == json.loads(printed.stdout)
    assert {"/launch", "/exec", "/status", "/api/get", "/api/stream", "/logs"} <= set(served["paths"])
