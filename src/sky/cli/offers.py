"""``sky offers``: what could be bought now.

Decides: the filters and the columns. Never: compares prices itself; the daemon sorts.
Follows: a list that is empty means that nothing fits, and not that nobody has looked yet.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from sky.cli import output, render
from sky.cli.app import Output, noun, only
from sky.cli.computes import LIST_ITEMS, check_limit, tell_more
from sky.cli.connection import reading
from sky.client import calls_machines
from sky.wire import v1

NONE_FIT = "nothing like that is offered; fewer filters or --refresh may show more"
NONE_ADDED = "no provider was added yet: `sky provider add local --kind local` adds this computer"


@only(
    "offers",
    "sky offers",
    "sky offers --accelerator A100 --max-price 4",
    "sky offers --provider local --refresh -o json",
)
def offers(
    *,
    provider: Annotated[str | None, Parameter(help="Only of this provider (name or id).")] = None,
    kind: Annotated[str | None, Parameter(help="Only of providers of this kind.")] = None,
    accelerator: Annotated[str | None, Parameter(help="Only with this accelerator.")] = None,
    min_count: Annotated[int | None, Parameter(help="With so many accelerators, at least.")] = None,
    min_vram: Annotated[float | None, Parameter(help="With so many GB each, at least.")] = None,
    max_price: Annotated[float | None, Parameter(metavar="USD", help="Per hour, at most.")] = None,
    refresh: Annotated[bool, Parameter(negative=(), help="Ask the providers anew.")] = False,
    limit: Annotated[int, Parameter(help="How many at most.")] = LIST_ITEMS,
    output_: Output = "table",
) -> int:
    """List machines that could be bought now, cheapest first. Prices are USD per hour."""
    check_limit(limit)
    with reading() as api:
        page = api.offers(
            provider=provider,
            kind=kind,
            accelerator=accelerator,
            min_count=min_count,
            min_vram=min_vram,
            max_price=max_price,
            refresh=refresh or None,
        )
        nothing = NONE_FIT if page.items or api.send(calls_machines.list_providers()).items else NONE_ADDED
    shown = page.items[:limit]
    if output_ == "json":
        output.json(v1.OfferPage(items=shown))
    elif not shown:
        output.note(nothing)
    else:
        flexible = ("TYPE", "PROVIDER", "REGION", "ACCELERATOR")
        output.table(render.OFFER_HEADINGS, map(render.offer_row, shown), flexible=flexible)
    tell_more(len(page.items) > limit, limit)
    return 0


app = noun("offers")
