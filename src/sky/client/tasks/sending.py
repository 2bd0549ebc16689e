"""The files of a task on their way to the server.

Decides: which archives stand for them, and that one which the server has is not sent again.
Never: opens a connection: it is a flow. Follows: a folder that did not change costs a look at its files and a
question for each of its parts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sky.client import calls_requests, daemon
from sky.client.errors import ApiError
from sky.client.flows import Flow, ask
from sky.client.tasks import archive, functions, repository, tree
from sky.client.tasks.archive import Names
from sky.client.tasks.ignore import Ignored
from sky.client.tasks.local import Mount
from sky.client.tasks.repository import NotFetched
from sky.client.tasks.task import Task
from sky.client.tasks.tree import Entry, Tree, Unreadable
from sky.wire import requests as wire

ARCHIVES_MAX = 100
LEFT_SHOWN = 3


def send(
    task: Task, mounts: Sequence[Mount]
) -> Flow[tuple[tuple[wire.Archive, ...], tuple[wire.StorageUse, ...]]]:
    """Store what a task brings. Raises InvalidTaskYAMLError naming what cannot be read."""
    names = Names(daemon.home_dir())
    files: list[wire.Archive] = []
    storages: list[wire.StorageUse] = []
    for mount in mounts:
        report = task.report
        try:
            if mount.storage is not None:
                storages.append((yield from _storage(mount, names)))
            elif mount.repository is not None:
                with repository.fetched(*mount.repository) as folder:
                    files += yield from _folder(mount, tree.of_folder(folder, None), names)
            elif mount.url is None:
                files += yield from _files(mount, names)
        except NotFetched as error:
            url, ref = mount.repository or ("", None)
            at = "" if ref is None else f" at {ref!r}"
            report.wrong(mount.at, f"{url!r}{at} cannot be fetched: {error}")
        except Unreadable as error:
            report.wrong(mount.at, str(error))
        report.finish()
    if len(files) > ARCHIVES_MAX:
        report = task.report
        said = (
            f"they are {len(files)} archives, of {ARCHIVES_MAX} at most; mount a folder instead of its files"
        )
        report.wrong(("file_mounts",), said)
        report.finish()
    return tuple(files), tuple(storages)


def _files(mount: Mount, names: Names) -> Flow[list[wire.Archive]]:
    path = mount.paths[0]
    if path.is_file():
        target = f"{mount.target}{path.name}" if mount.target.endswith("/") else mount.target
        sha256 = yield from _stored(tree.of_file(path, path.name).entries, names)
        return [wire.Archive(target=target, sha256=sha256, single=True)]
    found = tree.of_folder(path, Ignored(path, around=mount.is_workdir))
    _tell(found, path)
    return (yield from _folder(mount, found, names))


def _folder(mount: Mount, found: Tree, names: Names) -> Flow[list[wire.Archive]]:
    archives: list[wire.Archive] = []
    for part in tree.parts_of(found):
        sha256 = yield from _stored(part, names)
        archives.append(wire.Archive(target=mount.target, sha256=sha256))
    return archives


def _storage(mount: Mount, names: Names) -> Flow[wire.StorageUse]:
    assert mount.storage is not None
    found = Tree()
    for path in mount.paths:
        if path.is_file():
            one = tree.of_file(path, path.name)
        else:
            under = f"{path.name}/" if len(mount.paths) > 1 else ""
            one = tree.of_folder(path, Ignored(path), under)
            _tell(one, path)
        found.entries += one.entries
    sha256 = (yield from _stored(found.entries, names)) if mount.paths else None
    return wire.StorageUse(
        name=mount.storage.name or "",
        target=mount.target,
        sha256=sha256,
        persistent=mount.storage.persistent,
    )


def _stored(entries: Sequence[Entry], names: Names) -> Flow[str]:
    """Have an archive of these with the server; gives its name."""
    known = names.find(entries)
    if known is not None and (yield from _is_there(known)):
        return known
    built = archive.build(entries)
    try:
        if built.sha256 == known or not (yield from _is_there(built.sha256)):
            yield from ask(calls_requests.upload(built.sha256, built))
    finally:
        built.close()
    names.note(entries, built.sha256)
    return built.sha256


def _is_there(sha256: str) -> Flow[bool]:
    try:
        yield from ask(calls_requests.upload(sha256, b""))
    except ApiError as refused:
        if refused.code != "hash_mismatch":
            raise
        return False
    return True


def _tell(found: Tree, path: Path) -> None:
    if found.left:
        more = len(found.left) - LEFT_SHOWN
        named = ", ".join(found.left[:LEFT_SHOWN]) + (f" and {more} more" if more > 0 else "")
        warnings.warn(f"{path}: left behind: {named}", stacklevel=2)


def send_function(
    function: Callable[..., Any], *, upload: bool
) -> Flow[tuple[str, tuple[wire.Archive, ...]]]:
    """Store a function that is to run; gives the script that runs it. Raises PackError."""
    packed = functions.pack(function)
    try:
        code = wire.Archive(target=packed.target, sha256=packed.archive.sha256, single=True)
        if upload and not (yield from _is_there(code.sha256)):
            yield from ask(calls_requests.upload(code.sha256, packed.archive))
    finally:
        packed.archive.close()
    return packed.script, ((code,) if upload else ())
