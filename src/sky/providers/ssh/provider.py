"""A pool of one's own hosts, each divided into places for nodes.

Decides: its settings, credentials and capabilities. Never: loads what speaks SSH before a host is asked.
Follows: without the packages for it, whoever asks is told what to install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec

from sky.domain.offer import Offer
from sky.providers.base import Capabilities, LaunchOrder, Machine, Refused, Setup
from sky.wire.hosts import SshConfig

if TYPE_CHECKING:
    from sky.providers.ssh.machines import Machines


class SshProvider:
    """Hosts that are reached over SSH."""

    kind: ClassVar[str] = "ssh"
    credential_fields: ClassVar[tuple[str, ...]] = (
        "private_key",
        "private_keys",
        "passphrase",
        "passphrases",
        "password",
        "passwords",
    )
    offers_ttl_seconds: ClassVar[int] = 15
    config_fields: ClassVar[type[msgspec.Struct]] = SshConfig
    capabilities: ClassVar[Capabilities] = Capabilities(
        volumes=False,
        apt=False,
        base_image=False,
        clustering=True,
        includes=True,
        settle_seconds=20.0,
        can_tell_death=True,
        apt_setting="apt",
        open_ports=True,
    )

    def __init__(self, setup: Setup) -> None:
        config = setup.config
        if not isinstance(config, SshConfig):
            raise TypeError(f"an SshConfig is needed, not {type(config).__name__}")
        self._setup = setup
        self._config = config
        self._made: Machines | None = None

    async def offers(self) -> tuple[Offer, ...]:
        return await self._machines().offers()

    async def launch(self, order: LaunchOrder) -> Machine:
        if order.offer.price_micro(order.market) is None:
            raise Refused(f"{order.offer.instance_type} is not sold as {order.market}", "capability_mismatch")
        if order.agent.spec.get("image", {}).get("apt") and not self._config.apt:
            raise Refused(
                f"provider {self._setup.name!r} does not allow system packages to be installed on its hosts; "
                "its setting apt does",
                "capability_mismatch",
                field="spec.image.apt",
            )
        return await self._machines().launch(order)

    async def machines(self) -> tuple[Machine, ...]:
        return await self._machines().listing()

    async def find(self, tag: str) -> Machine | None:
        return await self._machines().find(tag)

    async def terminate(self, tag: str, machine_id: str | None) -> None:
        await self._machines().terminate(tag, machine_id)

    def _machines(self) -> Machines:
        """The part that speaks SSH. Raises Refused when what it needs is not installed."""
        if self._made is None:
            try:
                from sky.providers.ssh.machines import Machines
            except ModuleNotFoundError as error:
                if error.name != "asyncssh":
                    raise
                msg = "hosts over SSH need asyncssh, which is not installed: pip install 'skyfleet[ssh]'"
                raise Refused(msg, "unsupported_provider", field="kind") from error
            self._made = Machines(self._setup, self._config)
        return self._made
