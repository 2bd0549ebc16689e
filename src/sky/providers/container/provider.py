"""Machines that are containers of an engine: podman's or docker's, of this computer or another one.

Decides: the order in which an engine is asked, and what its refusals mean for a purchase. Never: waits for a
container to become a node, or for an image to be here. Follows: the container of a tag has the tag's name, so
that the engine itself sees to it that there is one; who dies between two questions leaves one that is found
by it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from typing import ClassVar, TypeVar
from urllib.parse import urlsplit

import msgspec

from sky.domain.offer import Offer
from sky.kit import faults
from sky.kit.addresses import is_loopback
from sky.kit.clock import SECOND_US
from sky.providers.base import AgainLater, Capabilities, LaunchOrder, Machine, Refused, Setup
from sky.providers.container import body, machines
from sky.providers.container.config import CREDENTIALS, HOST, ContainerConfig
from sky.providers.container.engine import Engine, Said
from sky.providers.container.images import Images, full_name
from sky.providers.container.offers import KIND, offers_of
from sky.providers.container.place import Place, find, parse, there
from sky.providers.container.shapes import Info, Inspected, Listed, Version, Volumes

T = TypeVar("T")
GONE_KEPT_SECONDS = 600
TERMINATE_SECONDS = 1.0
BUSY_AGAIN_SECONDS = 0.5
STOP_SECONDS_MAX = body.GRACE_SECONDS + 20.0
LOG_LINES = 20
BAD_REQUEST = 400
NO_PROGRAM = ("executable file", "no such file", "not found")
LIBPOD = "v4.0.0/libpod"


class ContainerProvider:
    """One engine. It needs no credentials, unless it is elsewhere or its images are not for everybody."""

    kind: ClassVar[str] = KIND
    credential_fields: ClassVar[tuple[str, ...]] = CREDENTIALS
    offers_ttl_seconds: ClassVar[int] = 600
    config_fields: ClassVar[type[msgspec.Struct]] = ContainerConfig
    capabilities: ClassVar[Capabilities] = Capabilities(
        volumes=False,
        apt=True,
        base_image=True,
        clustering=True,
        includes=True,
        settle_seconds=10.0,
        can_tell_death=True,
        keeps_disks=True,
        open_ports=True,
    )

    def __init__(self, setup: Setup) -> None:
        config = setup.config
        if not isinstance(config, ContainerConfig):
            raise TypeError(f"a ContainerConfig is needed, not {type(config).__name__}")
        self._setup = setup
        self._config = config
        self._clock = setup.context.clock
        self._deployment = setup.context.deployment
        self._images = Images(self._clock, config, setup.credentials)
        self._making = asyncio.Lock()
        self._ending: dict[str, asyncio.Task[None]] = {}

    # ── the calls ──────────────────────────────────────────────────────────────────────────

    async def offers(self) -> tuple[Offer, ...]:
        engine = await self._engine()
        info = await self._told(engine.get("/info", Info))
        return offers_of(info, self._setup.provider_id, self._setup.name, self._config)

    async def launch(self, order: LaunchOrder) -> Machine:
        if order.offer.price_micro(order.market) is None:
            raise Refused(f"{order.offer.instance_type} is not sold as {order.market}", "capability_mismatch")
        for what, text in (("tag", order.tag), ("disk", order.disk)):
            if text is not None and not body.is_name(text):
                raise Refused(f"'{text}' cannot name a container", "invalid_request", field=what)
        engine = await self._engine()
        url = self._url(order, engine.place)
        known = await self._told(self._inspected(engine, order.tag))
        if known is None:
            image = full_name(order.agent.spec.get("image", {}).get("base") or self._config.image)
            await self._told(self._images.have(engine, image))
            async with self._making:
                await self._told(self._make(engine, order, image))
            faults.point("container.launch.created")
        elif machines.state_of(known.state.status) != "pending":
            return await self._machine(engine, known)
        return await self._begin(engine, order, url)

    async def find(self, tag: str) -> Machine | None:
        if not body.is_name(tag):
            return None
        engine = await self._engine_later()
        container = await self._told(self._inspected(engine, tag))
        return None if container is None else await self._machine(engine, container)

    async def machines(self) -> tuple[Machine, ...]:
        """Every container. Those that have been gone by themselves for long are cleared away."""
        engine = await self._engine()
        oldest_us = self._clock.now_us() - GONE_KEPT_SECONDS * SECOND_US
        seen: list[Machine] = []
        for listed in await self._told(self._listed(engine)):
            container = await self._told(engine.maybe(f"/containers/{listed.id}/json", Inspected))
            if container is None:
                continue
            ended_us = machines.ended_us(container)
            if ended_us is not None and ended_us < oldest_us:
                await self._told(_remove(engine, container.id))
            else:
                seen.append(machines.machine_of(container, engine.place))
        return tuple(seen)

    async def terminate(self, tag: str, machine_id: str | None, *, keep_disk: bool = False) -> None:
        if not body.is_name(tag):
            return
        ending = self._ending.get(tag)
        if ending is None:
            engine = await self._engine_later()
            container = await self._told(self._inspected(engine, tag))
            if container is None:
                return
            ending = self._ending[tag] = asyncio.ensure_future(self._told(_end(engine, container)))
        await asyncio.wait((ending,), timeout=TERMINATE_SECONDS)
        if ending.done():
            self._ending.pop(tag, None)
            if ending.cancelled():
                raise AgainLater(f"the end of container {body.name_of(self._deployment, tag)} was given up")
            ending.result()

    async def disks(self) -> tuple[str, ...]:
        engine = await self._engine()
        query = body.filters(deployment=self._deployment)
        found = await self._told(engine.get("/volumes", Volumes, filters=query))
        named = ((volume.labels or {}).get(body.DISK) for volume in found.volumes or ())
        return tuple(sorted(name for name in named if name))

    async def remove_disk(self, name: str) -> None:
        if not body.is_name(name):
            return
        engine = await self._engine_later()
        for container in await self._told(self._listed(engine, disk=name)):
            if _lives(container):
                raise _used(f"disk {name} is", container)
            await self._told(_remove(engine, container.id))
        try:
            await engine.ask("DELETE", f"/volumes/{body.name_of(self._deployment, name)}")
        except Said as said:
            if not said.missing:
                raise AgainLater(f"disk {name} cannot be removed yet: {said.message}") from said

    # ── making one ─────────────────────────────────────────────────────────────────────────────

    async def _make(self, engine: Engine, order: LaunchOrder, image: str) -> None:
        """The container of an order, where there is room for it; one that is there by now will do."""
        others = [one for one in await self._listed(engine) if _lives(one)]
        if any(one.label(body.TAG) == order.tag for one in others):
            return
        mine = [one for one in others if one.label(body.PROVIDER) == self._setup.provider_id]
        if len(mine) >= self._config.max_nodes:
            raise Refused(
                f"{len(mine)} containers of provider {self._setup.name!r} run, and its max_nodes is "
                f"{self._config.max_nodes}",
                "quota",
            )
        gpus = self._place(order, others)
        await self._give_disk(engine, order, others)
        labels = {
            body.DEPLOYMENT: self._deployment,
            body.PROVIDER: self._setup.provider_id,
            body.LAUNCHED: str(self._clock.now_us()),
        }
        made = body.box(order, self._config, image, labels, gpus, here=engine.place.host is None)
        try:
            if gpus and await _is_podman(engine):
                await engine.post(f"/{LIBPOD}/containers/create", body.podman(made))
            else:
                await engine.post("/containers/create", body.docker(made), name=made.name)
        except Said as said:
            if await self._inspected(engine, order.tag) is None:
                raise self._not_made(said, image) from said
        await self._yield_to_others(engine, order)

    def _place(self, order: LaunchOrder, others: list[Listed]) -> tuple[int, ...]:
        """Which accelerators it gets. Raises Refused when too few are free."""
        count, total = order.offer.accelerator_count, self._config.accelerator_count
        taken = {number for one in others for number in _gpus(one)}
        free = tuple(number for number in range(total) if number not in taken)
        if len(free) < count:
            raise Refused(
                f"{count} accelerators are asked for and {len(free)} of {total} are free at this engine",
                "capacity",
            )
        return free[:count]

    async def _give_disk(self, engine: Engine, order: LaunchOrder, others: list[Listed]) -> None:
        if order.disk is None:
            return
        user = next((one for one in others if _uses(one, order.disk)), None)
        if user is not None:
            raise _used(f"disk {order.disk} is", user)
        volume = {
            "Name": body.name_of(self._deployment, order.disk),
            "Labels": {body.DEPLOYMENT: self._deployment, body.DISK: order.disk},
        }
        await engine.post("/volumes/create", volume)

    async def _yield_to_others(self, engine: Engine, order: LaunchOrder) -> None:
        """Another daemon may have made one at the same moment: what both would use, neither has."""
        there = [one for one in await self._listed(engine) if _lives(one)]
        mine = next((one for one in there if one.label(body.TAG) == order.tag), None)
        if mine is None or machines.state_of(mine.state) != "pending":
            return
        gpus = set(_gpus(mine))
        for one in there:
            shares_disk = order.disk is not None and _uses(one, order.disk)
            if one.id != mine.id and (shares_disk or gpus & set(_gpus(one))):
                await _remove(engine, mine.id)
                raise _used(f"disk {order.disk} is" if shares_disk else "accelerators are", one)

    async def _begin(self, engine: Engine, order: LaunchOrder, url: str) -> Machine:
        """Give a container what it runs, and start it. Twice is once."""
        name = body.name_of(self._deployment, order.tag)
        try:
            files = await asyncio.to_thread(body.files, order, url)
            media = "application/x-tar"
            await engine.ask("PUT", f"/containers/{name}/archive", {"path": "/"}, files, media=media)
            await engine.post(f"/containers/{name}/start")
        except Said as said:
            container = await self._told(self._inspected(engine, order.tag))
            if container is not None and machines.state_of(container.state.status) == "pending":
                await self._told(_remove(engine, container.id))
                raise self._not_started(said, container.config.image) from said
        faults.point("container.launch.started")
        container = await self._told(self._inspected(engine, order.tag))
        if container is None:
            raise AgainLater(f"container {name} went while it began")
        return await self._machine(engine, container)

    def _not_made(self, said: Said, image: str) -> Refused | AgainLater:
        """Why there is no container. Without a word that is known, it may have been anything."""
        low = said.message.lower()
        if (known := self._refused(said)) is not None:
            return known
        if said.status == BAD_REQUEST or "mount" in low or "statfs" in low:
            return Refused(f"the engine refuses the container: {said.message}", "invalid_request")
        return AgainLater(f"the engine made no container of {image}: {said.message}")

    def _not_started(self, said: Said, image: str) -> Refused:
        """Why a container that was made does not begin."""
        if (known := self._refused(said)) is not None:
            return known
        if any(word in said.message.lower() for word in NO_PROGRAM):
            message = f"the image {image} cannot run as a node, which needs /bin/sh: {said.message}"
            return Refused(message, "capability_mismatch", field="spec.image.base")
        message = f"the engine cannot start a container of {image}: {said.message}"
        return Refused(message, "capability_mismatch")

    def _refused(self, said: Said) -> Refused | None:
        """What one engine finds out when a container is made, and another when it is started."""
        low = said.message.lower()
        if "network" in low and "not found" in low:
            message = f"the engine has no network {self._config.network!r}: {said.message}"
            return Refused(message, "invalid_request", field="config.network")
        if "cdi" in low or "device driver" in low or self._config.accelerator_device in said.message:
            return Refused(f"the engine cannot give an accelerator: {said.message}", "capability_mismatch")
        return None

    def _url(self, order: LaunchOrder, place: Place) -> str:
        """Where the container reaches the daemon. Raises Refused where it certainly does not."""
        url = self._config.daemon_url or order.agent.url
        shared = place.here and self._config.network == HOST
        if not shared and is_loopback(urlsplit(url).hostname or ""):
            raise Refused(
                f"config.daemon_url: containers of network {self._config.network!r} at {place} do not reach "
                f"this daemon at {url}; let it listen where they do, and set daemon_url to that address",
                "invalid_request",
                field="config.daemon_url",
            )
        return url.rstrip("/")

    # ── looking ─────────────────────────────────────────────────────────────────────────────────

    async def _engine(self) -> Engine:
        if self._config.engine is not None:
            return Engine(there(parse(self._config.engine, self._setup.credentials)))
        home, credentials = self._setup.context.home, self._setup.credentials
        try:
            return Engine(await asyncio.to_thread(find, home, os.environ, credentials))
        except OSError as error:
            raise AgainLater(f"no engine of this computer can be looked for: {error}") from error

    async def _engine_later(self) -> Engine:
        """The engine, for what was begun there: that it is not to be found now says nothing of that."""
        try:
            return await self._engine()
        except Refused as refused:
            raise AgainLater(refused.message) from refused

    async def _inspected(self, engine: Engine, tag: str) -> Inspected | None:
        """The container of a tag of this deployment."""
        name = body.name_of(self._deployment, tag)
        container = await engine.maybe(f"/containers/{name}/json", Inspected)
        ours = container is not None and container.label(body.DEPLOYMENT) == self._deployment
        return container if ours else None

    async def _listed(self, engine: Engine, **labels: str) -> list[Listed]:
        """All containers of this deployment, ended or not."""
        query = body.filters(deployment=self._deployment, **labels)
        return await engine.get("/containers/json", list[Listed], all=True, filters=query)

    async def _machine(self, engine: Engine, container: Inspected) -> Machine:
        """A container as a machine; of one that is gone, with what it said last."""
        words = ""
        if machines.state_of(container.state.status) == "gone":
            query = {"stdout": True, "stderr": True, "tail": str(LOG_LINES)}
            try:
                log = await engine.ask("GET", f"/containers/{container.id}/logs", query)
            except Said as said:
                words = f"(its log cannot be read: {said.message})"
            else:
                words = machines.last_words(log)
        return machines.machine_of(container, engine.place, words)

    async def _told(self, answer: Awaitable[T]) -> T:
        """What an engine refuses without a meaning of its own may pass."""
        try:
            return await answer
        except Said as said:
            raise AgainLater(f"the engine says: {said.message}") from said


async def _end(engine: Engine, container: Inspected) -> None:
    """Ask a container to end, kill it after its grace, and remove it. What is gone is done."""
    if machines.state_of(container.state.status) == "running":
        path = f"/containers/{container.id}/stop"
        try:
            await engine.ask("POST", path, {"t": body.GRACE_SECONDS}, seconds_max=STOP_SECONDS_MAX)
        except Said as said:
            if not said.missing:
                raise
    await _remove(engine, container.id)


async def _remove(engine: Engine, container_id: str) -> None:
    """Remove a container, and no disk. What is gone is done."""
    try:
        await engine.ask("DELETE", f"/containers/{container_id}", {"force": True, "v": False})
    except Said as said:
        if not said.missing:
            raise


async def _is_podman(engine: Engine) -> bool:
    version = await engine.get("/version", Version)
    return any("podman" in part.name.lower() for part in version.components or ())


def _lives(listed: Listed) -> bool:
    return machines.state_of(listed.state) != "gone"


def _uses(listed: Listed, disk: str) -> bool:
    return listed.label(body.DISK) == disk


def _gpus(listed: Listed) -> tuple[int, ...]:
    told = listed.label(body.GPUS) or ""
    return tuple(int(number) for number in told.split(",") if number.isdigit())


def _used(what: str, user: Listed) -> AgainLater:
    return AgainLater(f"{what} still used by node {user.label(body.TAG)}", BUSY_AGAIN_SECONDS)
