"""Clusters and their jobs as the records that requests answer with.

Decides: the fields of a record. Never: decides a state. Follows: what a cluster costs is the sum of its
machines (``cluster_costs``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from sky.domain.cluster import STOPPING
from sky.domain.money import to_usd
from sky.domain.offer import whereabouts
from sky.kit.clock import SECOND_US
from sky.store.rows import clusters
from sky.store.sql import Row
from sky.store.views.cluster_costs import usages
from sky.store.views.cluster_texts import asked_for, resources_text

CLUSTERS_MAX = 10_000
JOBS_MAX = 10_000


def handle(connection: sa.Connection, row: Row) -> dict[str, Any]:
    """What names a cluster to its user."""
    return _handle(row, clusters.ready_nodes(connection, row["compute_id"]))


def _handle(row: Row, ready: Sequence[Row]) -> dict[str, Any]:
    return {
        "cluster_name": row["name"],
        "cluster_id": row["id"],
        "compute_id": row["compute_id"],
        "launched_nodes": row["num_nodes"],
        "nodes": [
            {"rank": node["rank"], "address": node["address"], "instance_type": _at(node)["instance_type"]}
            for node in ready
        ],
    }


def status(
    connection: sa.Connection, owner: str | None, names: Sequence[str] | None, now_us: int
) -> list[dict[str, Any]]:
    """Records of live clusters, newest first: those with these names, or all."""
    shown = clusters.live(connection, owner, names, CLUSTERS_MAX)
    used = usages(connection, [row["id"] for row in shown], now_us)
    computes = [row["compute_id"] for row in shown]
    ready, errors = clusters.ready_of(connection, computes), clusters.errors_of(connection, computes)
    return [
        _record(row, ready[row["compute_id"]], errors.get(row["compute_id"]), used[row["id"]].cost_micro)
        for row in shown
    ]


def _record(
    row: Row, ready: Sequence[Row], error: Mapping[str, Any] | None, cost_micro: int
) -> dict[str, Any]:
    """A cluster as it is shown: ``ready`` are its nodes, ``error`` what its compute last met."""
    first: Mapping[str, Any] = ready[0] if ready else {}
    return {
        "name": row["name"],
        "launched_at": row["launched_us"] // SECOND_US,
        "handle": _handle(row, ready),
        "last_use": row["last_use"],
        "status": "AUTOSTOPPING" if row["state"] == STOPPING else row["state"],
        "autostop": row["autostop_minutes"],
        "to_down": row["autostop_down"],
        "user_name": row["owner"],
        "nodes": row["num_nodes"],
        "nodes_ready": len(ready),
        "resources": asked_for(row),
        "resources_str": resources_text(row["num_nodes"], row["resources"]["machines"]),
        "cloud": first.get("provider_kind"),
        "region": _at(first)["region"],
        "instance_type": _at(first)["instance_type"],
        "price_per_hour": to_usd(sum(node["price_micro"] for node in ready)),
        "cost": to_usd(cost_micro),
        "status_message": None if error is None or row["state"] == "UP" else error["message"],
        "cluster_id": row["id"],
    }


def queue(connection: sa.Connection, row: Row, *, skip_finished: bool) -> list[dict[str, Any]]:
    """A cluster's jobs, newest first."""
    found = clusters.shown_jobs(connection, row["id"], JOBS_MAX, open_only=skip_finished)
    return [
        {
            "job_id": job["number"],
            "job_name": job["name"],
            "username": job["owner"],
            "submitted_at": _seconds(job["submitted_us"]),
            "start_at": _seconds(job["started_us"]),
            "end_at": _seconds(job["ended_us"]),
            "resources": resources_text(job["num_nodes"], job["machines"] or ()),
            "status": job["state"],
            "log_path": f"~/sky_logs/{row['name']}/{job['number']}",
            "exit_codes": job["exit_codes"],
            "error": None if job["error"] is None else job["error"]["message"],
        }
        for job in found
    ]


def job_states(connection: sa.Connection, row: Row, numbers: Sequence[int] | None) -> dict[str, str | None]:
    """The states of jobs by their numbers; none named: of the newest."""
    if numbers is None:
        newest = clusters.newest_job(connection, row["id"])
        return {} if newest is None else {str(newest["number"]): newest["state"]}
    found = clusters.job_states(connection, row["id"], numbers)
    return {str(number): found.get(number) for number in numbers}


def _at(node: Mapping[str, Any]) -> dict[str, Any]:
    return whereabouts(node.get("provider_kind"), node.get("offer"), node.get("binding"))


def _seconds(moment_us: int | None) -> float | None:
    return None if moment_us is None else moment_us / SECOND_US
