"""Machines for a task before anything is bought: which would do, which one is taken, and why no other.

Decides: how long a question waits for offers that are too old. Never: keeps another request waiting, or asks
a provider itself (the loop of offers does). Follows: what is chosen by price is what the engine buys; a
launch for which nothing can ever do fails before it has a cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from sky.domain import price_list
from sky.domain.money import to_usd
from sky.domain.offer import Offer
from sky.domain.provider import Rules
from sky.domain.request_errors import RequestFailure
from sky.kit.clock import SECOND_US
from sky.plan import optimize as plan
from sky.plan.offer import Chosen
from sky.store import passes, snapshots, specs
from sky.store.rows import clusters, requests
from sky.store.sql import Row
from sky.store.tx import Tx
from sky.verbs import clusters as verbs
from sky.verbs import machines, storages
from sky.wire import requests as wire
from sky.wire.request_answers import Candidate, Optimized, PassedOver

Minimize = Literal["COST", "TIME"]
WAIT_US = 10 * SECOND_US
LOOK_AGAIN_US = SECOND_US
UNTOLD_AGAIN_US = SECOND_US // 5
"""How soon a question looks whether what it waits for is there, where it is told of that and where not."""
ROWS_MAX = 10
HEADS = ("INFRA", "INSTANCE", "vCPUs", "MEM(GB)", "ACCELERATORS", "COST($/h)", "CHOSEN")


class NotYet(Exception):
    """A request waits for something, until it is told or the moment has come."""

    def __init__(self, why: str, until_us: int) -> None:
        super().__init__(why)
        self.why = why
        self.until_us = until_us


@dataclass(frozen=True, slots=True)
class Found:
    """What would do for a task, and what the engine is to be asked for."""

    told: Optimized
    asked: machines.Asked


def wait_for(tx: Tx, row: Row, keys: Sequence[str], what: str, again_us: int = LOOK_AGAIN_US) -> None:
    """Have loops look at these keys, until each has since the request was made; not for ever.

    ``again_us``: how soon to look again without being told. Raises NotYet.
    """
    notes = {key: passes.row(tx.connection, key) for key in keys}
    left = {key: note for key, note in notes.items() if not _looked(note, row["created_us"])}
    until_us = row["created_us"] + WAIT_US
    if not left or tx.now_us >= until_us:
        return
    for key, note in left.items():
        if note is None or note.due_us is None or note.due_us > tx.now_us:
            tx.touch(key)
    raise NotYet(f"waits for {what}", min(until_us, tx.now_us + again_us))


def _looked(note: passes.PassRow | None, since_us: int) -> bool:
    return note is not None and note.decided_us is not None and note.decided_us >= since_us


def optimize(tx: Tx, row: Row, body: wire.OptimizeBody, rules: Rules) -> list[Optimized]:
    """The machines of each task. Raises RequestFailure, NotYet."""
    return [_find(tx, row, task, rules, body.minimize).told for task in body.tasks]


def validate(tx: Tx, row: Row, body: wire.ValidateBody, rules: Rules) -> None:
    """All that a launch would refuse before it buys. Raises RequestFailure, NotYet."""
    for task in body.tasks:
        storages.check(tx, row["owner"], task)
        _find(tx, row, task, rules, "COST")


def for_launch(tx: Tx, row: Row, body: wire.LaunchBody, rules: Rules) -> machines.Asked | None:
    """What a launch asks the engine for, once its lines tell of it; None: its cluster is there.

    Raises RequestFailure, NotYet.
    """
    storages.check(tx, row["owner"], body.task)
    name = body.cluster_name
    if name is not None and clusters.named(tx.connection, name) is not None:
        verbs.usable(tx, name, row["owner"], body.task, resize=body.resize)
        return None
    found = _find(tx, row, body.task, rules, body.optimize_target)
    requests.say(tx, row["id"], *lines(found.told))
    return found.asked


def for_exec(tx: Tx, row: Row, body: wire.ExecBody) -> None:
    """All that an exec would be refused for. Raises RequestFailure."""
    storages.check(tx, row["owner"], body.task)
    verbs.usable(tx, body.cluster_name, row["owner"], body.task, up=True)


def _find(tx: Tx, row: Row, task: wire.TaskConfig, rules: Rules, minimize: Minimize) -> Found:
    asked = machines.asked(tx, task, rules)
    spec: dict[str, Any] = msgspec.to_builtins(verbs.spec_of(asked, task.num_nodes))
    wanted = specs.wanted_of(spec, asked.narrow)
    known, sources = snapshots.offers_of(tx.connection, wanted, tx.now_us)
    fresh = all(one.fresh for one in sources)
    if not fresh or not sources:
        wait_for(tx, row, [f"offers/{one.id}" for one in sources], "what its providers offer")
    silent = frozenset(one.id for one in sources if one.error is not None)
    ranked = plan.rank(known, wanted, by_time=minimize == "TIME", silent=silent)
    turned = tuple(PassedOver(what=one.what, reason=one.reason) for one in asked.turned)
    passed = (*turned, *(PassedOver(what=what, reason=why) for what, why in ranked.passed))
    if not ranked.candidates:
        errors = () if fresh else [f"{one.name}: {one.error}" for one in sources if one.error is not None]
        why = plan.nothing(known, wanted, ranked.passed, price_list.accelerators(), errors)
        why = "; ".join((why, *(f"{one.what}: {one.reason}" for one in asked.turned)))
        told = [f"{one.what}: {one.reason}" for one in passed]
        raise RequestFailure("ResourcesUnavailableError", why, failover_history=told, later=ranked.later)
    shown = tuple(
        _candidate(one, task.num_nodes, chosen=place == 0) for place, one in enumerate(ranked.candidates)
    )
    told = Optimized(
        name=task.name, num_nodes=task.num_nodes, chosen=shown[0], candidates=shown, passed_over=passed
    )
    if minimize == "TIME":
        asked = asked.pinned([(one.alternative, _pick(one)) for one in ranked.candidates])
    return Found(told, asked)


def _pick(one: Chosen) -> dict[str, Any]:
    offer = one.offer
    return {
        "provider_id": offer.provider_id,
        "instance_type": offer.instance_type,
        "region": offer.region,
        "market": one.market,
    }


def _candidate(one: Chosen, num_nodes: int, *, chosen: bool) -> Candidate:
    offer: Offer = one.offer
    return Candidate(
        infra=offer.provider_name,
        instance_type=offer.instance_type,
        cpus=offer.cpus,
        memory_gb=offer.memory_gb,
        hourly_cost=to_usd(one.price_micro),
        total_cost=to_usd(one.price_micro * num_nodes),
        region=offer.region,
        accelerator=offer.accelerator,
        accelerator_count=offer.accelerator_count if offer.accelerator else 0,
        use_spot=one.market == "spot",
        chosen=chosen,
    )


def lines(told: Optimized) -> list[str]:
    """The table of what would do, as lines for people."""
    rows = [HEADS, *(_cells(one) for one in told.candidates[:ROWS_MAX])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    title = f"machines for {told.name or 'the task'}, {told.num_nodes} of one kind:"
    more = len(told.candidates) - ROWS_MAX
    return [
        title,
        *(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ),
        *([f"and {more} more"] if more > 0 else []),
    ]


def _cells(one: Candidate) -> tuple[str, ...]:
    where = f"{one.infra}/{one.region}" if one.region and one.region != one.infra else one.infra
    return (
        where,
        one.instance_type + ("[spot]" if one.use_spot else ""),
        f"{one.cpus:g}",
        f"{one.memory_gb:g}",
        f"{one.accelerator}:{one.accelerator_count}" if one.accelerator else "-",
        f"{one.total_cost:.2f}",
        "*" if one.chosen else "",
    )
