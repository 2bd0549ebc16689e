"""A real daemon whose machines are pods of a cluster beside it, whose kubelet runs what the pods say.

Decides: that calls and tasks run in pods, what a person is told of one that cannot run or was taken away, and
that nothing is left. Never: installs the agent's package, which the cluster's image has.
"""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests import waiting
from tests.cli.conftest import Sky
from tests.conftest import RunningDaemon, free_port
from tests.providers.beside import running_beside
from tests.providers.kubernetes_cluster import Cluster

import sky

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]
WAIT_S = 100.0
until = partial(waiting.until, within_s=WAIT_S)


@sky.function
def told() -> str:
    """The folder that a call runs in."""
    import pathlib

    return str(pathlib.Path.cwd())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    one = Cluster(tmp_path_factory.mktemp("cluster"))
    one.add_node(cpus=4)
    with running_beside(one):
        yield one


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    running = RunningDaemon(tmp_path_factory.mktemp("daemon"), free_port())
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def skyc(cluster: Cluster, daemon: RunningDaemon, tmp_path_factory: pytest.TempPathFactory) -> Sky:
    """The command, at a daemon that has the cluster."""
    folder = tmp_path_factory.mktemp("folder")
    (folder / "kubeconfig").write_text(cluster.kubeconfig())
    command = Sky(daemon.home, folder)
    settings = [f"daemon_url={daemon.url}", "disk_gb=1", "unschedulable_seconds=1", "grace_seconds=3"]
    command(
        *("provider", "add", "ours", "--kind", "kubernetes", "--credential", "kubeconfig=@kubeconfig"),
        *(word for setting in settings for word in ("--config", setting)),
    ).check()
    return command


def nodes(daemon: RunningDaemon, compute: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{daemon.url}/v1/computes/{compute}/nodes", timeout=WAIT_S) as answer:
        return json.load(answer)["items"]


def test_a_call_runs_in_a_pod_and_nothing_is_left(cluster: Cluster, daemon: RunningDaemon, skyc: Sky) -> None:
    with sky.Compute(
        provider="kubernetes", cpus=1, url=daemon.url, name="pods", quiet=True, delete_on_exit=True
    ) as compute:
        folder = told() >> compute
        assert Path(folder).is_relative_to(cluster.folder or "/nowhere"), "it ran where the pod's folders are"
        (pod,) = cluster.all("pods")
        assert pod["metadata"]["namespace"] == "research"
        assert pod["spec"]["containers"][0]["image"].startswith("python:3.")
    until(lambda: not cluster.all("pods") and not cluster.all("secrets"), "everything is gone")


def test_a_cluster_of_pods_runs_jobs_stops_and_starts_with_its_disk(cluster: Cluster, skyc: Sky) -> None:
    assert "kubernetes" in skyc("check", "k8s").check().out
    skyc("launch", "-y", "-c", "box", "--infra", "k8s", "--cpus", "1", "echo kept > it").check()
    (claim,) = cluster.all("persistentvolumeclaims")
    assert "first-word" in skyc("exec", "box", "echo first-word; cat it").check().out
    skyc("stop", "-y", "box").check()
    until(lambda: not cluster.all("pods"), "its pod is gone")
    assert [one["metadata"]["uid"] for one in cluster.all("persistentvolumeclaims")] == [
        claim["metadata"]["uid"]
    ]
    skyc("start", "-y", "box").check()
    assert "kept" in skyc("exec", "box", "cat it").check().out
    skyc("provider", "update", "ours", "--config", "disk_gb=").check()
    refused = skyc("stop", "-y", "box")
    assert refused.code != 0, "nothing would be kept of what a provider without disks has"
    assert "disk_gb" in refused.err
    skyc("provider", "update", "ours", "--config", "disk_gb=1").check()
    skyc("down", "-y", "box").check()
    left = ("pods", "secrets", "persistentvolumeclaims")
    until(lambda: not any(cluster.all(what) for what in left), "everything is gone")


def test_a_pod_that_cannot_start_is_told_with_what_the_cluster_says(
    cluster: Cluster, daemon: RunningDaemon, skyc: Sky
) -> None:
    """First an event tells what it waits for, then its status that it never will."""
    cluster.status = {"phase": "Pending"}
    try:
        skyc("compute", "create", "broken", "--provider", "kubernetes", "--cpus", "1", "--no-wait").check()
        (pod,) = until(lambda: cluster.all("pods"), "its pod")
        cluster.tell(pod, "FailedMount", "the volume is elsewhere")
        until(
            lambda: "FailedMount: the volume is elsewhere" in skyc("why", "broken").out, "the event is told"
        )
        waits = {"reason": "ImagePullBackOff", "message": "manifest unknown"}
        state = {"containerStatuses": [{"name": "node", "state": {"waiting": waits}}]}
        cluster.patch("pods", pod, {"status": state})
        said = "ImagePullBackOff: manifest unknown"
        until(lambda: any(said in str(node["last_error"]) for node in nodes(daemon, "broken")), said)
        assert said in skyc("why", "broken").out
    finally:
        cluster.status = None
        skyc("compute", "delete", "broken", "--yes").check()
    until(lambda: not cluster.all("pods"), "its pod is gone")


def test_pods_that_can_dial_nobody_are_come_to_by_port_forward(
    cluster: Cluster, daemon: RunningDaemon, skyc: Sky
) -> None:
    """Their lines are cut, and the daemon is killed: they are laid anew, and the same node goes on."""
    skyc(
        *("provider", "add", "inner", "--kind", "kubernetes", "--credential", "kubeconfig=@kubeconfig"),
        *("--config", "tunnel=true", "--config", "grace_seconds=3"),
    ).check()
    with sky.Compute(
        provider="inner", cpus=1, url=daemon.url, name="shut-in", quiet=True, delete_on_exit=True
    ) as compute:
        folder = told() >> compute
        [node] = nodes(daemon, "shut-in")
        assert node["provider_binding"]["tunnel"] == "by port-forward"
        for secret in cluster.all("secrets"):
            program = base64.b64decode(secret["data"]["start.sh"]).decode()
            assert daemon.url not in program, "it was told no address of the daemon's"
        until(lambda: len(cluster.lines) > 1, "the agent has one, and others wait")
        assert cluster.cut() > 1
        assert (told() >> compute) == folder
        waiting = compute.submit(told())
        daemon.kill()
        daemon.start()
        assert waiting.result(WAIT_S) == folder
        done = skyc("compute", "exec", "shut-in", "--", "echo", "by its lines").check()
        assert done.out == "by its lines\n"
        [same] = nodes(daemon, "shut-in")
        assert same["id"] == node["id"]
    until(lambda: not cluster.all("pods") and not cluster.lines, "everything is gone")
