"""Computes of real nodes over HTTP: scaling, drift and generations, drains, short leases, a poisoned row."""

from __future__ import annotations

import json
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import RunningDaemon
from tests.databases import IN_A_FILE

import sky

pytestmark = pytest.mark.real
WAIT_S = 60.0


@sky.function
def setting(name: str) -> str | None:
    """A variable of the node's environment."""
    import os

    return os.environ.get(name)


@sky.function
def hold(until: str) -> int:
    """Run until a file is there; returns the agent's process."""
    import os
    import pathlib
    import time

    while not pathlib.Path(until).exists():
        time.sleep(0.02)
    return os.getppid()


class Api:
    """The control plane as any HTTP client has it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """(status, decoded answer)."""
        headers = {"Content-Type": "application/json", "If-Match": "*"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as refused:
            return refused.code, json.loads(refused.read())

    def compute(self, name: str) -> Any:
        return self("GET", f"/v1/computes/{name}")[1]

    def nodes(self, name: str, *states: str) -> list[Any]:
        found = self("GET", f"/v1/computes/{name}/nodes?include_terminal=false")[1]["items"]
        return [node for node in found if not states or node["state"] in states]

    def at_work(self, name: str) -> set[str]:
        """The nodes that have said of a call that it runs."""
        tasks = self("GET", f"/v1/tasks?compute={name}&state=running")[1]["items"]
        found = [self("GET", f"/v1/tasks/{task['id']}/executions")[1]["items"] for task in tasks]
        return {one["node_id"] for executions in found for one in executions if one["state"] == "started"}

    def wait(self, done: Callable[[], Any]) -> Any:
        """Look until it holds; returns what it gave."""
        deadline = time.monotonic() + WAIT_S
        while not (value := done()):
            assert time.monotonic() < deadline, self("GET", "/v1/loops")[1]
            time.sleep(0.05)
        return value


@pytest.fixture
def api(daemon: RunningDaemon) -> Iterator[Api]:
    """The session's daemon; what a test has made there is given back."""
    one = Api(daemon.url)
    before = {x["id"] for x in one("GET", "/v1/computes?limit=500")[1]["items"]}
    yield one
    for compute in one("GET", "/v1/computes?limit=500")[1]["items"]:
        if compute["id"] not in before and (compute["name"] or "").startswith("machines-"):
            one("DELETE", f"/v1/computes/{compute['id']}")


def open_compute(api: Api, **more: Any) -> sky.Compute:
    return sky.Compute(provider=sky.Local(), cpus=1, url=api.url, quiet=True, delete_on_exit=True, **more)


def test_a_range_grows_to_its_queue_shrinks_to_nothing_and_comes_back(api: Api, tmp_path: Path) -> None:
    name = "machines-range"
    gate = tmp_path / "go"
    options = sky.Options(autoscale_idle_timeout=1.0)
    with open_compute(api, name=name, nodes=(0, 2), concurrency=1, options=options) as compute:
        assert api.nodes(name) == []
        held = [hold(str(gate)) > compute for _ in range(4)]
        # That both nodes are there is not enough: the first may end all calls before the second has one.
        api.wait(lambda: len(api.at_work(name)) == 2)
        gate.touch()
        assert len({one.result(WAIT_S) for one in held}) == 2
        api.wait(lambda: api.nodes(name) == [])
        assert api.compute(name)["status"]["state"] == "ready"
        assert (setting("SKY_NO_SUCH_THING") >> compute) is None


def test_what_is_wanted_otherwise_waits_for_a_generation_and_there_is_a_way_back(api: Api) -> None:
    name = "machines-drift"
    with open_compute(api, name=name, image=sky.Image(env={"COLOUR": "red"})) as compute:
        assert (setting("COLOUR") >> compute) == "red"
        image = {**api.compute(name)["spec"]["image"], "env": {"COLOUR": "blue"}}
        status, changed = api("PATCH", f"/v1/computes/{name}", {"image": image})
        assert (status, changed["status"]["drift"]) == (200, ["image.env"])
        assert (setting("COLOUR") >> compute) == "red", "nothing of it is applied yet"
        status, made = api("POST", f"/v1/computes/{name}/generations", {})
        assert (status, made["number"], made["applied"]) == (202, 2, False)
        assert api.compute(name)["status"]["drift"] == []
        assert (setting("COLOUR") >> compute) == "blue"
        api.wait(lambda: api("GET", f"/v1/computes/{name}/generations/2")[1]["applied"])
        api("POST", f"/v1/computes/{name}/generations", {"source": 1})
        assert (setting("COLOUR") >> compute) == "red"
        assert api("PATCH", f"/v1/computes/{name}", {})[0] == 400


def test_a_busy_node_that_is_given_back_finishes_first(api: Api, tmp_path: Path) -> None:
    name, gate = "machines-drain", tmp_path / "go"
    with open_compute(api, name=name) as compute:
        agent = hold("/") >> compute
        (node,) = api.nodes(name)
        running = hold(str(gate)) > compute
        api.wait(lambda: api("GET", f"/v1/tasks?compute={name}&state=running")[1]["items"])
        status, told = api("DELETE", f"/v1/computes/{name}/nodes/{node['id']}")
        assert (status, told["state"], told["desired"]) == (202, "draining", "deleted")
        later = hold("/") > compute
        gate.touch()
        assert running.result(WAIT_S) == agent
        assert later.result(WAIT_S) != agent, "it took no more"
        gone = api("GET", f"/v1/computes/{name}/nodes/{node['id']}")[1]
        assert gone["desired"] == "deleted"


def test_a_lease_shorter_than_a_start_does_not_keep_a_node_from_coming(api: Api) -> None:
    with open_compute(api, name="machines-short", ttl=1) as compute:
        first = hold("/") >> compute
        assert (hold("/") >> compute) == first


def test_a_lease_is_held_by_one(api: Api) -> None:
    name = "machines-lease"
    spec = {"specs": [{"provider": {"kind": "local"}}], "nodes": {"desired": 0, "min": 0, "max": 1}}
    api("POST", "/v1/computes", {"name": name, "spec": spec})
    lease = f"/v1/computes/{name}/lease"
    assert api("PUT", lease, {"owner": "a", "ttl_seconds": 60})[0] == 200
    status, refused = api("PUT", lease, {"owner": "b", "ttl_seconds": 60})
    assert (status, refused["code"], refused["details"]["owner"]) == (409, "lease_held", "a")
    assert api("DELETE", f"{lease}?owner=b")[0] == 409
    assert api("DELETE", f"{lease}?owner=a")[0] == 204
    assert api("GET", f"/v1/computes/{name}")[1]["lease"] == {"owner": None, "expires_at": None}
    assert api("PUT", lease, {"owner": "b", "ttl_seconds": 60})[0] == 200


@IN_A_FILE
def test_a_poisoned_row_hides_nothing_and_can_be_deleted(own_daemon: RunningDaemon) -> None:
    api = Api(own_daemon.url)
    spec = {"specs": [{"provider": {"kind": "local"}, "cpus": 1}], "nodes": {"desired": 1}}
    for name in ("sound", "poisoned"):
        api("POST", "/v1/computes", {"name": name, "spec": spec})
    api.wait(lambda: all(api.nodes(name, "ready") for name in ("sound", "poisoned")))
    poisoned = api.compute("poisoned")["id"]
    with sqlite3.connect(own_daemon.home / "sky.db", timeout=30) as database:
        database.execute("UPDATE computes SET spec = '{\"specs\":' WHERE id = ?", (poisoned,))
    database.close()
    status, listed = api("GET", "/v1/computes")
    assert status == 200
    told = {one["name"]: one["status"]["last_error"] for one in listed["items"]}
    assert told["sound"] is None
    assert "cannot be read" in told["poisoned"]["message"]
    assert api("PATCH", "/v1/computes/sound", {"nodes": {"desired": 2}})[0] == 200
    api.wait(lambda: len(api.nodes("sound", "ready")) == 2)
    (node,) = api.nodes("poisoned")
    assert api("DELETE", f"/v1/computes/{poisoned}")[0] == 202
    api.wait(lambda: api.compute(poisoned)["status"]["state"] == "deleted")
    assert not (own_daemon.home / "nodes" / node["id"]).exists()
    api("DELETE", "/v1/computes/sound")
    api.wait(lambda: api("GET", "/v1/computes")[1]["items"] == [])
