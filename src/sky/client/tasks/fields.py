"""The fields of a task: what each of them takes, and the form it is kept in.

Decides: which fields there are. Never: looks at the files of this computer, or knows what a cluster can do.
Follows: a field that only other systems have is known here, so that it is refused for what it is, and not
for a slip of the pen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sky.client.tasks import storage, values
from sky.client.tasks.report import Report
from sky.client.tasks.resources import Resources
from sky.client.tasks.values import Check
from sky.kit.marked_yaml import Path
from sky.wire.requests import NODES_MAX

NAME_CHARS_MAX = 256
TARGET_CHARS_MAX = 1024
SCRIPT_CHARS_MAX = 1_000_000


def _name(report: Report, path: Path, value: Any) -> str | None:
    given = values.text(report, path, value)
    if given is not None and not 0 < len(given) <= NAME_CHARS_MAX:
        report.wrong(path, f"a name has 1 to {NAME_CHARS_MAX} characters", value)
        return None
    return given


def _script(report: Report, path: Path, value: Any) -> str | None:
    if isinstance(value, list | tuple):
        report.wrong(path, "it is a text; a list of commands is written as one, behind '|'", value)
        return None
    given = values.text(report, path, value)
    if given is not None and (len(given) > SCRIPT_CHARS_MAX or "\0" in given):
        report.wrong(path, f"a script has {SCRIPT_CHARS_MAX} characters at most, and no NUL", value)
        return None
    return given


def _run(report: Report, path: Path, value: Any) -> Any:
    return value if callable(value) else _script(report, path, value)


_GIT: dict[str, Check] = {"url": values.text, "ref": values.text}


def workdir(report: Report, path: Path, value: Any) -> str | dict[str, str] | None:
    """A folder of this computer, or a repository: ``url`` and ``ref``."""
    if not isinstance(value, Mapping):
        given = values.text(report, path, value)
        if given is not None and not given.strip():
            report.wrong(path, "it is the path of a folder, such as '.'", value)
            return None
        return given
    found = values.fields(report, path, value, _GIT)
    if found is None:
        return None
    if "url" not in found:
        report.wrong(path, "a repository has a url")
        return None
    for name, text in found.items():
        if not text.strip() or text.startswith("-"):
            report.wrong((*path, name), "it is the address of a repository, or one of its branches", text)
    return found


def file_mounts(report: Report, path: Path, value: Any) -> dict[str, Any] | None:
    """What goes where: a path or address, or a storage, by its place on each machine."""
    given = values.mapping(report, path, value, "it is a mapping: where it goes, and what goes there")
    if given is None:
        return None
    found: dict[str, Any] = {}
    for target, source in given.items():
        at = (*path, target)
        if not _is_target(report, at, target):
            continue
        if isinstance(source, str) and source.strip():
            found[target] = source
        elif isinstance(source, Mapping | storage.Storage):
            config = storage.checked(report, at, source)
            if config is not None:
                found[target] = storage.Storage(**config)
        else:
            report.wrong(at, "it is a path, an address, or a mapping with name, source and mode", source)
    return found


def _is_target(report: Report, path: Path, target: str) -> bool:
    if not target.strip() or len(target) > TARGET_CHARS_MAX or "\0" in target:
        said = f"the place on the machines is a path of 1 to {TARGET_CHARS_MAX} characters"
        report.wrong(path, said, target)
        return False
    if ".." in target.split("/"):
        report.wrong(path, "the place on the machines has no '..' in it", target)
        return False
    return True


def resources(report: Report, path: Path, value: Any) -> tuple[Resources, ...] | None:
    """One or several resources, as objects or mappings."""
    if isinstance(value, Resources):
        return (value,)
    if isinstance(value, list | tuple | set | frozenset):
        found: list[Resources] = []
        for index, one in enumerate(values.items(report, path, value) or ()):
            found += resources(report, (*path, index), one) or ()
        return tuple(found) or None
    made = Resources.checked(report, path, value)
    return None if made is None else (made,)


_SERVICE: dict[str, Check] = dict.fromkeys(
    (
        "readiness_probe",
        "replica_policy",
        "replicas",
        "load_balancing_policy",
        "ports",
        "tls",
        "pool",
        "workers",
        "min_workers",
        "max_workers",
    ),
    values.anything,
)


def service(report: Report, path: Path, value: Any) -> dict[str, Any] | None:
    """How replicas of a task would serve."""
    return values.fields(report, path, value, _SERVICE)


FIELDS: dict[str, Check] = {
    "name": _name,
    "workdir": workdir,
    "num_nodes": values.whole(1, NODES_MAX),
    "resources": resources,
    "file_mounts": file_mounts,
    "storage_mounts": file_mounts,
    "volumes": values.mapping,
    "envs": values.variables,
    "secrets": values.variables,
    "setup": _script,
    "run": _run,
    "service": service,
    "pool": values.anything,
    "config": values.mapping,
    "event_callback": values.text,
    "inputs": values.mapping,
    "outputs": values.mapping,
}
"""What a task may say, in the order in which it is written down."""

FILLED_IN = ("workdir", "num_nodes", "resources", "file_mounts", "storage_mounts", "volumes", "service")
"""Fields in which ``${NAME}`` stands for the value of a variable; scripts have them in their environment."""
