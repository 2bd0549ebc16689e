"""What the nodes of a compute would cost per hour.

Decides: which of the offers, as they are now, would fit a definition, and that the cheapest is told. Never:
chooses one; the daemon does when it buys. Follows: it is told before anything is bought.
"""

from __future__ import annotations

from sky.cli import output, render
from sky.cli.connection import Api
from sky.wire import v1


def tell(api: Api, spec: v1.ComputeSpec) -> None:
    """Say what the nodes will cost per hour, from the offers as they are now."""
    prices: list[tuple[float, v1.Offer]] = []
    for wanted in spec.specs:
        page = api.offers(accelerator=wanted.accelerator, max_price=wanted.max_hourly_cost)
        prices += [
            (price, offer)
            for offer in page.items
            if _fits(offer, wanted) and (price := _price(offer, spec.allocation)) is not None
        ]
    nodes = spec.nodes
    if not prices:
        output.note("price: no offer is known that fits; the daemon goes on looking")
        return
    price, offer = min(prices, key=lambda found: found[0])
    most = nodes.max if nodes.max is not None else nodes.desired
    total = render.money(price * nodes.desired)
    upto = f", up to {render.money(price * most)} with {most}" if most != nodes.desired else ""
    each = f"{nodes.desired} × {render.money(price)} ({offer.provider_name} {offer.instance_type})"
    output.note(f"price: {total} per hour{upto}: {each}")


def _fits(offer: v1.Offer, wanted: v1.Spec) -> bool:
    return (
        wanted.provider.kind in (offer.kind, offer.provider_name, offer.provider_id)
        and offer.cpus >= (wanted.cpus or 0)
        and offer.memory_gb >= (wanted.memory_gb or 0)
        and (wanted.accelerator is None or offer.accelerator_count >= wanted.accelerator_count)
        and (wanted.region is None or offer.region == wanted.region)
        and (wanted.architecture is None or offer.architecture in (None, wanted.architecture))
    )


def _price(offer: v1.Offer, allocation: v1.Allocation) -> float | None:
    spot = offer.spot_price
    demand = offer.on_demand_price if offer.on_demand_price is not None else offer.price
    match allocation:
        case "on_demand":
            return demand
        case "spot":
            return spot
        case "spot_if_available":
            return spot if spot is not None else demand
        case "cheapest":
            return min((p for p in (spot, demand) if p is not None), default=None)
