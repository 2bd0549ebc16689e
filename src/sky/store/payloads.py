"""What an event says about the row that moved.

Decides: the JSON of recorded events, in the shapes of ``wire/v1``. Never: which event a fact has (the
nouns' tables). Follows: a payload can be decoded on its own, by its ``type``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sky.domain import node as n
from sky.domain.lifecycle import Fact
from sky.domain.offer import cost, named, whereabouts
from sky.wire import v1

_FROM_AFAR: dict[v1.TaskState, v1.TaskEventState] = {
    "queued": "started",
    "running": "started",
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "failed",
    "timed_out": "failed",
    "indeterminate": "indeterminate",
}


def _message(error: Any) -> str | None:
    return None if error is None else str(error["message"])


def _passed_over(fact: n.NodeBound) -> str | None:
    """Why a node does not get what it would have got first, and what it gets; None: it does."""
    entries: list[Mapping[str, Any]] = fact.passed_over
    reasons = [one["reason"] for one in entries if one["offer"] is not None or one.get("earlier")]
    if not reasons:
        return None
    return f"passed over {'; '.join(reasons)}; takes {named(fact.offer)}, {cost(fact.offer)}"


def _found(fact: n.NodeLaunched) -> str | None:
    """Which machine it is, where its provider had the choice of the cloud; None: it is what was bought."""
    known: Mapping[str, Any] = fact.binding or {}
    if known.get("cloud") is None:
        return None
    where = whereabouts(None, None, known)
    hourly = known.get("hourly_usd")
    price = "" if hourly is None else f", {hourly:g} USD an hour"
    return f"is {where['cloud']}/{where['instance_type']} in {where['region']}{price}"


def _told(fact: Fact | None) -> str | None:
    match fact:
        case n.NodeBound():
            return _passed_over(fact)
        case n.NodeLaunched():
            return _found(fact)
        case _:
            return _message(getattr(fact, "last_error", None))


def payload_for(noun: str, name: str, row: Mapping[str, Any], fact: Fact | None) -> v1.Event:
    """The payload of the event ``name`` about ``row``, as that row is after ``fact``."""
    if noun == "computes":
        return _compute(name, row, fact)
    if noun == "nodes":
        return v1.NodeEvent(
            compute=row["compute_id"],
            node=row["id"],
            state=row["state"],
            error=_told(fact),
            rank=row["rank"],
        )
    now: v1.TaskState = row["state"]
    return v1.TaskEvent(compute=row["compute_id"], task=row["id"], state=_FROM_AFAR[now], now=now)


def _compute(name: str, row: Mapping[str, Any], fact: Fact | None) -> v1.Event:
    if name == "compute.abandoned":
        return v1.ComputeAbandoned(compute=row["id"])
    return v1.ComputeEvent(
        compute=row["id"],
        state=row["state"],
        error=_message(getattr(fact, "last_error", None)),
        generation=getattr(fact, "generation", None) or getattr(fact, "observed_generation", None),
        owner=getattr(fact, "lease_owner", None),
        count=getattr(fact, "target_nodes", None),
    )
