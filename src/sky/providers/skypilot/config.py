"""What a person sets when a SkyPilot API server is added as a provider.

Decides: names, limits and defaults of the settings. Never: asks the server whether a thing that is named
exists. Follows: with nothing but ``endpoint`` and ``daemon_url``, SkyPilot chooses cloud, region, zone and
type by itself; what is set here narrows its choice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import msgspec
from msgspec import Meta

from sky.providers.base import Capabilities

Url = Annotated[str, Meta(pattern=r"^https?://[^@\s]+$", max_length=500)]
Infra = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9*][A-Za-z0-9*_.:@-]*(/[A-Za-z0-9*_.:@/-]+)?$", max_length=200)
]
Name = Annotated[str, Meta(min_length=1, max_length=255)]
Word = Annotated[str, Meta(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?$")]
Usd = Annotated[float, Meta(ge=0, le=100_000)]
KIND = "skypilot"
CREDENTIALS = ("token", "username", "password", "cookies")
OFFERS_TTL_SECONDS = 1_800
CAPABILITIES = Capabilities(settle_seconds=5.0)
WITH_DISKS = replace(CAPABILITIES, keeps_disks=True, spot_keeps_disks=False, disk_setting="keep_disks")


class Size(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One size that is offered whatever SkyPilot's catalogue says. ``memory_gb`` is GiB.

    Without ``price_per_hour_usd`` it counts as its cores times ``price_per_cpu_hour_usd``; it is sold on the
    spot market where ``spot_price_per_hour_usd`` is set.
    """

    cpus: Annotated[int, Meta(ge=1, le=4_096)]
    memory_gb: Annotated[float, Meta(gt=0, le=65_536)]
    accelerator: Name | None = None
    accelerator_count: Annotated[int, Meta(ge=1, le=64)] = 1
    accelerator_memory_gb: Annotated[float, Meta(gt=0, le=4_096)] | None = None
    price_per_hour_usd: Usd | None = None
    spot_price_per_hour_usd: Usd | None = None


SIZES = tuple(Size(cpus=cpus, memory_gb=cpus * 4) for cpus in (2, 4, 8, 16, 32))


class SkypilotConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a SkyPilot API server as a provider.

    ``endpoint``: the server. ``daemon_url``: where its clusters reach this daemon. ``infra``: a cloud, or a
    cloud, region and zone, as SkyPilot writes them (``aws/us-east-1``). ``accelerators``: only these;
    empty: all that its catalogue has with a price. ``sizes``: machines that are offered beside those.
    ``max_hourly_usd``: nothing above this price an hour, which SkyPilot is told too.

    ``image``: SkyPilot's ``image_id``. ``disk_gb``: of each machine. ``labels``: on each machine, where its
    cloud has such. ``workspace``: SkyPilot's. ``idle_minutes``: how long a cluster whose agent has ended
    stays; 0 leaves it, which clouds need that cannot end a cluster from within. ``keep_disks``: clusters can
    be stopped, and started again.
    """

    endpoint: Url
    daemon_url: Url | None = None
    infra: Infra | None = None
    accelerators: Annotated[tuple[Name, ...], Meta(max_length=128)] = ()
    sizes: Annotated[tuple[Size, ...], Meta(max_length=128)] = SIZES
    price_per_cpu_hour_usd: Usd = 0.05
    max_hourly_usd: Annotated[float, Meta(gt=0, le=100_000)] | None = None
    image: Name | None = None
    disk_gb: Annotated[int, Meta(ge=10, le=65_536)] | None = None
    labels: dict[Word, Annotated[str, Meta(max_length=63)]] = {}
    workspace: Word | None = None
    idle_minutes: Annotated[int, Meta(ge=0, le=1_440)] = 5
    keep_disks: bool = False

    def __post_init__(self) -> None:
        if self.keep_disks and self.idle_minutes == 0:
            msg = "keep_disks needs idle_minutes: a machine that forgets its daemon is stopped after them"
            raise ValueError(msg)

    def place(self) -> tuple[str | None, str | None]:
        """The cloud and the region of ``infra``, where it names them."""
        parts = [*(self.infra or "*").split("/"), "*"]
        cloud, region = (None if part == "*" else part for part in parts[:2])
        return (None if cloud is None else cloud.lower()), region
