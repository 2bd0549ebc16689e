"""``sky sku``: the kinds of machine that paid jobs can be run on, and their prices.

Decides: which facts are shown, and that what cannot be had here is not shown as sold.
Never: asks for a key.
Follows: what is listed is what a submit is judged by.
"""

from __future__ import annotations

from sky.cli import output
from sky.cli.app import Output, command, noun
from sky.cli.customer import dollars, looking
from sky.cli.output import Cell
from sky.wire import jobs as wire

app = noun("sku")

HEADINGS = ("SKU", "$/H", "CPUS", "MEMORY", "GPU", "WHERE", "SOLD")


@command(app, "sky sku list", "sky sku list -o json", name="list", instead=("ls", "get"))
def list_(*, output_: Output = "table") -> int:
    """List what paid jobs can be run on, with prices per hour, metered by the second."""
    with looking() as jobs:
        skus = jobs.skus()
        usable = frozenset(one.cloud for one in jobs.upstreams() if one.enabled)
    if output_ == "json":
        output.json(skus)
    elif not skus:
        output.note("nothing is sold here")
    else:
        output.table(HEADINGS, (_row(sku, usable) for sku in skus), flexible=("WHERE", "GPU"))
    return 0


def _row(sku: wire.SKU, usable: frozenset[str]) -> tuple[object, ...]:
    gpu = f"{sku.gpu_count}x {sku.gpu}" if sku.gpu_count else None
    clouds = tuple(dict.fromkeys(place.cloud for place in sku.providers or ()))
    where = ", ".join(clouds)
    if sku.available and not usable.isdisjoint(clouds):
        sold = Cell("spot" if sku.interruptible else "yes", "good")
    else:
        # On sale in the list, while no cloud of it is in use here: a submit would be refused.
        sold = Cell("not here" if sku.available else "no", "dim")
    return sku.id, dollars(sku.price_usd_per_hour), sku.vcpus, f"{sku.memory_gb}GB", gpu, where, sold
