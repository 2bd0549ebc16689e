"""A real daemon whose machines are pods of a cluster beside it, whose kubelet runs what the pods say.

Decides: that calls and tasks run in pods, what a person is told of one that cannot run or was taken away, and
that nothing is left. Never: installs the agent's package, which the cluster's image has.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Sky
from tests.conftest import RunningDaemon, free_port
from tests.providers.kubernetes_cluster import Cluster, running_beside

import sky

pytestmark = pytest.mark.real
WAIT_S = 40.0


@sky.function
def told() -> tuple[str, str]:
    """Where a call runs, and what it was told there."""

    return os.environ.get("UV_PYTHON_DOWNLOADS", "not told"), str(Path.cwd())


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


def until(done: Callable[[], Any], what: str) -> Any:
    """Look until it holds; returns what it gave."""
    deadline = time.monotonic() + WAIT_S
    while not (value := done()):
        assert time.monotonic() < deadline, f"not within {WAIT_S:g} s: {what}"
        time.sleep(0.05)
    return value


def test_a_call_runs_in_a_pod_and_nothing_is_left(cluster: Cluster, daemon: RunningDaemon, skyc: Sky) -> None:
    with sky.Compute(
        provider="kubernetes", cpus=1, url=daemon.url, name="pods", quiet=True, delete_on_exit=True
    ) as compute:
        downloads, folder = told() >> compute
        assert Path(folder).is_relative_to(cluster.folder or "/nowhere"), "it ran where the pod's folders are"
        (pod,) = cluster.all("pods")
        assert pod["metadata"]["namespace"] == "research"
        assert pod["spec"]["containers"][0]["image"].startswith("python:3.")
        shown = skyc("compute", "get", "pods").check().out
    until(lambda: not cluster.all("pods") and not cluster.all("secrets"), "everything is gone")
    assert downloads, shown
