"""Carries out what a node needs: buy its machine, ask after it, give it back.

Decides: what an answer of a provider means for the row. Never: buys without the row saying what, or calls a
machine gone that its provider still has. Follows: each pass makes one call, which may be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

from sky.domain import compute as c
from sky.domain import node as n
from sky.domain.lifecycle import Fact
from sky.domain.offer import Cause, named, plainly, turned
from sky.domain.snapshots import DiskView, NodeCase, NodeView
from sky.kit import faults
from sky.kit.clock import SECOND_US, Clock
from sky.plan import node as plan
from sky.providers.base import (
    AgainLater,
    AgentSetup,
    Gone,
    LaunchOrder,
    Machine,
    Provider,
    Refused,
    RefusedCode,
    keeper_of,
)
from sky.reconcile.passes import Done, OuterLoop
from sky.reconcile.pool import ProviderPool
from sky.store import passes, snapshots
from sky.store.db import Database
from sky.store.rows import computes, disks, nodes, providers
from sky.store.sql import Row, Snapshot
from sky.store.tx import ConflictError, Tx
from sky.verbs.attempts import error_value

CALL_S_MAX = 120.0
PREEMPTED = "preempted"
"""How a provider begins what it says of a machine that it has taken back."""
ENDING_FIRST_US = 50_000
ENDING_LONGEST_US = 5 * SECOND_US
REFUSED_AGAIN_US = 30 * SECOND_US

ALIKE: tuple[RefusedCode, ...] = ("capacity", "quota", "unauthorized")
"""Refusals that whoever else asked for the same machine would have too."""
FIRST_LEASE_S_MIN = 120
"""How long an agent has to be heard for the first time, however short its lease is from then on."""

AgentFor = Callable[[str, NodeCase], AgentSetup]
"""What the agent of a node (by id) is told at its start."""


@dataclass(frozen=True, slots=True)
class _Launched:
    machine: Machine | None = None
    refused: Refused | None = None
    again: str | None = None
    after_us: int = 0


class Nodes(OuterLoop):
    """One pass: read a node and what its compute wants, plan, at most one call, write."""

    name: ClassVar[str] = "nodes"
    idle: ClassVar[str] = "there are no nodes"

    def __init__(self, db: Database, clock: Clock, pool: ProviderPool, agent_for: AgentFor) -> None:
        self._db = db
        self._clock = clock
        self._pool = pool
        self._agent_for = agent_for
        self._listening_us = 0

    async def look(self, key_id: str) -> Done:
        now_us = self._clock.now_us()
        self._listening_us = self._listening_us or now_us
        case, seller = await self._db.read(lambda c: self._read(c, key_id, now_us))
        if case is None:
            return Done("there is no such node")
        decision = plan.plan(case, now_us)
        action = decision.actions[0] if decision.actions else None
        match action:
            case plan.Launch():
                return await self._launch(case, seller)
            case plan.Probe():
                return await self._probe(case, seller, now_us, decision.next_us, decision.why)
            case plan.Terminate():
                return await self._terminate(case, seller, now_us)
            case plan.FetchOffers(provider_ids):
                return Done(decision.why, decision.next_us, lambda tx: _fetch(tx, provider_ids))
            case n.NodeBound() as fact:
                keeps = case.keeps_disk and await self._keeps_disks(fact.provider_id, fact.market)
                return Done(decision.why, decision.next_us, lambda tx: _bind(tx, case.node, fact, keeps))
            case Fact() as fact:
                return Done(decision.why, decision.next_us, lambda tx: _apply(tx, case.node, fact))
            case _:
                return Done(decision.why, decision.next_us)

    def _read(self, connection: Snapshot, node_id: str, now_us: int) -> tuple[NodeCase | None, Row | None]:
        """A node's case, and the row of the provider that it is of."""
        case = snapshots.node_case(connection, node_id, now_us, self._listening_us)
        of = None if case is None else case.node.provider_id
        return case, None if of is None else providers.find(connection, of)

    async def _keeps_disks(self, provider_id: str, market: str) -> bool:
        """Whether the disk of a machine that is bought there can outlive it."""
        try:
            can = (await self._pool.get(provider_id)).capabilities
            return can.keeps_disks and (market != "spot" or can.spot_keeps_disks)
        except (Refused, Gone):
            return False

    # ── buying ──────────────────────────────────────────────────────────────────────────────────

    async def _launch(self, case: NodeCase, seller: Row | None) -> Done:
        node = case.node
        if node.offer is None or node.market is None or node.provider_id is None:
            msg = f"node {node.id} is provisioning without an offer"
            raise RuntimeError(msg)
        order = LaunchOrder(
            tag=node.id,
            offer=node.offer,
            market="spot" if node.market == "spot" else "on_demand",
            agent=self._agent_for(node.id, case),
            ttl_seconds=max(case.ttl_us // SECOND_US, FIRST_LEASE_S_MIN) if case.ttl_us else 0,
            disk=None if (disk := _disk(case)) is None else disk.name,
        )
        answer = await self._buy(node.provider_id, seller, order)
        now_us = self._clock.now_us()  # the answer may have taken a while
        if answer.machine is not None:
            return self._bought(case, answer.machine, now_us)
        if answer.refused is not None:
            return self._refused(case, answer.refused, now_us)
        error = error_value("busy", f"{node.offer.provider_name}: {answer.again}", retryable=True)
        note = n.NodeNoted(node.id, error)
        first = (node.last_error or {}).get("message") != error["message"]

        def write(tx: Tx) -> None:
            _apply(tx, node, note)
            if first:
                # Whoever chooses next ought to know whether this provider answers at all.
                _fetch(tx, (order.offer.provider_id,))

        return Done(f"buying it gave no answer: {answer.again}", now_us + answer.after_us, write)

    async def _buy(self, provider_id: str, seller: Row | None, order: LaunchOrder) -> _Launched:
        try:
            provider = await self._pool.of(provider_id, seller)
            async with asyncio.timeout(CALL_S_MAX):
                machine = await provider.launch(order)
        except Refused as error:
            return _Launched(refused=error)
        except Gone as error:
            return _Launched(refused=Refused(error.message, "capacity"))
        except AgainLater as error:
            return _Launched(again=error.message, after_us=round(error.after_s * SECOND_US))
        except TimeoutError:
            return _Launched(again=f"no answer within {CALL_S_MAX:g} s", after_us=SECOND_US)
        faults.point("machine bought, not written down")
        return _Launched(machine=machine)

    def _bought(self, case: NodeCase, machine: Machine, now_us: int) -> Done:
        node = case.node
        if machine.state == "gone":
            error = error_value("node_lost", f"its machine ended at once: {machine.reason}", retryable=True)
            return Done(
                "its machine ended at once",
                None,
                lambda tx: _apply(tx, node, n.NodeBroken(node.id, now_us, error)),
            )
        launched_us = machine.launched_us or now_us
        fact = n.NodeLaunched(
            node.id,
            machine=machine.id,
            address=machine.address,
            binding=machine.binding,
            # Its provider's clock is not ours: a moment that cannot be is none.
            launched_us=launched_us if node.created_us <= launched_us <= now_us else now_us,
            connect_deadline_us=now_us + case.connect_timeout_us,
        )
        disk = _disk(case)

        def write(tx: Tx) -> None:
            _apply(tx, node, fact)
            if disk is not None:
                disks.use(tx, disk.name)

        return Done(f"machine {machine.id} is there", now_us + plan.PROBE_COMING_US, write)

    def _refused(self, case: NodeCase, refused: Refused, now_us: int) -> Done:
        node = case.node
        offer = node.offer
        name = "?" if offer is None else named(offer)
        entry = {
            "offer": None if offer is None else offer.id,
            "market": node.market,
            "reason": refused.message if offer is None else turned(offer, refused.message),
            "plain": None if offer is None else plainly(offer.kind, offer.region, _cause(refused)),
            "until_us": now_us + plan.PASSED_OVER_US,
            "alike": refused.code in ALIKE and _disk(case) is None,
        }
        same = (entry["offer"], entry["market"])
        others = [p for p in node.passed_over if (p["offer"], p["market"]) not in (same, (None, None))]
        del others[: -plan.REASONS_MAX]
        message = f"{name} was refused: {refused.message}"
        error = error_value("provider_refused", message, retryable=True, reason=refused.code)
        fact = n.NodePassedOver(node.id, [*others, entry], error)
        disk = _disk(case)

        def write(tx: Tx) -> None:
            _apply(tx, node, fact)
            if disk is not None:
                disks.give_up(tx, disk.name, node.id)

        return Done(message, None, write)

    # ── asking after it ─────────────────────────────────────────────────────────────────────────

    async def _probe(
        self, case: NodeCase, seller: Row | None, now_us: int, next_us: int | None, why: str
    ) -> Done:
        node = case.node
        try:
            provider = await self._pool.of(node.provider_id or "", seller)
            async with asyncio.timeout(CALL_S_MAX):
                machine = await provider.find(node.id)
        except (AgainLater, Refused, Gone, TimeoutError) as error:
            return Done(f"{why}; its provider does not say: {error}", next_us)
        if machine is not None and machine.state != "gone":
            return _waits(node, machine.reason, why, next_us)
        if machine is None and not self._settled(provider, case.answered_us, now_us):
            return Done(f"{why}; not listed yet", next_us)
        reason = (machine.reason if machine else None) or "its provider no longer has it"
        error = error_value("node_lost", f"the machine of node {node.id} is gone: {reason}", retryable=True)
        if node.ready_us is None:
            # A machine that was taken away says nothing about whether another one will do.
            code = "node_lost" if reason.partition(":")[0] == PREEMPTED else "capability_mismatch"
            broken = error_value(code, f"node {node.id} ended before it was ready: {reason}", retryable=True)
            return Done(reason, None, lambda tx: _apply(tx, node, n.NodeBroken(node.id, now_us, broken)))
        return Done(reason, None, lambda tx: _apply(tx, node, n.NodeLost(node.id, error, now_us)))

    def _settled(self, provider: Provider, launched_us: int, now_us: int) -> bool:
        """Whether a machine launched then would be listed by now.

        What passed before this daemon listened does not count: somebody may have set the clock between two
        daemons, and a machine of a moment ago would be called gone while it runs.
        """
        since_us = max(launched_us, self._listening_us)
        return now_us - since_us >= provider.capabilities.settle_seconds * SECOND_US

    # ── giving it back ──────────────────────────────────────────────────────────────────────────

    async def _terminate(self, case: NodeCase, seller: Row | None, now_us: int) -> Done:
        node = case.node
        try:
            provider = await self._pool.of(node.provider_id or "", seller)
            async with asyncio.timeout(CALL_S_MAX):
                disk = _disk(case)
                keeps = case.accepting and disk is not None and not disk.going
                await _end(provider, node, keep_disk=keeps)
                faults.point("machine given back, not written down")
                machine = await provider.find(node.id)
        except (AgainLater, Refused, Gone, TimeoutError) as error:
            return self._not_given_back(case, str(error) or type(error).__name__, now_us)
        # Where no answer to a launch was ever seen, one may have been on its way until the end was asked for.
        asked_us = case.answered_us if node.machine else node.deleting_us or node.created_us
        listed = machine is not None or self._settled(provider, asked_us, now_us)
        if listed and (machine is None or machine.state == "gone"):
            gone = n.NodeDeleted(node.id, now_us)
            return Done("its provider says that it is gone", None, lambda tx: _apply(tx, node, gone))
        waited = now_us - (node.deleting_us or now_us)
        again = min(max(ENDING_FIRST_US, waited // 4), ENDING_LONGEST_US)
        return Done("its machine is still ending", now_us + again)

    def _not_given_back(self, case: NodeCase, why: str, now_us: int) -> Done:
        node = case.node
        message = f"node {node.id} could not be given back and still costs: {why}"
        error = error_value("release_pending", message, retryable=True)
        waited = now_us - (node.deleting_us or now_us)
        again = min(max(SECOND_US, waited // 4), REFUSED_AGAIN_US)

        def write(tx: Tx) -> None:
            _apply(tx, node, n.NodeDeletionFailed(node.id, error))
            known = (node.last_error or {}).get("message") == message
            if not known and computes.state_of(tx.connection, node.compute_id) == c.DELETING:
                tx.apply(c.DeletionFailed(node.compute_id, error))

        return Done(message, now_us + again, write)


def _waits(node: NodeView, reason: str | None, why: str, next_us: int | None) -> Done:
    """The machine is there. Why it does not run yet is written down, for whoever asks."""
    if reason is None or node.state != n.CONNECTING:
        return Done(why, next_us)
    message = f"its machine does not run yet: {reason}"
    if (node.last_error or {}).get("message") == message:
        return Done(f"{why}; {message}", next_us)
    noted = n.NodeNoted(node.id, error_value("busy", message, retryable=True, reason=plan.COMING))
    return Done(f"{why}; {message}", next_us, lambda tx: _apply(tx, node, noted))


def _cause(refused: Refused) -> Cause:
    return "full" if refused.code in ("capacity", "quota") else "refused"


def _disk(case: NodeCase) -> DiskView | None:
    """The disk that this node's machine is bought with, or was."""
    disk = case.disk
    return disk if disk is not None and disk.provider_id == case.node.provider_id else None


async def _end(provider: Provider, node: NodeView, *, keep_disk: bool) -> None:
    """Ask for the end of a node's machine; of a kind that keeps no disks, nothing is asked but that."""
    keeper = keeper_of(provider)
    if keeper is None:
        await provider.terminate(node.id, node.machine)
    else:
        await keeper.terminate(node.id, node.machine, keep_disk=keep_disk)


def _bind(tx: Tx, node: NodeView, fact: n.NodeBound, keeps_disk: bool) -> None:
    """Write down what will be bought, and with which disk; the first time, it is the compute's news too."""
    first = not nodes.any_bound(tx.connection, node.compute_id)
    _apply(tx, node, fact)
    if keeps_disk:
        disks.hold(tx, node.compute_id, node.rank, node.id, fact.offer)
    if first:
        tx.apply(c.ComputeBound(node.compute_id))


def _apply(tx: Tx, node: NodeView, fact: Fact) -> None:
    """Write a fact down, if the node is still as it was when that was decided; else it is looked at anew."""
    now = nodes.news(tx.connection, node.id)
    if now is None or now["state"] != node.state:
        msg = f"node {node.id} was {node.state} and is {now and now['state']}"
        raise ConflictError(msg)
    tx.apply(fact)


def _fetch(tx: Tx, provider_ids: Iterable[str]) -> None:
    for provider_id in provider_ids:
        passes.begin(tx, f"offers/{provider_id}")
