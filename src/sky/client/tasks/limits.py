"""What a task may say that clusters here cannot do.

Decides: which fields a launch refuses, and what to do instead. Never: lets one pass in silence.
Follows: all of them are told at once, by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sky.client.exceptions import NotSupportedError
from sky.client.tasks.report import where
from sky.client.tasks.storage import StorageMode
from sky.kit.marked_yaml import Path

if TYPE_CHECKING:
    from sky.client.tasks.resources import Resources
    from sky.client.tasks.task import Task

_TASK = {
    "volumes": "no disks are attached; bring files with file_mounts",
    "service": "nothing is served here; launch it as a cluster and open its ports",
    "pool": "there are no pools; launch it on a cluster by its name",
    "config": "a task has no settings of its own; the server has them",
    "event_callback": "nothing is called when a job's state changes; follow it with sky.tail_logs",
    "inputs": "nothing is planned by the size of inputs; leave it out",
    "outputs": "nothing is planned by the size of outputs; leave it out",
}
_RESOURCES = {
    "accelerator_args": "machines are chosen by the name and number of accelerators alone",
    "job_recovery": "a job of a cluster is not started again by itself",
    "local_disk": "machines are chosen by disk_size and disk_tier",
    "hooks": "nothing runs at turns of a cluster's life; use setup and run",
    "priority": "jobs of a cluster run in their order",
    "priority_class": "jobs of a cluster run in their order",
    "volumes": "no disks are attached; say disk_size",
}


def check(task: Task) -> None:
    """Raises NotSupportedError naming everything that this task says and clusters here cannot do."""
    found = [f"{where(at)}: {said}" for at, said in (*_of_task(task), *_of_mounts(task))]
    for number, resources in enumerate(task.given_resources):
        one = len(task.given_resources) == 1
        found += [f"{where(at)}: {said}" for at, said in _of_resources(resources, None if one else number)]
    if found:
        file = task.report.file
        place = "" if file is None else f"{file}: "
        named = "\n".join(found)
        raise NotSupportedError(f"{place}clusters here cannot do what the task asks for:\n{named}")


def _of_task(task: Task) -> Iterator[tuple[Path, str]]:
    for name, said in _TASK.items():
        if task.field(name):
            yield (name,), said


def _of_mounts(task: Task) -> Iterator[tuple[Path, str]]:
    for target, storage in task.storage_mounts.items():
        at: Path = ("file_mounts", target)
        if storage.mode is not StorageMode.COPY:
            yield (*at, "mode"), f"{storage.mode.value} is not possible, a copy is: mode: COPY"
        if storage.stores:
            yield (*at, "store"), "the server keeps storages itself; leave store out"
        if storage.name is None:
            yield (*at, "name"), "a storage needs a name; files without one are a path: TARGET: SOURCE"


def _of_resources(resources: Resources, number: int | None) -> Iterator[tuple[Path, str]]:
    config = resources.to_yaml_config()
    base: Path = ("resources",) if number is None else ("resources", number)
    yield from _of_machine(config, base)
    for name in ("any_of", "ordered"):
        several: list[dict[str, Any]] = config.get(name) or []
        for index, one in enumerate(several):
            yield from _of_machine(one, (*base, name, index))


def _of_machine(config: dict[str, Any], at: Path) -> Iterator[tuple[Path, str]]:
    for name, said in _RESOURCES.items():
        if config.get(name) not in (None, "", "none", [], {}):
            yield (*at, name), said
    autostop = config.get("autostop")
    if isinstance(autostop, dict) and "hook" in autostop:
        yield (*at, "autostop", "hook"), "nothing runs before a cluster stops; write results as they are made"
