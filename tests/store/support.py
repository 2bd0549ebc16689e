"""Databases and rows for the tests of what is kept.

Decides: how an empty database is made quickly, and what a row of each noun has at least.
Never: moves a state; tests do that through the door that they test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from tests.databases import fresh

from sky.kit.clock import ManualClock
from sky.store import schema
from sky.store.db import Database
from sky.store.tx import Born, Moved

SHA = "a" * 64


def empty(path: Path) -> str:
    """Make an empty SQLite database of the newest schema at ``path``; returns its URL."""
    return fresh(path, postgresql=False)


def wakes(about: Born | Moved) -> Iterator[str]:
    """Every birth and every fact makes one key due and knocks once."""
    yield f"looked/{about.row['id']}"
    yield f"~knock/{about.row['id']}"


def inline(url: str, clock: ManualClock | None = None) -> Database:
    """A database that works in its caller, without threads."""
    return Database(url, clock or ManualClock(), wakes, threaded=False)


def contents(db: Database) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that is kept, to be compared."""
    engine = sa.create_engine(db.url)
    try:
        with engine.connect() as connection:
            return {
                table.name: [
                    tuple(row) for row in connection.execute(sa.select(table).order_by(*table.primary_key))
                ]
                for table in schema.metadata.sorted_tables
            }
    finally:
        engine.dispose()


def compute_row(key: str = "cmp_1", **more: Any) -> dict[str, Any]:
    """A compute as it is born."""
    row: dict[str, Any] = {
        "id": key,
        "state": "requested",
        "version": 1,
        "revision": 1,
        "spec": {"nodes": {"desired": 1}},
        "generation": 1,
        "observed_generation": 0,
        "target_nodes": 1,
        "lease_owner": None,
        "owner": None,
        "created_us": 1,
    }
    return {**row, **more}


def node_row(key: str = "nod_1", **more: Any) -> dict[str, Any]:
    """A node as it is born."""
    row: dict[str, Any] = {
        "id": key,
        "compute_id": "cmp_1",
        "rank": 0,
        "generation": 1,
        "state": "requested",
        "version": 1,
        "revision": 1,
        "price_micro": 0,
        "token": SHA,
        "heard": 0,
        "slots": 0,
        "window": 0,
        "created_us": 1,
    }
    return {**row, **more}


def task_row(key: str = "tsk_1", **more: Any) -> dict[str, Any]:
    """A task as it is born."""
    row: dict[str, Any] = {
        "id": key,
        "compute_id": "cmp_1",
        "generation": 1,
        "function_sha256": SHA,
        "args_sha256": SHA,
        "dispatch": "one",
        "state": "queued",
        "version": 1,
        "safe_retries": 3,
        "ambiguous_retries": 0,
        "correlation_id": None,
        "owner": None,
        "consumed": 0,
        "submitted_us": 1,
    }
    return {**row, **more}


def execution_row(key: str = "exe_1", **more: Any) -> dict[str, Any]:
    """An execution as it is born."""
    row: dict[str, Any] = {
        "id": key,
        "task_id": "tsk_1",
        "compute_id": "cmp_1",
        "ordinal": 1,
        "place": 0,
        "rank": 0,
        "state": "created",
        "version": 1,
        "console_lines": 0,
        "items": 0,
        "created_us": 1,
    }
    return {**row, **more}


def account_row(key: str, *, state: str = "active", **more: Any) -> dict[str, Any]:
    """An account."""
    row = {"id": key, "name": key, "state": state, "version": 1, "enabled": True, "created_us": 1}
    return {**row, **more}


def job_row(key: str, *, state: str = "queued", **more: Any) -> dict[str, Any]:
    """A paid job that costs a dollar an hour."""
    row = {
        "id": key,
        "owner": "account:acc_1",
        "key_id": "key_1",
        "backend": "local",
        "state": state,
        "version": 1,
        "sku": "cpu-small",
        "tier": "neocloud",
        "gpu_count": 0,
        "interruptible": False,
        "price_micro": 1_000_000,
        "machines": [],
        "spec": {"image": "local", "command": ["true"], "max_runtime_seconds": 60},
        "labels": {},
        "max_runtime_seconds": 60,
        "holds": 1,
        "truncated": False,
        "created_us": 1,
    }
    return {**row, **more}


def request_row(key: str, *, state: str = "PENDING", **more: Any) -> dict[str, Any]:
    """A request for nothing."""
    row = {"id": key, "name": "status", "state": state, "version": 1, "owner": "ann", "body": {}, "tries": 0}
    return {**row, "created_us": 1, **more}


def cluster_row(key: str, *, state: str = "INIT", **more: Any) -> dict[str, Any]:
    """A cluster of one node."""
    row = {
        "id": key,
        "name": key,
        "state": state,
        "version": 1,
        "owner": "ann",
        "compute_id": "cmp_1",
        "num_nodes": 1,
        "resources": {},
        "specs": [],
        "autostop_minutes": -1,
        "autostop_down": False,
        "next_job": 1,
        "created_us": 1,
        "launched_us": 1,
        "busy_us": 1,
    }
    return {**row, **more}


def cluster_job_row(key: str, *, state: str = "INIT", **more: Any) -> dict[str, Any]:
    """A job of a cluster of its own."""
    row = {
        "id": key,
        "cluster_id": f"clu_of_{key}"[:40],
        "number": 1,
        "owner": "ann",
        "state": state,
        "version": 1,
        "body": {},
        "num_nodes": 1,
        "gpus": 0,
        "submitted_us": 1,
    }
    return {**row, **more}


ROWS: Mapping[str, Any] = {
    "requests": request_row,
    "clusters": cluster_row,
    "cluster_jobs": cluster_job_row,
    "accounts": account_row,
    "jobs": job_row,
    "computes": compute_row,
    "nodes": node_row,
    "tasks": task_row,
    "executions": execution_row,
}
