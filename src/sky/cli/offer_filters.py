"""Which machines of a list are meant, and in which order they come: for offers, and for the list of prices.

Decides: how sizes, accelerators and most prices are written, what fits, and that the cheapest comes first.
Never: asks anybody. Follows: what has no price is not taken for a free one: it comes last, and is left out
where a most price is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from sky.cli.errors import usage

_SIZE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<more>\+?)")
_GPU = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9 ._-]*)(?::(?P<count>[1-9][0-9]{0,3}))?")


class Machine(Protocol):
    """What is looked at of a machine: of one that is offered, and of one in the list of prices."""

    @property
    def kind(self) -> str: ...
    @property
    def instance_type(self) -> str: ...
    @property
    def cpus(self) -> float | None: ...
    @property
    def memory_gb(self) -> float | None: ...
    @property
    def accelerator(self) -> str | None: ...
    @property
    def accelerator_count(self) -> int: ...
    @property
    def vram(self) -> float | None: ...
    @property
    def region(self) -> str | None: ...
    @property
    def on_demand_price(self) -> float | None: ...
    @property
    def spot_price(self) -> float | None: ...


M = TypeVar("M", bound=Machine)


@dataclass(frozen=True, slots=True)
class Size:
    """A number, or that and more."""

    number: float
    more: bool

    def fits(self, there: float | None) -> bool:
        """Whether a machine with so much will do. One of which it is not known will not."""
        return there is not None and (there >= self.number if self.more else there == self.number)


@dataclass(frozen=True, slots=True)
class Filters:
    """Which machines are meant; None: any. Prices in USD an hour, memory in GB."""

    gpu: str | None = None
    count: int | None = None
    cpus: Size | None = None
    memory: Size | None = None
    region: str | None = None
    spot: bool = False
    kind: str | None = None
    min_vram: float | None = None
    max_price: float | None = None


@dataclass(frozen=True, slots=True)
class Sifted:
    """Those that fit, the cheapest first; how many of them have no price, and how many were left out because
    they have none that could be compared."""

    unpriced: int
    left_out: int


def size(text: str | None, option: str) -> Size | None:
    """``8`` or ``8+``. Raises CliError."""
    if text is None:
        return None
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise usage(f"{option} {text!r} is no size", "write 8 for exactly that, or 8+ for that and more")
    return Size(float(match["number"]), bool(match["more"]))


def accelerator(text: str | None, option: str) -> tuple[str | None, int | None]:
    """``A100`` or ``A100:8``: its name, and how many at least. Raises CliError."""
    if text is None:
        return None, None
    match = _GPU.fullmatch(text.strip())
    if match is None:
        raise usage(f"{option} {text!r} is no accelerator", "write A100, or A100:8 for eight of them or more")
    return match["name"].strip(), int(match["count"]) if match["count"] else None


def price(machine: Machine, *, spot: bool) -> float | None:
    """The price that is compared: on the spot market, or the lower one."""
    known = (machine.spot_price,) if spot else (machine.on_demand_price, machine.spot_price)
    return min((one for one in known if one is not None), default=None)


def sift(machines: Iterable[M], wanted: Filters) -> tuple[list[M], Sifted]:
    """The machines that fit, the cheapest first, and how it is with their prices."""
    fitting = [one for one in machines if _fits(one, wanted)]
    priced = [(price(one, spot=wanted.spot), one) for one in fitting]
    most = wanted.max_price
    shown = [(cost, one) for cost, one in priced if most is None or (cost is not None and cost <= most)]
    shown.sort(key=lambda x: (x[0] is None, x[0] or 0.0, _order(x[1])))
    unpriced = sum(cost is None for cost, _ in priced)
    sifted = Sifted(0, unpriced) if most is not None else Sifted(unpriced, 0)
    return [one for _, one in shown], sifted


def _order(one: Machine) -> tuple[Any, ...]:
    return one.kind, one.cpus or 0.0, one.instance_type, one.region or ""


def _fits(one: Machine, wanted: Filters) -> bool:
    return (
        (wanted.gpu is None or (one.accelerator or "").casefold() == wanted.gpu.casefold())
        and (wanted.count is None or one.accelerator_count >= wanted.count)
        and (wanted.cpus is None or wanted.cpus.fits(one.cpus))
        and (wanted.memory is None or wanted.memory.fits(one.memory_gb))
        and (wanted.region is None or (one.region or "").casefold() == wanted.region.casefold())
        and (wanted.kind is None or one.kind == wanted.kind.casefold())
        and (wanted.min_vram is None or (one.vram or 0.0) >= wanted.min_vram)
    )
