"""``sky offers``: what could be bought now, and what it costs by list.

Decides: the filters and the columns. Never: asks a provider; the daemon does, or with ``--offline`` nobody.
Follows: a list that is empty means that nothing fits, and not that nobody has looked yet; a price by list is
told with its date.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from sky.cli import offer_filters, offers_offline, output, render
from sky.cli.app import Output, noun, only
from sky.cli.computes import LIST_ITEMS, check_limit, tell_more
from sky.cli.connection import Api, reading
from sky.cli.errors import usage
from sky.cli.nouns import near
from sky.cli.offer_filters import Filters
from sky.client import calls_machines
from sky.wire import v1

NONE_FIT = "nothing like that is offered; fewer filters or --refresh may show more"
NONE_ADDED = "no provider was added yet: `sky provider add local --kind local` adds this computer"


@only(
    "offers",
    "sky offers",
    "sky offers --gpu A100:8 --max-hourly-cost 40",
    "sky offers --provider local --refresh -o json",
    "sky offers --offline --gpu H100 --cpus 8+ --memory 32+",
)
def offers(
    *,
    provider: Annotated[str | None, Parameter(help="Only of this provider (name or id).")] = None,
    kind: Annotated[str | None, Parameter(help="Only of providers of this kind.")] = None,
    gpu: Annotated[
        str | None, Parameter(name=["--gpu", "--accelerator"], help="Only with it: A100, A100:8 or more.")
    ] = None,
    cpus: Annotated[str | None, Parameter(help="Cores: 8, or 8+ for that and more.")] = None,
    memory: Annotated[str | None, Parameter(help="Memory in GB: 32, or 32+.")] = None,
    region: Annotated[str | None, Parameter(help="Only in this region.")] = None,
    spot: Annotated[bool, Parameter(negative=(), help="Compare prices of the spot market.")] = False,
    min_count: Annotated[int | None, Parameter(help="With so many accelerators, at least.")] = None,
    min_vram: Annotated[float | None, Parameter(help="With so many GB each, at least.")] = None,
    max_price: Annotated[
        float | None,
        Parameter(name=["--max-price", "--max-hourly-cost"], metavar="USD", help="Per hour, at most."),
    ] = None,
    refresh: Annotated[bool, Parameter(negative=(), help="Ask the providers anew.")] = False,
    offline: Annotated[
        bool, Parameter(negative=(), help="By list, of several clouds: no daemon, no network.")
    ] = False,
    limit: Annotated[int, Parameter(help="How many at most.")] = LIST_ITEMS,
    output_: Output = "table",
) -> int:
    """List machines that could be bought now, cheapest first. Prices are USD per hour."""
    check_limit(limit)
    name, count = offer_filters.accelerator(gpu, "--gpu")
    wanted = Filters(
        gpu=name,
        count=max((one for one in (count, min_count) if one is not None), default=None),
        cpus=offer_filters.size(cpus, "--cpus"),
        memory=offer_filters.size(memory, "--memory"),
        region=region,
        spot=spot,
        kind=kind,
        min_vram=min_vram,
        max_price=max_price,
    )
    if offline:
        if refresh:
            raise usage("--offline and --refresh were both given", "--refresh asks providers; leave one out")
        tell_more(offers_offline.show(_by_list(wanted, provider), limit, output_), limit)
        return 0
    with reading() as api:
        return _live(api, wanted, provider, refresh=refresh, limit=limit, format_=output_)


def _by_list(wanted: Filters, provider: str | None) -> Filters:
    """The same of the list, whose clouds are what providers are of."""
    if provider is not None and wanted.kind not in (None, provider):
        raise usage(f"--provider {provider} and --kind {wanted.kind} were both given", "name one of them")
    return replace(wanted, kind=provider or wanted.kind)


def _live(
    api: Api, wanted: Filters, provider: str | None, *, refresh: bool, limit: int, format_: output.Format
) -> int:
    """What this daemon's providers offer. It has filters of its own, and others are looked at here."""
    page = api.offers(
        provider=provider,
        kind=wanted.kind,
        accelerator=wanted.gpu,
        min_count=wanted.count,
        min_vram=wanted.min_vram,
        max_price=wanted.max_price,
        refresh=refresh or None,
    )
    fitting, sifted = offer_filters.sift(page.items, wanted)
    shown = fitting[:limit]
    if format_ == "json":
        output.json(v1.OfferPage(items=tuple(shown)))
    elif shown:
        flexible = ("TYPE", "PROVIDER", "REGION", "ACCELERATOR")
        output.table(render.OFFER_HEADINGS, map(render.offer_row, shown), flexible=flexible)
        _tell_dates(shown)
    else:
        output.note(_nothing(api, wanted))
    if wanted.spot and (without := sifted.left_out or sifted.unpriced):
        output.note(f"{without} of those that fit are not sold on the spot market")
    tell_more(len(fitting) > limit, limit)
    return 0


def _nothing(api: Api, wanted: Filters) -> str:
    """Why there is nothing to show."""
    if not api.send(calls_machines.list_providers()).items:
        return NONE_ADDED
    if wanted.gpu is not None:
        known = {one.accelerator for one in api.offers().items if one.accelerator}
        folded = {one.casefold(): one for one in known}
        meant = near(wanted.gpu.casefold(), sorted(folded))
        if meant and meant[0] != wanted.gpu.casefold():
            return f"no {wanted.gpu!r} is offered; did you mean {folded[meant[0]]}?"
    return NONE_FIT


def _tell_dates(shown: Iterable[v1.Offer]) -> None:
    """Where prices are from that a provider looked up, and of which date they are."""
    dated: dict[tuple[str, str], set[str]] = {}
    for one in shown:
        as_of, source = one.specific.get("price_as_of"), one.specific.get("price_source")
        if as_of is not None and one.on_demand_price is not None:
            dated.setdefault((str(as_of), str(source)), set()).add(one.provider_name)
    for (as_of, source), names in sorted(dated.items()):
        output.note(f"prices on demand of {', '.join(sorted(names))} are of {as_of}: {source}")


app = noun("offers")
