"""Storages: sets of files under a name, brought to nodes as a task's own files are.

Decides: when one is made, changed and gone, and which files a task has once its storages are looked up.
Never: keeps content (that is a blob), or changes what a job that is queued already will find.
Follows: an archive that is not stored, or that somebody else has brought, is told before anything is bought.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sky.domain.errors import NotFound
from sky.domain.request_errors import RequestFailure
from sky.kit.clock import SECOND_US
from sky.kit.nearby import hint
from sky.store import blobs
from sky.store.rows import storages
from sky.store.sql import Row, Snapshot
from sky.store.tx import Tx
from sky.wire import requests as wire
from sky.wire.request_answers import StorageRecord


def check(tx: Tx, owner: str, task: wire.TaskConfig) -> None:
    """Whether all that a task brings along is here. Raises RequestFailure."""
    for place, file in enumerate(task.files):
        _stored(tx, file.sha256, f"files[{place}]", file.target)
    for place, use in enumerate(task.storages):
        if use.sha256 is not None:
            _stored(tx, use.sha256, f"storages[{place}]", use.target)
        elif storages.find(tx.connection, owner, use.name) is None:
            raise _missing(tx, owner, use.name)


def ensure_brought(tx: Tx, owner: str, body: wire.Body) -> None:
    """Refuse a body that names content which its owner has not brought, whether it is stored or not: whoever
    knows a hash must not have the files of others for that. Raises NotFound."""
    tasks: Sequence[wire.TaskConfig] = getattr(body, "tasks", None) or [
        getattr(body, "task", wire.TaskConfig())
    ]
    for task in tasks:
        for kind, uses in (("files", task.files), ("storages", task.storages)):
            for place, use in enumerate(uses):
                if use.sha256 is not None and not storages.brought(tx.connection, owner, use.sha256):
                    failure = _not_stored(use.sha256, f"{kind}[{place}]", use.target)
                    details = {"type": failure.kind, **failure.details}
                    raise NotFound(failure.message, details=details)


def take_in(tx: Tx, owner: str, uses: Sequence[wire.StorageUse], cluster_id: str) -> list[dict[str, Any]]:
    """Make or change the storages of a task that brings their content; what they are as files of a job."""
    files: list[dict[str, Any]] = []
    for use in uses:
        known = storages.find(tx.connection, owner, use.name)
        sha256 = use.sha256
        if sha256 is None:
            if known is None:
                raise _missing(tx, owner, use.name)
            sha256 = str(known["sha256"])
        values: dict[str, Any] = {"sha256": sha256, "used_us": tx.now_us}
        values["size_bytes"] = blobs.use(tx, sha256) or 0
        if use.persistent:
            values["cluster_id"] = None
        elif known is None:
            values["cluster_id"] = cluster_id
        storages.write(tx, owner, use.name, **values)
        files.append(msgspec.to_builtins(wire.Archive(target=use.target, sha256=sha256)))
    return files


def listed(connection: Snapshot, owner: str | None) -> list[StorageRecord]:
    """The storages of an owner, or of all (None)."""
    used = storages.used(connection, owner)
    return [_record(row, used) for row in storages.of(connection, owner)]


def delete(tx: Tx, owner: str, name: str) -> None:
    """Forget a storage that no job under way uses. Raises RequestFailure."""
    if storages.find(tx.connection, owner, name) is None:
        raise _missing(tx, owner, name)
    if (owner, name) in storages.used(tx.connection, owner):
        msg = f"storage {name!r} is used by jobs that are under way; wait for them, or cancel them first"
        raise RequestFailure("StorageError", msg, storage=name)
    storages.remove(tx, owner, name)


def _stored(tx: Tx, sha256: str, field: str, target: str) -> None:
    if blobs.use(tx, sha256) is None:
        raise _not_stored(sha256, field, target)


def _not_stored(sha256: str, field: str, target: str) -> RequestFailure:
    msg = f"{field}, for {target!r}: no archive {sha256} is stored; upload it first: POST /upload?sha256="
    return RequestFailure("InvalidTaskError", msg, field=field, sha256=sha256)


def _missing(tx: Tx, owner: str, name: str) -> RequestFailure:
    names = [row["name"] for row in storages.of(tx.connection, owner)]
    msg = f"there is no storage {name!r} of {owner}; {hint(name, names)}"
    return RequestFailure("StorageNotFoundError", msg, storage=name)


def _record(row: Row, used: set[tuple[str, str]]) -> StorageRecord:
    return StorageRecord(
        name=row["name"],
        owner=row["owner"],
        sha256=row["sha256"],
        size_bytes=row["size_bytes"],
        created_at=row["created_us"] / SECOND_US,
        last_used_at=row["used_us"] / SECOND_US,
        persistent=row["cluster_id"] is None,
        in_use=(row["owner"], row["name"]) in used,
    )
