"""The nodes of a pool: where one is begun, where it is looked for, and what a host's silence means.

Decides: that a host which does not answer says nothing: its nodes are neither gone nor hidden. Never: waits
for one host because of another, or begins a node on a second host while the first may have it.
Follows: the host of a node is written down before it is asked, and forgotten when it says no.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any, TypeVar

from sky.domain.money import to_micro
from sky.domain.offer import Offer, offer_id
from sky.kit import agent_package, faults
from sky.kit.clock import SECOND_US
from sky.providers.base import AgainLater, LaunchOrder, Machine, Refused, Setup
from sky.providers.bootstrap import script
from sky.providers.ssh import pool as pools
from sky.providers.ssh.commands import Facts, Launched, Prepared, Seen
from sky.providers.ssh.failure import HostFailure
from sky.providers.ssh.gpus import gpus_of
from sky.providers.ssh.hosts import Reached, each, first
from sky.providers.ssh.pool import Pool
from sky.providers.ssh.records import TAG, Records
from sky.wire.hosts import SshConfig

ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}
SHARED = "shared"
RECORDS_KEPT_US = 7 * 86_400 * SECOND_US
T = TypeVar("T")
TOLD_HOSTS_MAX = 5


class Machines:
    """The calls of the provider. Raises AgainLater, Refused."""

    def __init__(self, setup: Setup, config: SshConfig) -> None:
        self._setup = setup
        self._config = config
        self._records = Records(setup.context.home, setup.provider_id, setup.context.clock)
        self._last_url = ""

    # ── offers ──────────────────────────────────────────────────────────────────────────────────

    async def offers(self) -> tuple[Offer, ...]:
        """One for every host: a place of it. One that does not answer is offered as it was last seen, or as
        its settings say, so that whoever tries it is told why."""
        pool = await self._pool()
        hosts = list(pool.hosts.values())
        answers = await each(hosts, _facts)
        failures = [answer for answer in answers if isinstance(answer, HostFailure)]
        found: list[Offer] = []
        for host, answer in zip(hosts, answers, strict=True):
            facts = host.remembered.facts if isinstance(answer, HostFailure) else answer
            offer = self._offer(host, facts, answers=not isinstance(answer, HostFailure))
            if offer is not None:
                found.append(offer)
        if not found:
            # Only where every one has refused us is the pool itself wrong.
            raise failures[0].refused() if all(one.code for one in failures) else AgainLater(_told(failures))
        return tuple(found)

    def _offer(self, host: Reached, facts: Facts | None, *, answers: bool) -> Offer | None:
        """A place of a host; None when nobody knows how large it is."""
        told, config = host.host, self._config
        cores = told.cpus or (facts.cores if facts else None)
        memory_gb = told.memory_gb or (facts.memory_gb if facts else None)
        if cores is None or memory_gb is None:
            return None
        places = told.max_nodes or config.max_nodes
        gpus = gpus_of(told.gpus, facts.gpus if facts else "")
        own = gpus.count // places
        price = config.price_per_hour_usd if told.price_per_hour_usd is None else told.price_per_hour_usd
        used = facts.used if facts else 0
        return Offer(
            id=offer_id(self._setup.provider_id, told.name, self._setup.name),
            provider_id=self._setup.provider_id,
            provider_name=self._setup.name,
            kind="ssh",
            instance_type=told.name,
            cpus=max(1, cores // places),
            memory_gb=round(memory_gb / places, 2),
            accelerator=gpus.name if own else None,
            accelerator_count=own,
            vram=gpus.vram_gb if own else None,
            disk_gb=facts.disk_gb if facts else None,
            architecture=ARCHITECTURES.get(facts.architecture, facts.architecture) if facts else None,
            region=self._setup.name,
            available=max(0, places - used) if answers else None,
            on_demand_micro=to_micro(Decimal(str(price)) / places),
            billing_unit="second",
            specific={"host": told.name, "gpus": own, "gpus_total": gpus.count, "labels": told.labels},
        )

    # ── beginning ───────────────────────────────────────────────────────────────────────────────

    async def launch(self, order: LaunchOrder) -> Machine:
        """The node of that tag, begun if there is none."""
        if not TAG.match(order.tag):
            raise Refused(f"'{order.tag}' cannot name a folder", "invalid_request", field="tag")
        pool = await self._pool()
        self._last_url = order.agent.url
        host = pool.hosts.get(order.offer.instance_type)
        elsewhere = await self._elsewhere(pool, order, host)
        if elsewhere is not None:
            return elsewhere
        if host is None:
            raise Refused(f"there is no host {order.offer.instance_type} any more", "capability_mismatch")
        before = _kept(lambda: self._records.host_of(order.tag))
        _kept(lambda: self._records.begins(order.tag, host.name))
        faults.point("ssh.launch.recorded")
        try:
            seen = await self._begin(pool, host, order)
        except HostFailure as failure:
            if failure.sent or before is not None:
                raise failure.again() from failure
            _kept(lambda: self._records.forget(order.tag))
            raise failure.refused() from failure
        except Refused:
            _kept(lambda: self._records.forget(order.tag))
            raise
        host.remembered.nodes[order.tag] = seen
        return self._machine(host, seen)

    async def _elsewhere(self, pool: Pool, order: LaunchOrder, wanted: Reached | None) -> Machine | None:
        """The machine of that tag on another host than the one that is wanted now."""
        name = _kept(lambda: self._records.host_of(order.tag))
        if name is None or (wanted is not None and name == wanted.name):
            return None
        found = await self.find(order.tag)
        if found is None:
            _kept(lambda: self._records.forget(order.tag))
        return found

    async def _begin(self, pool: Pool, host: Reached, order: LaunchOrder) -> Seen:
        """Prepare, bring what is lacking, begin. Raises HostFailure, Refused."""
        config, commands = self._config, host.commands
        places = host.host.max_nodes or config.max_nodes
        agents = await _digest()
        launched = Launched(
            instance_type=order.offer.instance_type,
            provider_id=order.offer.provider_id,
            launched_us=self._setup.context.clock.now_us(),
        )
        tried = config.daemon_url if config.tunnel == "auto" else None
        answer = await host.ask(commands.prepare(order.tag, launched, places, agents, tried))
        if (refusal := answer.refusal()) is not None:
            raise refusal.refused()
        prepared = answer.prepared()
        if prepared.seen is not None:
            return prepared.seen
        try:
            return await self._begin_prepared(pool, host, order, prepared)
        except HostFailure as failure:
            raise HostFailure(failure.message, code=failure.code, sent=True) from failure

    async def _begin_prepared(
        self, pool: Pool, host: Reached, order: LaunchOrder, prepared: Prepared
    ) -> Seen:
        config, commands, agents = self._config, host.commands, await _digest()
        tunnel = config.tunnel == "always" or (config.tunnel == "auto" and not prepared.reaches)
        try:
            url = await pool.tunnel(host, self._daemon_url).stand() if tunnel else config.daemon_url
            await _bring(host, prepared, agents)
        except HostFailure as failure:
            if failure.sent and failure.code is None:
                raise
            # Nothing has begun, and what was prepared goes.
            await host.ask(commands.drop(order.tag))
            raise failure.refused() from failure
        faults.point("ssh.launch.prepared")
        spec: dict[str, Any] = {"envs": f"{prepared.base}/envs"} | order.agent.spec
        told = replace(order, agent=replace(order.agent, spec=spec))
        program = await asyncio.to_thread(script, told, ".", url=url, shared=SHARED)
        gpus = int(order.offer.specific.get("gpus", 0)), int(order.offer.specific.get("gpus_total", 0))
        begun = await host.ask(commands.begin(order.tag, program, agents, *gpus, tunnel=tunnel))
        if (refusal := begun.refusal()) is not None:
            raise refusal.refused()
        for seen in begun.nodes():
            return seen
        raise HostFailure(f"host {host.name}: the node's folder is gone again", sent=True)

    def _daemon_url(self) -> str:
        own = self._setup.context.own_url
        return own() if own is not None else self._last_url

    # ── looking ─────────────────────────────────────────────────────────────────────────────────

    async def find(self, tag: str) -> Machine | None:
        """The node of that tag: where it was begun, or wherever it is. Raises AgainLater when a host that may
        have it does not say."""
        if not TAG.match(tag):
            return None
        pool = await self._pool()
        name = _kept(lambda: self._records.host_of(tag))
        if name is not None and name not in pool.hosts:
            reason = f"host {name}, on which it was begun, is no longer among the hosts of {self._setup.name}"
            return Machine(f"{name}/{tag}", tag, "gone", reason=reason)
        asked = [pool.hosts[name]] if name in pool.hosts else list(pool.hosts.values())

        async def look(host: Reached) -> Machine | None:
            answer = await host.ask(host.commands.look(tag))
            for seen in answer.nodes():
                host.remembered.nodes[tag] = seen
                self._look_after(pool, host, seen, tell=None)
                return self._machine(host, seen)
            return None

        found, failures = await first(asked, look)
        if found is None and failures:
            raise AgainLater(_told(failures))
        if found is None and name is not None:
            _kept(lambda: self._records.forget(tag))
        return found

    async def listing(self) -> tuple[Machine, ...]:
        """All nodes of all hosts; of one that does not answer, those it was last seen to have."""
        pool = await self._pool()
        hosts = list(pool.hosts.values())
        _kept(lambda: self._records.prune(RECORDS_KEPT_US))

        async def ask(host: Reached) -> tuple[Seen, ...]:
            answer = await host.ask(host.commands.listing())
            nodes = answer.nodes()
            host.remembered.nodes = {seen.tag: seen for seen in nodes}
            told = answer.field("told")
            for seen in nodes:
                self._look_after(pool, host, seen, tell=told)
            return nodes

        answers = await each(hosts, ask)
        failures = [answer for answer in answers if isinstance(answer, HostFailure)]
        if len(failures) == len(hosts):
            raise AgainLater(_told(failures))
        return tuple(
            self._machine(host, seen)
            for host, answer in zip(hosts, answers, strict=True)
            for seen in (host.remembered.nodes.values() if isinstance(answer, HostFailure) else answer)
        )

    def _look_after(self, pool: Pool, host: Reached, seen: Seen, tell: str | None) -> None:
        """A node of ours that lives needs its tunnel, where it was begun with one."""
        own = seen.launched is not None and seen.launched.provider_id == self._setup.provider_id
        if own and seen.tunnel and seen.state == "running":
            pool.tunnel(host, self._daemon_url).want(tell)

    # ── ending ──────────────────────────────────────────────────────────────────────────────────

    async def terminate(self, tag: str, machine_id: str | None) -> None:
        """Ask for the end of a node, wherever it is. Raises AgainLater when a host that may have it is
        silent."""
        if not TAG.match(tag):
            return
        pool = await self._pool()
        name = _kept(lambda: self._records.host_of(tag)) or (machine_id or "").partition("/")[0]
        asked = [pool.hosts[name]] if name in pool.hosts else list(pool.hosts.values())

        async def end(host: Reached) -> bool | None:
            return True if (await host.ask(host.commands.terminate(tag))).nodes() else None

        found, failures = await first(asked, end)
        if found is None and failures:
            raise AgainLater(_told(failures))

    # ── what all of them need ───────────────────────────────────────────────────────────────────

    def _machine(self, host: Reached, seen: Seen) -> Machine:
        launched = seen.launched
        return Machine(
            id=f"{host.name}/{seen.tag}",
            tag=seen.tag,
            state=seen.state,
            address=host.address,
            launched_us=launched.launched_us if launched else None,
            reason=seen.reason if seen.state == "gone" else None,
            binding={
                "host": host.name,
                "pid": seen.pid,
                "folder": host.commands.folder(seen.tag),
                "host_key": host.fingerprint,
                "tunnel": seen.tunnel,
            },
            provider_id=launched.provider_id if launched else None,
        )

    async def _pool(self) -> Pool:
        try:
            return await pools.of(self._setup, self._config, self._records)
        except HostFailure as failure:
            raise failure.refused() from failure


def _kept(work: Callable[[], T]) -> T:
    """A read or write of the pool's records. Raises AgainLater."""
    try:
        return work()
    except OSError as error:
        raise AgainLater(f"the daemon's own folder: {error}") from error


async def _facts(host: Reached) -> Facts:
    """The sizes of a host, which are remembered."""
    answer = await host.ask(host.commands.facts())
    if (refusal := answer.refusal()) is not None:
        raise refusal
    host.remembered.facts = answer.facts()
    return host.remembered.facts


async def _bring(host: Reached, prepared: Prepared, agents: str) -> None:
    """The agent's package, and uv where the host has none and ours would run there."""
    if "agent" not in prepared.lacks:
        return
    await host.bring(f"agents/{agents}/{agent_package.FILE_NAME}", agent_package.wheel())
    uv = agent_package.installer(prepared.platform) if "uv" in prepared.lacks else None
    if uv is not None:
        await host.bring("bin/uv", await asyncio.to_thread(uv.read_bytes), runs=True)


async def _digest() -> str:
    """A name for the agent's package as it is in this release."""
    return (await asyncio.to_thread(agent_package.digest))[:16]


def _told(failures: list[HostFailure]) -> str:
    """Why hosts did not answer."""
    told = "; ".join(failure.message for failure in failures[:TOLD_HOSTS_MAX])
    more = len(failures) - TOLD_HOSTS_MAX
    return f"{told}; and {more} more" if more > 0 else told
