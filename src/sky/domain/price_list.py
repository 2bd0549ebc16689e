"""Machines in clouds, and what they cost by list in one month: data, with its date, currency and source.

Decides: the form of such a list, and what is wrong with one. Never: says what can be bought; offers of
providers do, with prices that their clouds tell wherever those can be asked.
Follows: every price is shown with the date of the list, since prices change; what nobody publishes (a spot
price, which changes by the hour) is left out rather than guessed; a list is whole or refused.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from functools import cache
from importlib import resources

from msgspec import Struct

FILE = "price_list.csv"
"""The list that comes along, beside this module."""
COLUMNS = (
    "cloud",
    "instance_type",
    "accelerator",
    "count",
    "cpus",
    "memory_gb",
    "device_memory_gb",
    "region",
    "price",
    "spot_price",
)
FACTS = ("as_of", "currency", "source")
CURRENCY = "USD"
ROWS_MAX = 100_000
_FACT = re.compile(r"#\s*(?P<name>[a-z_]+)\s*:\s*(?P<value>.*\S)\s*")
_DATE = re.compile(r"\d{4}-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|[12]\d|3[01]))?")
_NOT_GPUS = ("tpu", "inferentia", "trainium")


class PriceListError(ValueError):
    """A list cannot be used; the message says where and why."""


class Listed(Struct, frozen=True):
    """One kind of machine in one region. Memory in GB, prices in USD an hour.

    ``accelerator`` is empty, and ``count`` 0, where it has none. A price is None where the list has none.
    """

    cloud: str
    instance_type: str
    accelerator: str
    count: int
    cpus: float | None
    memory_gb: float | None
    device_memory_gb: float | None
    region: str
    price: float | None
    spot_price: float | None


class PriceList(Struct, frozen=True):
    """A whole list. ``as_of``: the month or day whose prices these are; ``source``: where they are from."""

    as_of: str
    source: str
    rows: tuple[Listed, ...]


def parse(text: str, name: str) -> PriceList:
    """The list in a file that is called ``name``. Raises PriceListError."""
    lines = text.splitlines()
    facts = _facts(lines, name)
    rows: list[Listed] = []
    seen: dict[tuple[object, ...], int] = {}
    for number, given in _rows(lines, name):
        row = _listed(given, f"{name}:{number}")
        key = (row.cloud, row.instance_type, row.accelerator, row.count, row.region)
        if key in seen:
            raise PriceListError(
                f"{name}:{number}: {row.cloud} {row.instance_type} in {row.region or 'no region'} is in line "
                f"{seen[key]} already; keep one of them"
            )
        seen[key] = number
        rows.append(row)
        if len(rows) > ROWS_MAX:
            raise PriceListError(f"{name}: more than {ROWS_MAX} machines; leave some out")
    return PriceList(facts["as_of"], facts["source"], tuple(rows))


@cache
def shipped() -> PriceList:
    """The list that comes along."""
    return parse(resources.files("sky.domain").joinpath(FILE).read_text(encoding="utf-8"), FILE)


_used: list[PriceList] = []


def use(own: PriceList | None) -> None:
    """From now on that list counts in this process; None: the one that comes along."""
    _used[:] = [] if own is None else [own]


def current() -> PriceList:
    """The list that counts."""
    return _used[0] if _used else shipped()


def table() -> tuple[Listed, ...]:
    """All machines of it."""
    return current().rows


def as_of() -> str:
    """The date whose prices these are."""
    return current().as_of


def clouds() -> frozenset[str]:
    """The clouds that are in it."""
    return frozenset(row.cloud for row in table())


def accelerators() -> frozenset[str]:
    """The accelerators that are in it."""
    return frozenset(row.accelerator for row in table() if row.accelerator)


def is_gpu(accelerator: str) -> bool:
    """Whether an accelerator is a GPU, going by its name."""
    return not accelerator.casefold().startswith(_NOT_GPUS)


# ── the form ────────────────────────────────────────────────────────────────────────────────────


def _facts(lines: list[str], name: str) -> dict[str, str]:
    """What the lines above the table say of all of it."""
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.startswith("#"):
            break
        match = _FACT.fullmatch(line)
        if match is not None and match["name"] in FACTS:
            found[match["name"]] = match["value"]
        elif match is not None:
            raise PriceListError(f"{name}:{number}: {match['name']!r} is none of {', '.join(FACTS)}")
    missing = [fact for fact in FACTS if fact not in found]
    if missing:
        raise PriceListError(f"{name}:1: the line '# {missing[0]}: …' is missing above the table")
    if not _DATE.fullmatch(found["as_of"]):
        raise PriceListError(f"{name}: as_of is a month or a day such as 2025-01, not {found['as_of']!r}")
    if found["currency"] != CURRENCY:
        raise PriceListError(f"{name}: currency is {CURRENCY}, not {found['currency']!r}; convert the prices")
    return found


def _rows(lines: list[str], name: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of the table, each with its line."""
    above = next((place for place, line in enumerate(lines) if not line.startswith("#")), len(lines))
    read = csv.reader(lines[above:])
    try:
        heads: list[str] = next(read, list[str]())
        if tuple(heads) != COLUMNS:
            raise PriceListError(
                f"{name}:{above + 1}: the columns are {','.join(COLUMNS)}, not {','.join(heads)[:200]!r}"
            )
        for values in read:
            number = above + read.line_num
            if not values:
                continue
            if len(values) != len(COLUMNS):
                raise PriceListError(f"{name}:{number}: {len(values)} values, and {len(COLUMNS)} columns")
            yield number, dict(zip(COLUMNS, values, strict=True))
    except csv.Error as error:
        raise PriceListError(f"{name}:{above + read.line_num}: it is no table: {error}") from error


def _listed(row: dict[str, str], where: str) -> Listed:
    for column in ("cloud", "instance_type"):
        if not row[column]:
            raise PriceListError(f"{where}: {column} is empty")
    count = _number(row, "count", where) or 0.0
    if count != int(count) or (count > 0) != bool(row["accelerator"]):
        raise PriceListError(
            f"{where}: count is how many accelerators it has, and 0 without one, not {row['count']!r}"
        )
    return Listed(
        cloud=row["cloud"].casefold(),
        instance_type=row["instance_type"],
        accelerator=row["accelerator"],
        count=int(count),
        cpus=_number(row, "cpus", where),
        memory_gb=_number(row, "memory_gb", where),
        device_memory_gb=_number(row, "device_memory_gb", where),
        region=row["region"],
        price=_number(row, "price", where),
        spot_price=_number(row, "spot_price", where),
    )


def _number(row: dict[str, str], column: str, where: str) -> float | None:
    text = row[column]
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise PriceListError(f"{where}: {column} is a number from 0, or nothing, not {text!r}")
    return number
