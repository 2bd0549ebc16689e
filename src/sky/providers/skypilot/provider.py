"""A SkyPilot API server as a provider: each machine is one cluster of its.

Decides: when a launch has ended, what is left of one that has failed, and what a tag's cluster is asked for.
Never: chooses a cloud, or waits for one. Follows: before anything is asked for, the server is asked whether
it was before, by the cluster's name, which is made from the tag; so a lost answer buys nothing twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

import msgspec
import structlog

from sky.domain.offer import Offer
from sky.kit import faults
from sky.kit.addresses import is_loopback
from sky.providers.base import (
    AgainLater,
    Capabilities,
    LaunchOrder,
    Machine,
    ProviderError,
    Refused,
    Setup,
)
from sky.providers.skypilot import api as calls
from sky.providers.skypilot import config as configs
from sky.providers.skypilot.clusters import Cluster, Names, clusters_of, machine_of, node_of
from sky.providers.skypilot.config import SkypilotConfig
from sky.providers.skypilot.offers import listed, offers_of
from sky.providers.skypilot.shape import every
from sky.providers.skypilot.task import launch_body

PLACED_S_MAX: Final = 1.5
"""How long a launch waits for its end, which mostly takes minutes, and comes at once when it is a no."""
PLACED_EVERY_S: Final = 0.1
LAUNCHING_AGAIN_S: Final = 5.0
REMOVING_AGAIN_S: Final = 3.0
DENIED_AGAIN_S: Final = 30.0
CHECKED_S: Final = 300.0
"""How long the server's version is taken to be what it was."""
_log = structlog.get_logger(__name__)


class SkypilotProvider:
    """One server. What it remembers is only which of its requests it has not told the end of yet."""

    kind: ClassVar[str] = configs.KIND
    credential_fields: ClassVar[tuple[str, ...]] = configs.CREDENTIALS
    offers_ttl_seconds: ClassVar[int] = configs.OFFERS_TTL_SECONDS
    config_fields: ClassVar[type[msgspec.Struct]] = SkypilotConfig
    capabilities: ClassVar[Capabilities] = configs.CAPABILITIES

    def __init__(self, setup: Setup) -> None:
        config = setup.config
        if not isinstance(config, SkypilotConfig):
            raise TypeError(f"a SkypilotConfig is needed, not {type(config).__name__}")
        self._setup = setup
        self._config = config
        self._clock = setup.context.clock
        self._names = Names(setup.context.deployment)
        self._access = calls.Access(
            endpoint=config.endpoint.rstrip("/"),
            headers=calls.headers_of(setup.credentials),
            user=self._names.user,
            workspace=config.workspace,
        )
        self._checked_s: float | None = None
        self._launches: dict[str, str] = {}
        self._ends: dict[str, str] = {}

    async def offers(self) -> tuple[Offer, ...]:
        config, setup = self._config, self._setup
        cloud, region = config.place()
        async with self._calls() as api:
            there = [str(one).lower() for one in every(await api.ask("/enabled_clouds"))]
            clouds = [one for one in there if cloud in (None, one, {"k8s": "kubernetes"}.get(cloud or ""))]
            if not clouds:
                wanted = "no cloud" if cloud is None else f"{cloud} (config.infra) not"
                msg = f"SkyPilot at {self._access.endpoint} has {wanted} enabled"
                todo = "set credentials up where its server runs, and run 'sky check' of SkyPilot there"
                raise Refused(f"{msg}; {todo}", "unauthorized", field="config.infra" if cloud else None)
            asked = {"gpus_only": True, "require_price": True, "clouds": clouds, "region_filter": region}
            catalogue = await api.ask("/list_accelerators", asked)
        return offers_of(listed(catalogue, config), config, setup.provider_id, setup.name)

    async def launch(self, order: LaunchOrder) -> Machine:
        if order.offer.price_micro(order.market) is None:
            raise Refused(f"{order.offer.instance_type} is not sold as {order.market}", "capability_mismatch")
        names = self._names
        name = names.node(order.tag) if order.disk is None else names.disk(order.disk)
        body = await asyncio.to_thread(launch_body, order, self._config, name, self._daemon(order))
        # A call that looks and is refused says nothing of what an earlier one may have bought.
        async with self._calls(asking=True) as api:
            made = await self._launched(api, order, name, body)
        if isinstance(made, Refused):
            raise made
        return made

    async def machines(self) -> tuple[Machine, ...]:
        async with self._calls() as api:
            launches = await self._launching(api)
            clusters = await self._clusters(api, self._names.all)
            busy = {one.cluster for one in launches}
            there = {one.name for one in clusters}
            found = [self._seen(one, launching=one.name in busy) for one in clusters if one.tag]
            for one in launches:
                tag = await self._node_of(api, one) if one.cluster not in there else ""
                if tag:
                    found.append(_asked_for(one, tag))
        return tuple(found)

    async def find(self, tag: str) -> Machine | None:
        async with self._calls(asking=True) as api:
            # The launches first: one that ends in between has its cluster by then.
            launches = await self._launches_of(api, tag)
            cluster = await self._cluster_of(api, tag)
        if cluster is not None:
            return self._seen(cluster, launching=bool(launches))
        return _asked_for(launches[0], tag) if launches else None

    async def terminate(self, tag: str, machine_id: str | None, *, keep_disk: bool = False) -> None:
        async with self._calls(asking=True) as api:
            faults.point("skypilot.terminate.before")
            launches = await self._launches_of(api, tag)
            if launches:
                # Before anything that the server may be slow with: meanwhile it would buy.
                await api.submit("/api/cancel", {"request_ids": [one.id for one in launches]})
            cluster = await self._cluster_of(api, tag)
            self._launches.pop(tag, None)
            if cluster is None:
                self._ends.pop(self._names.node(tag), None)
            elif not (keep_disk and cluster.disk is not None and cluster.stopped):
                await self._end(api, cluster, stop=keep_disk and cluster.disk is not None)
            faults.point("skypilot.terminate.after")

    async def disks(self) -> tuple[str, ...]:
        async with self._calls() as api:
            found = await self._clusters(api, self._names.all_disks)
        return tuple(sorted(one.disk for one in found if one.disk is not None))

    async def remove_disk(self, name: str) -> None:
        async with self._calls(asking=True) as api:
            cluster = self._names.disk(name)
            launches = await self._launching(api, cluster)
            known = await self._cluster(api, cluster)
            if launches or (known is not None and not known.stopped):
                raise AgainLater(f"disk {name} is still used by {cluster}", REMOVING_AGAIN_S)
            if known is None:
                self._ends.pop(cluster, None)
            else:
                await self._end(api, known, stop=False)
                raise AgainLater(f"disk {name} is being removed, with {cluster}", REMOVING_AGAIN_S)

    # ── a launch, from its request to its end ───────────────────────────────────────────────────

    async def _launched(
        self, api: calls.Api, order: LaunchOrder, name: str, body: dict[str, Any]
    ) -> Machine | Refused:
        """The machine, or that it was refused and nothing of it is left."""
        launches = await self._launching(api, name)
        cluster = await self._cluster(api, name)
        if launches:
            if order.disk is not None and await self._node_of(api, launches[0]) != order.tag:
                raise AgainLater(f"disk {order.disk} is being given to another machine", REMOVING_AGAIN_S)
            self._launches[order.tag] = launches[0].id
        if order.tag in self._launches:
            return await self._placed(api, order, name)
        known = None if cluster is None else await self._before(api, order, cluster)
        if known is not None:
            return await self._told(api, known)
        faults.point("skypilot.launch.before")
        try:
            self._launches[order.tag] = await api.submit("/launch", body)
        except Refused as refused:
            return refused
        faults.point("skypilot.launch.after")
        return await self._placed(api, order, name)

    async def _before(self, api: calls.Api, order: LaunchOrder, cluster: Cluster) -> Cluster | None:
        """The cluster of that name, if it is this order's; None if it may be started for it."""
        if order.disk is not None:
            if cluster.stopped:
                return None
            if cluster.tag != order.tag:
                msg = (
                    f"disk {order.disk} is still used by {cluster.name}, for {cluster.tag or 'another node'}"
                )
                raise AgainLater(msg, REMOVING_AGAIN_S)
        if cluster.status == "INIT" and not cluster.was_up:
            await self._end(api, cluster, stop=False)
            raise AgainLater(f"{cluster.name} is left of a launch that has failed, and is removed first")
        return cluster

    async def _placed(self, api: calls.Api, order: LaunchOrder, name: str) -> Machine | Refused:
        """The machine once the launch has ended well, or why it has not. AgainLater before that."""
        request_id = self._launches[order.tag]
        until_s = self._clock.monotonic_s() + PLACED_S_MAX
        while True:
            asked = next(iter(await api.requests(request_ids=request_id)), None)
            if asked is None or not asked.active or self._clock.monotonic_s() >= until_s:
                break
            await asyncio.sleep(PLACED_EVERY_S)
        if asked is not None and asked.active:
            said = asked.said or await api.log(request_id)
            msg = f"SkyPilot looks for a place for it, as {name} (request {request_id})"
            raise AgainLater(msg + (f": {said}" if said else ""), LAUNCHING_AGAIN_S)
        cluster = await self._cluster(api, name)
        if asked is not None and asked.status != "SUCCEEDED":
            return await self._lost(api, order, request_id, cluster)
        self._launches.pop(order.tag, None)
        if cluster is None:
            msg = f"SkyPilot has no cluster {name} any more, whose launch (request {request_id}) has ended"
            raise AgainLater(f"{msg}; it is launched anew", 1.0)
        return await self._told(api, cluster)

    async def _lost(
        self, api: calls.Api, order: LaunchOrder, request_id: str, cluster: Cluster | None
    ) -> Refused:
        """What a launch has failed with. AgainLater while anything is left of it, or where that passes."""
        error = await api.error(request_id, f"launching {order.offer.instance_type}")
        if cluster is not None and not cluster.stopped:
            await self._end(api, cluster, stop=order.disk is not None and cluster.was_up)
            msg = f"the launch has failed, and {cluster.name}, which it has left, is removed: {error.message}"
            raise AgainLater(msg, REMOVING_AGAIN_S)
        self._launches.pop(order.tag, None)
        if not isinstance(error, Refused):
            raise error
        return error

    async def _told(self, api: calls.Api, cluster: Cluster) -> Machine:
        """The machine, with what it costs among its facts."""
        machine = self._seen(cluster, launching=False)
        if machine.state != "gone":
            try:
                hourly = await api.hourly_usd(cluster.name)
            except ProviderError as error:
                # A machine that costs money is not left waiting for what is only told: its offer has a price.
                _log.warning("skypilot.cost_unknown", cluster=cluster.name, error=error.message)
                hourly = None
            if hourly is not None:
                machine.binding["hourly_usd"] = hourly
        return machine

    async def _end(self, api: calls.Api, cluster: Cluster, *, stop: bool) -> None:
        """Ask for the end of a cluster, once; the next call says what became of that."""
        ending = [one for one in await api.requests(cluster_name=cluster.name) if one.name in _ENDS]
        if any(one.name == calls.DOWN or stop for one in ending):
            return
        before = self._ends.pop(cluster.name, None)
        where = "stopping" if stop else "taking down"
        self._ends[cluster.name] = await api.submit(
            "/stop" if stop else "/down", {"cluster_name": cluster.name}
        )
        if before is not None:
            asked = next(iter(await api.requests(request_ids=before)), None)
            if asked is not None and asked.status == "FAILED":
                error = await api.error(before, f"{where} {cluster.name}")
                raise AgainLater(f"{error.message}; it is asked for again", LAUNCHING_AGAIN_S)

    # ── looking ─────────────────────────────────────────────────────────────────────────────────

    async def _launches_of(self, api: calls.Api, tag: str) -> list[calls.Asked]:
        """The launches of a tag that have not ended."""
        return [one for one in await self._launching(api) if await self._node_of(api, one) == tag]

    async def _cluster_of(self, api: calls.Api, tag: str) -> Cluster | None:
        found = await self._clusters(api, self._names.node(tag), self._names.all_disks)
        return next((one for one in found if one.tag == tag), None)

    async def _launching(self, api: calls.Api, name: str | None = None) -> list[calls.Asked]:
        query = {} if name is None else {"cluster_name": name}
        return [
            one
            for one in await api.requests(**query)
            if one.active and one.name == calls.LAUNCH and one.cluster.startswith(self._names.prefix)
        ]

    async def _node_of(self, api: calls.Api, launch: calls.Asked) -> str:
        """Which node a launch is for: its cluster's name says it, or the task that it was asked with."""
        tag = self._names.tag_of(launch.cluster)
        return node_of(await api.task(launch.id)) if tag is None else tag

    async def _clusters(self, api: calls.Api, *names: str) -> list[Cluster]:
        return await asyncio.to_thread(clusters_of, await api.clusters(list(names)), self._names)

    async def _cluster(self, api: calls.Api, name: str) -> Cluster | None:
        return next((one for one in await self._clusters(api, name) if one.name == name), None)

    def _seen(self, cluster: Cluster, *, launching: bool) -> Machine:
        return machine_of(cluster, self._access.endpoint, launching=launching)

    @asynccontextmanager
    async def _calls(self, *, asking: bool = False) -> AsyncGenerator[calls.Api]:
        """The server for one call. ``asking``: a refusal says nothing of the machine, so it is for later."""
        try:
            async with calls.calling(self._access) as api:
                now_s = self._clock.monotonic_s()
                if self._checked_s is None or now_s - self._checked_s > CHECKED_S:
                    await api.check()
                    self._checked_s = now_s
                yield api
        except Refused as error:
            self._checked_s = None
            if asking:
                raise AgainLater(error.message, DENIED_AGAIN_S) from error
            raise

    def _daemon(self, order: LaunchOrder) -> str:
        """Where the cluster reaches the daemon. Raises Refused where it cannot."""
        url = self._config.daemon_url or order.agent.url
        if self._config.daemon_url is None and is_loopback(urlsplit(url).hostname or ""):
            msg = f"config.daemon_url: clusters of SkyPilot cannot reach this daemon at {url}"
            todo = "set it to an address at which they do, or start the daemon with --host"
            raise Refused(f"{msg}; {todo}", "invalid_request", field="config.daemon_url")
        return url.rstrip("/")


class SkypilotWithDisks(SkypilotProvider):
    """A server whose provider keeps disks: a cluster is stopped, and started for the next node."""

    capabilities: ClassVar[Capabilities] = configs.WITH_DISKS


_ENDS: Final = frozenset({calls.STOP, calls.DOWN})


def _asked_for(launch: calls.Asked, tag: str) -> Machine:
    """A launch that has no cluster yet."""
    binding = {"cluster": launch.cluster, "request": launch.id}
    said = launch.said or "SkyPilot has not begun with it yet"
    return Machine(id=launch.cluster, tag=tag, state="pending", reason=said, binding=binding)
