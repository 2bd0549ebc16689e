"""Accelerators, with the machines that have them and what those cost.

Decides: which rows a question means, and in which order they come. Never: asks a provider.
Follows: list prices carry the month they are of; what a provider of this server offers now stands beside them
and says so; a filter that is no expression is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sky.domain import price_list
from sky.domain.money import to_usd
from sky.domain.offer import Offer
from sky.domain.patterns import bounded
from sky.domain.provider import Rules
from sky.domain.request_errors import RequestFailure
from sky.kit.nearby import hint
from sky.store.rows import providers
from sky.store.tx import Tx
from sky.wire import requests as wire
from sky.wire.request_answers import AcceleratorInfo


def listing(tx: Tx, body: wire.AcceleratorsBody, rules: Rules) -> dict[str, list[AcceleratorInfo]]:
    """Machines by accelerator. Raises RequestFailure."""
    wanted = _clouds(body, rules)
    name = _pattern(body.name_filter, "name_filter", ignore_case=not body.case_sensitive)
    region = _pattern(body.region_filter, "region_filter", ignore_case=True)
    found: dict[str, list[AcceleratorInfo]] = {}
    for row in _cheapest([*_live(tx), *_listed()], body):
        if wanted is not None and row.cloud not in wanted:
            continue
        if body.gpus_only and not price_list.is_gpu(row.accelerator_name):
            continue
        if name is not None and not name.search(row.accelerator_name):
            continue
        if region is not None and not region.search(row.region or ""):
            continue
        if body.quantity_filter is not None and row.accelerator_count != body.quantity_filter:
            continue
        if body.require_price and row.price is None and row.spot_price is None:
            continue
        found.setdefault(row.accelerator_name, []).append(row)
    return {key: sorted(found[key], key=_order) for key in sorted(found)}


def counts(tx: Tx, body: wire.AcceleratorsBody, rules: Rules) -> dict[str, list[float]]:
    """How many of each accelerator a machine can have."""
    return {
        name: sorted({_whole(row.accelerator_count) for row in rows})
        for name, rows in listing(tx, body, rules).items()
    }


def _clouds(body: wire.AcceleratorsBody, rules: Rules) -> frozenset[str] | None:
    if body.clouds is None:
        return None
    known = {*rules.kinds, *price_list.clouds()}
    for cloud in body.clouds:
        if cloud.casefold() not in known:
            msg = f"there is no cloud {cloud!r}; {hint(cloud.casefold(), known)}"
            raise RequestFailure("InvalidCloudError", msg, cloud=cloud)
    return frozenset(cloud.casefold() for cloud in body.clouds)


def _pattern(text: str | None, field: str, *, ignore_case: bool) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return bounded(text, ignore_case=ignore_case)
    except ValueError as error:
        raise RequestFailure("InvalidArgument", f"{field}: {error}", field=field, value=text) from None


def _cheapest(rows: Iterable[AcceleratorInfo], body: wire.AcceleratorsBody) -> Iterator[AcceleratorInfo]:
    """Each machine once, in its cheapest region, unless regions were asked for."""
    if body.all_regions or body.region_filter is not None:
        yield from rows
        return
    best: dict[tuple[str, str, str, float, str], AcceleratorInfo] = {}
    for row in rows:
        key = (row.cloud, row.instance_type, row.accelerator_name, row.accelerator_count, row.source)
        known = best.get(key)
        if known is None or _price(row) < _price(known):
            best[key] = row
    yield from best.values()


def _price(row: AcceleratorInfo) -> float:
    prices = [price for price in (row.price, row.spot_price) if price is not None]
    return min(prices, default=float("inf"))


def _order(row: AcceleratorInfo) -> tuple[float, str, float, str, str]:
    return (row.accelerator_count, row.cloud, _price(row), row.instance_type, row.region or "")


def _whole(count: float) -> float:
    return int(count) if count == int(count) else count


def _listed() -> Iterator[AcceleratorInfo]:
    for row in price_list.table():
        if not row.accelerator:
            continue
        yield AcceleratorInfo(
            cloud=row.cloud,
            instance_type=row.instance_type,
            accelerator_name=row.accelerator,
            accelerator_count=row.count,
            cpu_count=row.cpus,
            device_memory=row.device_memory_gb,
            memory=row.memory_gb,
            price=row.price,
            spot_price=row.spot_price,
            region=row.region,
            source="list",
            as_of=price_list.as_of(),
        )


def _live(tx: Tx) -> Iterator[AcceleratorInfo]:
    for offer in providers.offers_of(tx.connection):
        if offer.accelerator:
            yield _shown(offer, offer.accelerator)


def _shown(offer: Offer, accelerator: str) -> AcceleratorInfo:
    return AcceleratorInfo(
        cloud=offer.kind,
        instance_type=offer.instance_type,
        accelerator_name=accelerator,
        accelerator_count=offer.accelerator_count,
        cpu_count=offer.cpus,
        device_memory=offer.vram,
        memory=offer.memory_gb,
        price=None if offer.on_demand_micro is None else to_usd(offer.on_demand_micro),
        spot_price=None if offer.spot_micro is None else to_usd(offer.spot_micro),
        region=offer.region,
        source="live",
    )
