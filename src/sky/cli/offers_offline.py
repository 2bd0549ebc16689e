"""``sky offers --offline``: what machines of several clouds cost by list, without a daemon or a network.

Decides: in which words a name that the list does not have is refused. Never: loads server code here: this
installation's own prints the list, in a process of its own.
Follows: the date, the currency and the source of the list are told with it; a price that it does not have is
said to be none.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from sky.cli import output
from sky.cli.errors import FAILED, MISSING, USAGE, CliError
from sky.cli.nouns import near
from sky.cli.offer_filters import Filters, Sifted, sift
from sky.cli.output import Cell
from sky.cli.render import money

MODULE = "sky.server.prices"
PRINT_S = 60.0
HEADINGS = ("CLOUD", "TYPE", "CPUS", "MEM", "ACCELERATOR", "REGION", "SPOT", "$/H")
OWN = ("container", "kubernetes", "local", "ssh")
"""Kinds whose machines are somebody's own: no list has a price for them."""
NEAR_MAX = 3


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A machine in the list, under the names that offers have. Prices in USD an hour; None: it has none."""

    kind: str
    instance_type: str
    cpus: float | None
    memory_gb: float | None
    accelerator: str | None
    accelerator_count: int
    vram: float | None
    region: str | None
    price: float | None
    on_demand_price: float | None
    spot_price: float | None


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """A list, or what was asked for of one."""

    as_of: str
    currency: str
    source: str
    items: tuple[Listed, ...]


def show(wanted: Filters, limit: int, format_: Literal["table", "json"]) -> bool:
    """Print what fits, the cheapest first; returns whether there is more than ``limit``."""
    prices = _read()
    fitting, sifted = sift(prices.items, wanted)
    if not fitting:
        _refuse_unknown(prices.items, wanted)
    shown = fitting[:limit]
    if format_ == "json":
        output.json(msgspec.structs.replace(prices, items=tuple(shown)))
        return len(fitting) > limit
    if shown:
        output.table(HEADINGS, map(_row, shown), flexible=("TYPE", "REGION", "ACCELERATOR"))
    for note in _notes(prices, wanted, sifted, bool(fitting)):
        output.note(note)
    return len(fitting) > limit


def _read() -> Prices:
    """The list, as this installation's server reads it. Raises CliError."""
    done = subprocess.run([sys.executable, "-m", MODULE], capture_output=True, timeout=PRINT_S, check=False)
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        wrong = done.returncode == USAGE
        hint = "mend the file that SKY_PRICE_LIST names, or unset it; see docs/offers.md" if wrong else None
        message = f"the list of prices cannot be read: {said[-1] if said else 'nothing was said'}"
        raise CliError("invalid_request" if wrong else "internal", message, hint, USAGE if wrong else FAILED)
    told: dict[str, Any] = msgspec.json.decode(done.stdout)
    items = tuple(_listed(row) for row in told.pop("rows"))
    return Prices(**told, items=items)


def _listed(row: dict[str, Any]) -> Listed:
    known = [price for price in (row["price"], row["spot_price"]) if price is not None]
    return Listed(
        kind=row["cloud"],
        instance_type=row["instance_type"],
        cpus=row["cpus"],
        memory_gb=row["memory_gb"],
        accelerator=row["accelerator"] or None,
        accelerator_count=row["count"],
        vram=row["device_memory_gb"],
        region=row["region"] or None,
        price=min(known, default=None),
        on_demand_price=row["price"],
        spot_price=row["spot_price"],
    )


def _row(one: Listed) -> tuple[object, ...]:
    has = f"{one.accelerator}:{one.accelerator_count}" if one.accelerator else None
    return (
        one.kind,
        one.instance_type,
        None if one.cpus is None else f"{one.cpus:g}",
        None if one.memory_gb is None else f"{one.memory_gb:g}G",
        has,
        one.region,
        _price(one.spot_price),
        _price(one.on_demand_price),
    )


def _price(usd: float | None) -> object:
    return Cell("none", "dim") if usd is None else money(usd)


def _notes(prices: Prices, wanted: Filters, sifted: Sifted, any_: bool) -> list[str]:
    what = "spot price" if wanted.spot else "price"
    notes = [f"list prices of {prices.as_of} in {prices.currency}: {prices.source}"]
    if sifted.left_out:
        notes.append(f"{sifted.left_out} more would fit and have no {what} in the list")
    elif sifted.unpriced:
        notes.append(f"{sifted.unpriced} of those that fit have no {what} in the list")
    elif not any_ and wanted.kind in OWN:
        notes.append(f"the list has no machines of your own; `sky offers --kind {wanted.kind}` asks for them")
    elif not any_:
        notes.append("nothing in the list is like that; fewer filters may show more")
    return notes


def _refuse_unknown(items: Sequence[Listed], wanted: Filters) -> None:
    """A name that the list does not have is a slip, or somebody's own. Raises CliError."""
    if wanted.gpu is not None:
        names = {one.accelerator for one in items if one.accelerator}
        _refuse(wanted.gpu, names, "accelerator", "`sky offers --offline -o json` has all")
        most = max(one.accelerator_count for one in items if _same(one.accelerator, wanted.gpu))
        if wanted.count is not None and wanted.count > most:
            message = f"no machine in the list has {wanted.gpu}:{wanted.count}"
            raise CliError("not_found", message, f"{most} is the most that one has", MISSING)
    if wanted.kind is not None and wanted.kind not in OWN:
        kinds = {one.kind for one in items}
        _refuse(wanted.kind, kinds, "cloud", f"it has {', '.join(sorted(kinds))}")
    if wanted.region is not None and wanted.kind not in OWN:
        regions = {one.region for one in items if one.region and wanted.kind in (None, one.kind)}
        _refuse(wanted.region, regions, "region", f"it has {', '.join(sorted(regions))}")


def _same(one: str | None, other: str) -> bool:
    return (one or "").casefold() == other.casefold()


def _refuse(name: str, known: set[str], what: str, otherwise: str) -> None:
    if any(_same(one, name) for one in known):
        return
    folded = {one.casefold(): one for one in known}
    meant = [folded[one] for one in near(name.casefold(), sorted(folded), NEAR_MAX)]
    hint = f"did you mean {' or '.join(meant)}?" if meant else otherwise
    raise CliError("not_found", f"the list of prices has no {what} {name!r}", hint, MISSING)
