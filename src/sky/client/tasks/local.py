"""The files of this computer that a task names.

Decides: what each thing in ``workdir`` and ``file_mounts`` is: a path, an address, a repository, a storage;
and whether a path is there. Never: reads content, or asks another computer.
Follows: what clusters cannot be given from where it is, is refused with the way that works instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sky.client.tasks.report import Report
from sky.client.tasks.storage import Storage
from sky.kit.marked_yaml import Path as At
from sky.kit.nearby import hint

if TYPE_CHECKING:
    from sky.client.tasks.task import Task

WORKDIR = "."
"""The cluster's working folder, as the target of files."""
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://")
_BUCKETS = {
    "s3": "aws s3 cp",
    "gs": "gcloud storage cp",
    "gcs": "gcloud storage cp",
    "r2": "aws s3 cp",
    "az": "az storage blob download",
    "https+az": "az storage blob download",
    "oci": "oci os object get",
    "cos": "the tool of that cloud",
    "nebius": "aws s3 cp",
    "hf": "hf download",
    "vastdata": "aws s3 cp",
}
"""Addresses of buckets, and what fetches from them."""


@dataclass(frozen=True, slots=True)
class Mount:
    """Something that goes somewhere: a path here, an address, a repository (its url, and a branch, tag or
    commit), or a storage with the paths of its content."""

    at: At
    target: str
    paths: tuple[Path, ...] = ()
    url: str | None = None
    storage: Storage | None = None
    repository: tuple[str, str | None] | None = None
    is_workdir: bool = False


def check(task: Task, *, workdir_only: bool = False) -> None:
    """Look whether the files of a task are here. Raises InvalidTaskYAMLError."""
    report = task.report
    mounts(task, report, workdir_only=workdir_only)
    report.finish()


def mounts(task: Task, report: Report, *, workdir_only: bool = False) -> list[Mount]:
    """What a task brings, in the order in which it is brought; what is not there goes into the report."""
    found: list[Mount] = []
    workdir = task.workdir
    if isinstance(workdir, str):
        folder = _path(report, ("workdir",), workdir, task)
        if folder is not None and not folder.is_dir():
            report.wrong(("workdir",), "it is a file, and the working folder is a folder", workdir)
        elif folder is not None:
            found.append(Mount(("workdir",), WORKDIR, (folder,), is_workdir=True))
    elif workdir is not None:
        repository = (workdir["url"], workdir.get("ref"))
        found.append(Mount(("workdir",), WORKDIR, repository=repository, is_workdir=True))
    if workdir_only:
        return found
    for name in ("file_mounts", "storage_mounts"):
        given: dict[str, str | Storage] = task.field(name) or {}
        for target, source in given.items():
            mount = _mount(report, (name, target), target, source, task)
            if mount is not None:
                found.append(mount)
    return found


def _mount(report: Report, at: At, target: str, source: str | Storage, task: Task) -> Mount | None:
    if isinstance(source, Storage):
        return _storage(report, at, target, source, task)
    scheme = _SCHEME.match(source)
    if scheme is None:
        path = _path(report, at, source, task)
        return None if path is None else Mount(at, target, (path,))
    kind = scheme[1].lower()
    if kind in ("http", "https"):
        return Mount(at, target, url=source)
    _refuse_scheme(report, at, source, kind)
    return None


def _storage(report: Report, at: At, target: str, storage: Storage, task: Task) -> Mount | None:
    source = storage.source
    sources = [] if source is None else [source] if isinstance(source, str) else source
    if len({Path(one).name for one in sources}) < len(sources):
        report.wrong((*at, "source"), "two of them have the same name, and would be one", sources)
        return None
    paths: list[Path] = []
    for one in sources:
        scheme = _SCHEME.match(one)
        if scheme is not None:
            _refuse_scheme(report, (*at, "source"), one, scheme[1].lower())
            return None
        path = _path(report, (*at, "source"), one, task)
        if path is None:
            return None
        paths.append(path)
    return Mount(at, target, tuple(paths), storage=storage)


def _refuse_scheme(report: Report, at: At, source: str, kind: str) -> None:
    if kind in _BUCKETS:
        fetch = _BUCKETS[kind]
        said = f"files come from this computer or the web, and not from buckets; fetch it in setup ({fetch})"
    else:
        said = "it is a path on this computer, or an address that begins with http:// or https://"
    report.wrong(at, said, source)


def _path(report: Report, at: At, source: str, task: Task) -> Path | None:
    """The path that is meant, when something is there."""
    try:
        path = Path(source).expanduser()
        there = path.exists()
    except (OSError, ValueError, RuntimeError) as error:
        report.wrong(at, f"it is no path that can be looked at ({error})", source)
        return None
    if there:
        return path.absolute()
    near = _near(path)
    unknown = re.search(r"\$\{?(\w+)", source)
    if unknown is not None and unknown[1] not in task.envs_and_secrets:
        near = f"; envs has no {unknown[1]!r}"
    missing = "there is no such folder" if at == ("workdir",) else "there is no such file or folder"
    whole = "" if path.is_absolute() else f" in {Path.cwd()}"
    report.wrong(at, f"{missing}{whole}{near}", source)
    return None


def _near(path: Path) -> str:
    try:
        beside = [one.name for one in path.parent.iterdir()]
    except (OSError, ValueError):
        return ""
    near = hint(path.name, beside)
    return f"; {near}" if near.startswith("did") else ""
