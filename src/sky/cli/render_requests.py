"""How clusters, their jobs, requests, candidates and costs look to people.

Decides: which facts are shown, and in which words. Never: asks the server, or writes.
Follows: a row fits 80 columns, and the same fact looks the same in every command.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, cast

from sky.cli import render
from sky.cli.output import Cell

GOOD = frozenset({"UP", "SUCCEEDED", "RUNNING"})
BAD = frozenset({"FAILED", "FAILED_SETUP", "FAILED_DRIVER"})
DIM = frozenset({"STOPPED", "CANCELLED", "TERMINATED"})
DAY_MINUTES = 24 * 60

CLUSTER_HEADINGS = ("NAME", "INFRA", "RESOURCES", "STATUS", "AUTOSTOP", "$/H", "LAUNCHED")
JOB_HEADINGS = ("ID", "NAME", "SUBMITTED", "STARTED", "DURATION", "RESOURCES", "STATUS", "EXIT")
REQUEST_HEADINGS = ("ID", "NAME", "CLUSTER", "USER", "CREATED", "TOOK", "STATUS")
CANDIDATE_HEADINGS = ("INFRA", "INSTANCE", "vCPUs", "MEM(GB)", "ACCELERATORS", "COST($/h)", "CHOSEN")
COST_HEADINGS = ("NAME", "LAUNCHED", "DURATION", "RESOURCES", "STATUS", "COST")


def word(value: object) -> str:
    """A state as text, whether it comes as a member of an enumeration or as it is."""
    return str(value.value) if isinstance(value, Enum) else str(value)


def state(value: object) -> Cell | None:
    """A state in its colour."""
    if value is None:
        return None
    name = word(value)
    style = "good" if name in GOOD else "bad" if name in BAD else "dim" if name in DIM else "busy"
    return Cell(name, style)


def moment(seconds: float | None) -> datetime | None:
    """A moment of the interface."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def ago(seconds: float | None) -> str | None:
    """How long ago a moment was."""
    shown = render.ago(moment(seconds))
    return f"{shown} ago" if shown else None


def minutes(count: int) -> str:
    """A number of minutes."""
    if count >= DAY_MINUTES and count % DAY_MINUTES == 0:
        return f"{count // DAY_MINUTES}d"
    return f"{count // 60}h" if count >= 60 and count % 60 == 0 else f"{count}m"


def idle(autostop: int | None, down: bool) -> str | None:
    """What happens to an idle cluster."""
    if autostop is None or autostop < 0:
        return None
    return f"{minutes(autostop)}{' (down)' if down else ''}"


def infra(record: Mapping[str, Any]) -> str | None:
    """Where a cluster is."""
    parts = [str(part) for part in (record.get("cloud"), record.get("region"), record.get("zone")) if part]
    return "/".join(dict.fromkeys(parts)) or None


def machines(record: Mapping[str, Any]) -> str:
    """What a cluster is made of: ``2x 4 CPUs, A100:8``."""
    said = record.get("resources_str")
    if isinstance(said, str) and said:
        return said
    told = record.get("resources")
    if isinstance(told, str):
        return told
    count = record.get("nodes") or record.get("num_nodes") or 1
    listed = cast("Mapping[str, Any]", told).get("machines") if isinstance(told, Mapping) else None
    first: Mapping[str, Any] = cast("Sequence[Mapping[str, Any]]", listed)[0] if listed else {}
    parts = [
        str(record["instance_type"]) if record.get("instance_type") else "",
        f"{first['cpus']:g} CPUs" if first.get("cpus") else "",
        f"{first['accelerator']}:{first.get('accelerator_count', 1)}" if first.get("accelerator") else "",
        "spot" if first.get("use_spot") else "",
    ]
    shown = ", ".join(part for part in parts if part)
    return f"{count}x {shown}" if shown else f"{count}x"


def cluster_row(record: Mapping[str, Any], *, users: bool) -> tuple[object, ...]:
    """One line of ``sky status``."""
    row = (
        record["name"],
        infra(record),
        machines(record),
        state(record["status"]),
        idle(record.get("autostop"), bool(record.get("to_down"))),
        render.money(record.get("price_per_hour")),
        ago(record.get("launched_at")),
    )
    return (row[0], record.get("user_name"), *row[1:]) if users else row


def cluster_headings(*, users: bool) -> tuple[str, ...]:
    """The line above."""
    return (CLUSTER_HEADINGS[0], "USER", *CLUSTER_HEADINGS[1:]) if users else CLUSTER_HEADINGS


def cluster_pairs(record: Mapping[str, Any]) -> Iterable[tuple[str, object]]:
    """All of one cluster, for ``sky status --verbose``."""
    yield "name", record["name"]
    yield "status", state(record["status"])
    if record.get("status_message"):
        yield "why", Cell(record["status_message"], "bad")
    yield "infra", infra(record)
    yield "resources", machines(record)
    yield "nodes", f"{record.get('nodes_ready', 0)} of {record.get('nodes', 1)} ready"
    yield "autostop", idle(record.get("autostop"), bool(record.get("to_down"))) or "never"
    yield "per hour", render.money(record.get("price_per_hour"))
    if record.get("cost") is not None:
        yield "so far", render.money(record["cost"])
    yield "user", record.get("user_name")
    yield "launched", render.when(moment(record.get("launched_at")))
    yield "last use", record.get("last_use")
    yield "compute", _of_handle(record, "compute_id")


def _of_handle(record: Mapping[str, Any], name: str) -> object:
    handle = record.get("handle")
    if isinstance(handle, Mapping):
        return cast("Mapping[str, Any]", handle).get(name)
    return getattr(handle, name, None)


def head_address(record: Mapping[str, Any]) -> str | None:
    """Where the node of rank 0 is."""
    listed = cast("Sequence[Mapping[str, Any]] | None", _of_handle(record, "nodes"))
    first = next((node for node in listed or () if node["rank"] == 0), None)
    return None if first is None else first["address"]


def job_row(job: Mapping[str, Any], *, users: bool) -> tuple[object, ...]:
    """One line of ``sky queue``."""
    begun, ended = job.get("start_at"), job.get("end_at")
    last = ended if ended is not None else datetime.now(UTC).timestamp()
    codes = cast("Sequence[int | None] | None", job.get("exit_codes"))
    row = (
        job["job_id"],
        job.get("job_name"),
        ago(job.get("submitted_at")),
        ago(begun),
        render.span(max(0.0, last - begun)) if begun is not None else None,
        job.get("resources"),
        state(job["status"]),
        ",".join("?" if code is None else str(code) for code in codes) if codes else None,
    )
    return (*row[:2], job.get("username"), *row[2:]) if users else row


def job_headings(*, users: bool) -> tuple[str, ...]:
    """The line above."""
    return (*JOB_HEADINGS[:2], "USER", *JOB_HEADINGS[2:]) if users else JOB_HEADINGS


def request_row(record: Mapping[str, Any]) -> tuple[object, ...]:
    """One line of ``sky api status``."""
    begun, ended = record.get("created_at"), record.get("finished_at")
    took = None if begun is None or ended is None else render.span(max(0.0, ended - begun))
    return (
        record["request_id"],
        record["name"],
        record.get("cluster_name"),
        record.get("user") or record.get("user_name"),
        ago(begun),
        took,
        state(record["status"]),
    )


def cost_row(record: Mapping[str, Any]) -> tuple[object, ...]:
    """One line of ``sky cost-report``."""
    return (
        record["name"],
        ago(record.get("launched_at")),
        render.span(record.get("duration") or 0),
        machines(record),
        state(record["status"]) if record.get("status") else Cell("TERMINATED", "dim"),
        render.money(record.get("total_cost")),
    )


def memory(gigabytes: float | None) -> str | None:
    """An amount of memory."""
    return None if gigabytes is None else f"{gigabytes:g} GB"
