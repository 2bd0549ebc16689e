"""Machines in clouds, and what they cost by list in one month: facts of this release.

Decides: nothing; it is the table beside it, read once. Never: says what can be bought; offers of providers
do, with prices that their clouds tell wherever those can be asked.
Follows: every price is shown with the month of the list, since prices change, and the list was written down
by hand; what nobody publishes (a spot price, which changes by the hour) is left out rather than guessed.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources

AS_OF = "2025-01"
"""The month whose list prices these are."""
_TABLE = "price_list.csv"
_NOT_GPUS = ("tpu", "inferentia", "trainium")


@dataclass(frozen=True, slots=True)
class Listed:
    """One kind of machine in one region. Memory in GB, prices in USD an hour.

    ``accelerator`` is empty, and ``count`` 0, where it has none.
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


@cache
def table() -> tuple[Listed, ...]:
    """All of it."""
    text = resources.files("sky.domain").joinpath(_TABLE).read_text(encoding="utf-8")
    return tuple(_listed(row) for row in csv.DictReader(text.splitlines()))


@cache
def clouds() -> frozenset[str]:
    """The clouds that are in it."""
    return frozenset(row.cloud for row in table())


@cache
def accelerators() -> frozenset[str]:
    """The accelerators that are in it."""
    return frozenset(row.accelerator for row in table() if row.accelerator)


def is_gpu(accelerator: str) -> bool:
    """Whether an accelerator is a GPU, going by its name."""
    return not accelerator.casefold().startswith(_NOT_GPUS)


def _listed(row: dict[str, str]) -> Listed:
    return Listed(
        cloud=row["cloud"],
        instance_type=row["instance_type"],
        accelerator=row["accelerator"],
        count=int(row["count"]),
        cpus=_number(row["cpus"]),
        memory_gb=_number(row["memory_gb"]),
        device_memory_gb=_number(row["device_memory_gb"]),
        region=row["region"],
        price=_number(row["price"]),
        spot_price=_number(row["spot_price"]),
    )


def _number(text: str) -> float | None:
    return float(text) if text else None
