"""Amazon EC2 as a provider.

Decides: what the kind is called and can do, and that machines are told an address they can reach. Never:
loads botocore before a provider of this kind is made: it comes with an extra. Follows: where it is missing,
the message says how to install it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, TypeVar
from urllib.parse import urlsplit

import msgspec

from sky.domain.offer import Offer
from sky.kit.addresses import is_loopback
from sky.providers.aws.config import AwsConfig
from sky.providers.aws.instances import NODE, machine_of, tags_of
from sky.providers.base import AgainLater, Capabilities, LaunchOrder, Machine, Refused, Setup

if TYPE_CHECKING:
    from sky.providers.aws.fleet import Fleet, Found
    from sky.providers.aws.offers import Prices


T = TypeVar("T")
REFUSED_AGAIN_S = 30.0


class AwsProvider:
    """One AWS account. Without keys among its credentials, the ones of AWS's own tools are used."""

    kind: ClassVar[str] = "aws"
    credential_fields: ClassVar[tuple[str, ...]] = ("access_key_id", "secret_access_key", "session_token")
    offers_ttl_seconds: ClassVar[int] = 900
    config_fields: ClassVar[type[msgspec.Struct]] = AwsConfig
    capabilities: ClassVar[Capabilities] = Capabilities(
        apt=True,
        clustering=True,
        settle_seconds=60.0,
        keeps_disks=True,
        spot_keeps_disks=False,
    )

    def __init__(self, setup: Setup) -> None:
        config = setup.config
        if not isinstance(config, AwsConfig):
            raise TypeError(f"an AwsConfig is needed, not {type(config).__name__}")
        self._setup = setup
        self._config = config
        self._fleet, self._prices = _parts(setup, config)

    async def offers(self) -> tuple[Offer, ...]:
        return await self._prices.offers(self._setup.provider_id, self._setup.name)

    async def launch(self, order: LaunchOrder) -> Machine:
        if order.offer.price_micro(order.market) is None:
            raise Refused(f"{order.offer.instance_type} is not sold as {order.market}", "capability_mismatch")
        if self._config.daemon_url is None and is_loopback(urlsplit(order.agent.url).hostname or ""):
            msg = (
                f"machines of EC2 cannot reach this daemon at {order.agent.url}; set daemon_url to an "
                "address at which they do, or start the daemon with --host"
            )
            raise Refused(msg, "invalid_request", field="config.daemon_url")
        return self._seen(await self._fleet.launch(order), order.tag)

    async def machines(self) -> tuple[Machine, ...]:
        found = await self._fleet.all()
        return tuple(self._seen(one, tags_of(one.instance).get(NODE, "")) for one in found)

    async def find(self, tag: str) -> Machine | None:
        found = await _settled(self._fleet.find(tag))
        return None if found is None else self._seen(found, tag)

    async def terminate(self, tag: str, machine_id: str | None, *, keep_disk: bool = False) -> None:
        await _settled(self._fleet.end(tag, keep_disk=keep_disk))

    async def disks(self) -> tuple[str, ...]:
        return await self._fleet.disks()

    async def remove_disk(self, name: str) -> None:
        await _settled(self._fleet.remove_disk(name))

    def _seen(self, found: Found, tag: str) -> Machine:
        return machine_of(found.instance, found.region, tag)


async def _settled(call: Awaitable[T]) -> T:
    """An answer about what was bought: where the keys do not allow it now, they may again later."""
    try:
        return await call
    except Refused as refused:
        raise AgainLater(refused.message, REFUSED_AGAIN_S) from None


def _parts(setup: Setup, config: AwsConfig) -> tuple[Fleet, Prices]:
    if find_spec("botocore") is None:
        msg = "a provider of kind 'aws' needs botocore: pip install 'skyfleet[aws]'"
        raise Refused(msg, "unsupported_provider", field="kind")
    from sky.providers.aws.api import Api
    from sky.providers.aws.fleet import Fleet
    from sky.providers.aws.ground import Ground
    from sky.providers.aws.offers import Prices

    api, context = Api(config, setup.credentials), setup.context
    ground = Ground(api, config, context.deployment, context.clock)
    return Fleet(api, config, ground, context.deployment), Prices(api, config, context.clock)
