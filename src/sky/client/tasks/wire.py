"""A task as it is sent.

Decides: how the fields of a task become those of the wire, and that its files are stored before it is sent.
Never: waits or sends by itself: it is a flow. Follows: what cannot be sent, or done by a cluster, is told by
its field before anything travels.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from sky.client.exceptions import InvalidTaskError
from sky.client.flows import Flow
from sky.client.tasks import limits, local, priced, sending
from sky.client.tasks.dag import Dag
from sky.client.tasks.local import Mount
from sky.client.tasks.task import Task
from sky.wire import requests as wire


@dataclass(frozen=True, slots=True)
class Autostop:
    """What a task says of its cluster's end: ``idle_minutes`` below 0 is never."""

    idle_minutes: int
    down: bool = False
    wait_for: wire.AutostopWait | None = None


def single(given: Any) -> Task:
    """The task that is meant by a task, or by a Dag with one. Raises InvalidTaskError."""
    if isinstance(given, Task):
        return given
    if isinstance(given, Dag):
        if len(given) == 1:
            return given.tasks[0]
        raise InvalidTaskError(f"one task is launched at a time, and this Dag has {len(given)}: launch each")
    kind = type(given).__name__
    raise InvalidTaskError(f"a sky.Task is expected, and this is a {kind}; sky.Task.from_yaml reads a file")


def task_config(given: Task | Dag, *, upload: bool = True) -> Flow[wire.TaskConfig]:
    """What is sent for a task, its files stored with the server; without ``upload``, without its files.

    Raises InvalidTaskYAMLError for what is wrong with it here, NotSupportedError for what no cluster can do.
    """
    task = single(given)
    limits.check(task)
    report = task.report
    mounts = local.mounts(task, report)
    machines = priced.machines(task.given_resources, report)
    report.finish()
    files: tuple[wire.Archive, ...] = ()
    storages: tuple[wire.StorageUse, ...] = ()
    run: Any = task.run
    if upload:
        files, storages = yield from sending.send(task, mounts)
    if callable(run):
        run, code = yield from sending.send_function(run, upload=upload)
        files = (*files, *code)
    return wire.TaskConfig(
        name=task.name,
        num_nodes=task.num_nodes,
        machines=machines,
        ordered=any(one.is_ordered for one in task.given_resources),
        envs=task.envs,
        secrets=task.secrets,
        setup=_setup(task.setup, mounts),
        run=run,
        files=files,
        storages=storages,
    )


def autostop_of(given: Task | Dag) -> Autostop | None:
    """What a task says of its cluster's end; None: nothing."""
    for resources in single(given).given_resources:
        for one in resources.alternatives():
            told = one.autostop
            if told is False:
                return Autostop(-1)
            if isinstance(told, dict):
                return Autostop(told["idle_minutes"], told.get("down", False), told.get("wait_for"))
    return None


def _setup(setup: str | None, mounts: list[Mount]) -> str | None:
    """The setup, behind what fetches files from the web."""
    fetched = "".join(_fetch(mount.target, mount.url) for mount in mounts if mount.url is not None)
    return f"{fetched}{setup or ''}" or None


def _fetch(target: str, url: str) -> str:
    name = url.partition("?")[0].rstrip("/").rpartition("/")[2]
    whole = f"{target}{name}" if target.endswith("/") else target
    home = whole == "~" or whole.startswith("~/")
    place = f'"$HOME"/{shlex.quote(whole[2:])}' if home else shlex.quote(whole)
    said = shlex.quote(f"{url} cannot be fetched")
    return (
        f'mkdir -p -- "$(dirname -- {place})" && '
        f"curl -fsSL --retry 3 --retry-connrefused -o {place} -- {shlex.quote(url)} || "
        f"{{ echo {said} >&2; exit 1; }}\n"
    )
