"""What SkyPilot could launch, as a list of offers.

Decides: that an offer is a number of accelerators, or of cores, wherever SkyPilot finds it: cloud, region,
zone and type are its choice at the launch. Never: calls the server. Follows: an offer's price is the lowest
of all places where the catalogue has it; its cores and memory are what every one of them has at least.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from sky.domain.money import to_micro
from sky.domain.offer import Offer, offer_id
from sky.providers.skypilot.config import Size, SkypilotConfig
from sky.providers.skypilot.shape import every, mapping, number, text

COUNT_MAX = 64


@dataclass(frozen=True, slots=True)
class Listed:
    """One type of one cloud in SkyPilot's catalogue. Prices are USD an hour; memory is GiB."""

    accelerator: str
    count: int
    cpus: float | None
    vram: float | None
    memory: float | None
    price: float | None
    spot_price: float | None


def listed(catalogue: object, config: SkypilotConfig) -> list[Listed]:
    """The catalogue's rows that the settings allow and that can be read."""
    wanted = {name.lower() for name in config.accelerators}
    return [
        one
        for name, rows in mapping(catalogue).items()
        if not wanted or name.lower() in wanted
        for one in map(_listed, every(rows))
        if one is not None
    ]


def offers_of(
    rows: Iterable[Listed], config: SkypilotConfig, provider_id: str, provider_name: str
) -> tuple[Offer, ...]:
    """All offers; what costs more than the settings allow is none."""
    maker = _Maker(config, provider_id, provider_name)
    found: dict[str, Offer] = {}
    for size in config.sizes:
        offer = maker.fixed(size)
        found[offer.instance_type] = offer
    alike: dict[tuple[str, int], list[Listed]] = {}
    for row in rows:
        alike.setdefault((row.accelerator, row.count), []).append(row)
    for group in alike.values():
        offer = maker.accelerated(group)
        found.setdefault(offer.instance_type, offer)
    return tuple(one for one in found.values() if _sold(one))


class _Maker:
    """Offers of one provider."""

    def __init__(self, config: SkypilotConfig, provider_id: str, provider_name: str) -> None:
        self._config = config
        self._provider_id = provider_id
        self._provider_name = provider_name
        self._region = config.place()[1]

    def accelerated(self, group: list[Listed]) -> Offer:
        first = group[0]
        cpus = _least(one.cpus for one in group)
        memory = _least(one.memory for one in group)
        wanted = {"accelerators": {first.accelerator: first.count}}
        return self._offer(
            f"{first.count}x-{first.accelerator}".lower(),
            cpus=max(1, int(cpus or 1)),
            memory_gb=memory or 1.0,
            accelerator=first.accelerator,
            count=first.count,
            vram=_least(one.vram for one in group),
            prices=(_least(one.price for one in group), _least(one.spot_price for one in group)),
            wanted={
                **wanted,
                **({} if cpus is None or cpus < 1 else {"cpus": f"{int(cpus)}+"}),
                **({} if memory is None else {"memory": f"{memory:g}+"}),
            },
        )

    def fixed(self, size: Size) -> Offer:
        price = size.price_per_hour_usd
        if price is None:
            price = size.cpus * self._config.price_per_cpu_hour_usd
        name = f"{size.cpus}cpu-{size.memory_gb:g}gb"
        wanted: dict[str, object] = {"cpus": f"{size.cpus}+", "memory": f"{size.memory_gb:g}+"}
        if size.accelerator is not None:
            name = f"{size.accelerator_count}x-{size.accelerator}-{name}".lower()
            wanted["accelerators"] = {size.accelerator: size.accelerator_count}
        return self._offer(
            name,
            cpus=size.cpus,
            memory_gb=size.memory_gb,
            accelerator=size.accelerator,
            count=size.accelerator_count if size.accelerator is not None else 0,
            vram=size.accelerator_memory_gb if size.accelerator is not None else None,
            prices=(price, size.spot_price_per_hour_usd),
            wanted=wanted,
        )

    def _offer(
        self,
        name: str,
        *,
        cpus: int,
        memory_gb: float,
        accelerator: str | None,
        count: int,
        vram: float | None,
        prices: tuple[float | None, float | None],
        wanted: dict[str, object],
    ) -> Offer:
        on_demand, spot = (self._micro(price) for price in prices)
        return Offer(
            id=offer_id(self._provider_id, name, self._region),
            provider_id=self._provider_id,
            provider_name=self._provider_name,
            kind="skypilot",
            instance_type=name,
            cpus=cpus,
            memory_gb=memory_gb,
            accelerator=accelerator,
            accelerator_count=count,
            vram=vram,
            disk_gb=None if self._config.disk_gb is None else float(self._config.disk_gb),
            region=self._region,
            on_demand_micro=on_demand,
            spot_micro=spot,
            specific=dict(wanted),
        )

    def _micro(self, price: float | None) -> int | None:
        most = self._config.max_hourly_usd
        if price is None or (most is not None and price > most):
            return None
        return to_micro(Decimal(str(price)))


def _sold(offer: Offer) -> bool:
    return offer.on_demand_micro is not None or offer.spot_micro is not None


def _least(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return min(known) if known else None


def _listed(row: object) -> Listed | None:
    """One row: cloud, type, accelerator, how many, cores, its memory, memory, price, spot price, region."""
    parts = every(row)
    if len(parts) < 9:
        return None
    name, count = text(parts[2]), number(parts[3])
    if name is None or count is None or count != int(count) or not 1 <= count <= COUNT_MAX:
        return None
    cpus, vram, memory, price, spot = (number(part) for part in parts[4:9])
    return Listed(
        accelerator=name,
        count=int(count),
        cpus=cpus,
        vram=vram or None,
        memory=memory or None,
        price=price,
        spot_price=spot,
    )
