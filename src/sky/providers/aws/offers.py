"""What EC2 sells and for how much: the types of our list of prices, with AWS's own prices where it tells.

Decides: which price counts: AWS's price list before ours, and on the spot market the highest of a region's
zones, since a machine may come to be in any. Never: offers a type whose price nobody knows. Follows: where
the price list may not be asked, the list that comes along is used, and an offer says where its price is from
and of when; a region that does not answer has no offers for now, and the others have theirs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sky.domain import price_list
from sky.domain.money import to_micro
from sky.domain.offer import Offer, offer_id
from sky.domain.price_list import Listed
from sky.kit.clock import SECOND_US, Clock
from sky.providers.aws.api import Api
from sky.providers.aws.config import AwsConfig
from sky.providers.base import ProviderError, Refused

KIND = "aws"
PRICES_KEPT_S = 24 * 3600
PRICES_AGAIN_S = 3600
PRICES_REGION = "us-east-1"
"""AWS answers about the prices of all regions there."""
SOURCE = "AWS's price list"
PRODUCTS = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
SPOT_PRODUCTS = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
_MAY_NOT = ("UnauthorizedOperation", "AccessDenied", "not authorized")


@dataclass(frozen=True, slots=True)
class Told:
    """What AWS's price list said of a region: micro-dollars an hour by type, the day on which it did (UTC),
    and until when that is good."""

    prices: dict[str, int]
    day: str
    until_us: int


NOTHING = Told({}, "", 0)


class Prices:
    """Asks AWS, and keeps what it has said."""

    def __init__(self, api: Api, config: AwsConfig, clock: Clock) -> None:
        self._api = api
        self._config = config
        self._clock = clock
        self._told: dict[str, Told] = {}

    async def offers(self, provider_id: str, name: str) -> tuple[Offer, ...]:
        """All offers of all regions that answer. Raises ProviderError when none does."""
        regions = self._config.regions
        found = await asyncio.gather(*map(self._region, regions), return_exceptions=True)
        offers: list[Offer] = []
        failures: list[BaseException] = []
        for region, prices in zip(regions, found, strict=True):
            if isinstance(prices, BaseException):
                failures.append(prices)
                continue
            offers += self._offers(region, *prices, provider_id, name)
        for failure in failures:
            if not isinstance(failure, ProviderError) or len(failures) == len(regions):
                raise failure
        if not offers:
            named = ", ".join(self._config.families) or "any"
            msg = (
                f"AWS: no type that families allows ({named}) has a price in {', '.join(regions)}; allow "
                "more, or let the credentials ask for prices (pricing:GetProducts)"
            )
            raise Refused(msg, "invalid_request", field="config.families")
        return tuple(offers)

    async def _region(self, region: str) -> tuple[Told, dict[str, int]]:
        """What AWS has told of prices on demand, and micro-dollars an hour by type on the spot market."""
        spot = await self._spot(region)
        return (await self._on_demand(region) if self._config.live_prices else NOTHING), spot

    def _offers(
        self, region: str, told: Told, spot: dict[str, int], provider_id: str, name: str
    ) -> Iterable[Offer]:
        for kind, row in _types(self._config.families).items():
            listed = row.get(region)
            price, as_of, source = told.prices.get(kind), told.day, SOURCE
            if price is None:
                as_of, source = price_list.as_of(), price_list.current().source
            if price is None and listed is not None and listed.price is not None:
                price = to_micro(listed.price)
            if price is None and kind not in spot:
                continue
            one = next(iter(row.values()))
            yield Offer(
                id=offer_id(provider_id, kind, region),
                provider_id=provider_id,
                provider_name=name,
                kind=KIND,
                instance_type=kind,
                cpus=int(one.cpus or 1),
                memory_gb=one.memory_gb or 1.0,
                accelerator=one.accelerator or None,
                accelerator_count=one.count,
                vram=one.device_memory_gb,
                disk_gb=float(self._config.disk_gb),
                architecture="x86_64",
                region=region,
                on_demand_micro=price,
                spot_micro=spot.get(kind),
                specific={"price_as_of": as_of, "price_source": source},
            )

    async def _spot(self, region: str) -> dict[str, int]:
        """The highest price of any zone now; none where the credentials may not ask."""
        try:
            rows = await self._api.pages(
                region,
                "ec2",
                "describe_spot_price_history",
                "SpotPriceHistory",
                StartTime=datetime.fromtimestamp(self._clock.now_us() / SECOND_US, UTC),
                InstanceTypes=list(_types(self._config.families)),
                ProductDescriptions=list(SPOT_PRODUCTS),
            )
        except Refused as refused:
            if refused.code == "unauthorized" and any(word in refused.message for word in _MAY_NOT):
                return {}
            raise
        prices: dict[str, int] = {}
        for row in rows:
            kind = str(row["InstanceType"])
            prices[kind] = max(prices.get(kind, 0), to_micro(row["SpotPrice"]))
        most = self._config.spot_max_usd
        return {kind: micro for kind, micro in prices.items() if most is None or micro <= to_micro(most)}

    async def _on_demand(self, region: str) -> Told:
        """What AWS's price list says, asked for once a day; empty where it cannot be asked."""
        kept = self._told.get(region, NOTHING)
        now_us = self._clock.now_us()
        if kept.until_us > now_us:
            return kept
        chosen = {**PRODUCTS, "regionCode": region}
        try:
            products = await self._api.pages(
                PRICES_REGION,
                "pricing",
                "get_products",
                "PriceList",
                ServiceCode="AmazonEC2",
                Filters=[{"Type": "TERM_MATCH", "Field": key, "Value": chosen[key]} for key in chosen],
            )
        except ProviderError:
            # Prices of the list that comes along do instead; before long they are asked for again.
            told = replace(kept, until_us=now_us + PRICES_AGAIN_S * SECOND_US)
        else:
            day = datetime.fromtimestamp(now_us / SECOND_US, UTC).date().isoformat()
            told = Told(dict(_priced(products)), day, now_us + PRICES_KEPT_S * SECOND_US)
        self._told[region] = told
        return told


def _types(families: tuple[str, ...]) -> dict[str, dict[str, Listed]]:
    """The types that are allowed, each with what the list has of it by region."""
    found: dict[str, dict[str, Listed]] = {}
    for row in price_list.table():
        family = row.instance_type.partition(".")[0]
        if row.cloud == KIND and (not families or {family, row.instance_type} & set(families)):
            found.setdefault(row.instance_type, {})[row.region] = row
    return found


def _priced(products: Iterable[Any]) -> Iterable[tuple[str, int]]:
    """(type, micro-dollars an hour) of the products of AWS's price list."""
    for product in products:
        known: dict[str, Any] = json.loads(product) if isinstance(product, str) else product
        kind = known.get("product", {}).get("attributes", {}).get("instanceType")
        for term in known.get("terms", {}).get("OnDemand", {}).values():
            for price in term.get("priceDimensions", {}).values():
                usd = price.get("pricePerUnit", {}).get("USD")
                if kind and usd and price.get("unit") == "Hrs" and float(usd) > 0:
                    yield str(kind), to_micro(usd)
