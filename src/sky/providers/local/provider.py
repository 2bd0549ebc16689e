"""Machines that are process groups on this computer: the provider that everybody has.

Decides: its settings, and that file work happens in threads. Never: runs user code, or knows what a
node does; a node is a folder, a session of processes, an environment and limits.
Follows: nodes live on when the daemon dies, and the next daemon finds them by their folders.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Annotated, ClassVar, TypeVar

import msgspec
from msgspec import Meta

from sky.domain.offer import Offer
from sky.providers.base import AgainLater, Capabilities, LaunchOrder, Machine, Refused, Setup
from sky.providers.local.nodes import AGENT, Nodes
from sky.providers.local.offers import offers_of, this_computer

T = TypeVar("T")
GIB = 1024**3


class LocalConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of this computer as a provider.

    ``price_per_hour_usd``: what the whole computer costs; a node costs its share of the cores.
    ``max_nodes``: how many nodes may run at once, whatever their sizes; cores may be sold several times.
    ``limit_memory``: no worker of a node may have more private memory than the node's size says.
    ``apt``: images may install system packages on this computer; the daemon must run as root.
    ``images_gb_max``: how many GB environments and included files may have before unused ones are removed.
    """

    price_per_hour_usd: Annotated[float, Meta(ge=0, le=1_000_000)] = 0.0
    max_nodes: Annotated[int, Meta(ge=1, le=1_000)] = 64
    limit_memory: bool = True
    apt: bool = False
    images_gb_max: Annotated[float, Meta(gt=0, le=1_000_000)] = 20.0

    def __post_init__(self) -> None:
        if self.apt and os.geteuid() != 0:
            msg = "apt installs system packages on this computer, for which the daemon must run as root"
            raise ValueError(msg)


class LocalProvider:
    """This computer. It needs no credentials."""

    kind: ClassVar[str] = "local"
    credential_fields: ClassVar[tuple[str, ...]] = ()
    offers_ttl_seconds: ClassVar[int] = 3600
    config_fields: ClassVar[type[msgspec.Struct]] = LocalConfig
    capabilities: ClassVar[Capabilities] = Capabilities(
        volumes=False,
        apt=False,
        base_image=False,
        clustering=True,
        includes=True,
        settle_seconds=0.0,
        can_tell_death=True,
        apt_setting="apt",
        keeps_disks=True,
        open_ports=True,
    )

    def __init__(self, setup: Setup, program: tuple[str, ...] = AGENT) -> None:
        config = setup.config
        if not isinstance(config, LocalConfig):
            raise TypeError(f"a LocalConfig is needed, not {type(config).__name__}")
        self._setup = setup
        self._price_per_hour_usd = config.price_per_hour_usd
        self._apt = config.apt
        self._nodes = Nodes(
            setup.context.home,
            setup.context.clock,
            nodes_max=config.max_nodes,
            limit_memory=config.limit_memory,
            images_bytes_max=round(config.images_gb_max * GIB),
            program=program,
        )

    async def offers(self) -> tuple[Offer, ...]:
        computer = await _in_thread(this_computer)
        return offers_of(computer, self._setup.provider_id, self._setup.name, self._price_per_hour_usd)

    async def launch(self, order: LaunchOrder) -> Machine:
        if order.offer.price_micro(order.market) is None:
            raise Refused(f"{order.offer.instance_type} is not sold as {order.market}", "capability_mismatch")
        if order.agent.spec.get("image", {}).get("apt") and not self._apt:
            raise Refused(
                f"provider {self._setup.name!r} does not allow system packages to be installed on this "
                "computer; its setting apt does",
                "capability_mismatch",
                field="spec.image.apt",
            )
        return await _in_thread(lambda: self._nodes.launch(order))

    async def machines(self) -> tuple[Machine, ...]:
        return await _in_thread(self._nodes.listing)

    async def find(self, tag: str) -> Machine | None:
        return await _in_thread(lambda: self._nodes.find(tag))

    async def terminate(self, tag: str, machine_id: str | None, *, keep_disk: bool = False) -> None:
        await _in_thread(lambda: self._nodes.terminate(tag))

    async def disks(self) -> tuple[str, ...]:
        return await _in_thread(self._nodes.disks)

    async def remove_disk(self, name: str) -> None:
        await _in_thread(lambda: self._nodes.remove_disk(name))


async def _in_thread(work: Callable[[], T]) -> T:
    """File work off the event loop. What the system refuses (a full disk, no more processes) may pass."""
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        raise AgainLater(f"this computer: {error}") from error
