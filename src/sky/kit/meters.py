"""What a process counts about itself, and how that is written for Prometheus (text format 0.0.4).

Decides: the form of a line, and how many series one meter may have. Never: knows what is counted, keeps a
name of somebody's, or waits for a lock: each meter is moved by one thread, and may be read by any.
Follows: what has too many different labels is counted together, as ``other``, so that no caller can make the
process grow; the number of observations is the sum of the buckets that are shown, so they always agree.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SERIES_MAX = 2_000
"""Different labels that one meter tells apart."""
OTHER = "other"
SHORT_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Bounds of buckets, in seconds, for what usually takes milliseconds and may take a minute."""

Labels = tuple[str, ...]
Sample = tuple[str, Mapping[str, str], float]
"""What follows the name, the labels, the value."""


@dataclass(frozen=True, slots=True)
class Family:
    """Everything with one name. ``kind``: counter, gauge or histogram."""

    name: str
    kind: str
    help: str
    samples: Sequence[Sample]


class Counter:
    """How often something happened, by labels."""

    def __init__(self, name: str, told: str, labels: Labels = ()) -> None:
        self.name, self.help, self.labels = name, told, labels
        self._cells: dict[Labels, float] = {}

    def add(self, *labels: str, by: float = 1) -> None:
        """It has happened again."""
        key = labels if labels in self._cells or len(self._cells) < SERIES_MAX else (OTHER,) * len(labels)
        self._cells[key] = self._cells.get(key, 0) + by

    def family(self) -> Family:
        """As it stands."""
        cells = sorted(self._cells.copy().items())
        samples = [("", dict(zip(self.labels, key, strict=True)), value) for key, value in cells]
        return Family(self.name, "counter", self.help, samples)


@dataclass(slots=True)
class _Cell:
    counts: list[int]
    total: float = field(default=0.0)


class Histogram:
    """How long something took, by labels: how often up to each bound, and in all."""

    def __init__(self, name: str, told: str, labels: Labels = (), bounds: Sequence[float] = SHORT_S) -> None:
        self.name, self.help, self.labels, self.bounds = name, told, labels, tuple(bounds)
        self._cells: dict[Labels, _Cell] = {}

    def add(self, value: float, *labels: str) -> None:
        """It was seen once more."""
        cell = self._cells.get(labels)
        if cell is None:
            key = labels if len(self._cells) < SERIES_MAX else (OTHER,) * len(labels)
            cell = self._cells.setdefault(key, _Cell([0] * (len(self.bounds) + 1)))
        cell.counts[bisect_left(self.bounds, value)] += 1
        cell.total += value

    def family(self) -> Family:
        """As it stands."""
        return Family(self.name, "histogram", self.help, list(self._samples()))

    def _samples(self) -> Iterator[Sample]:
        for key, cell in sorted(self._cells.copy().items()):
            labels = dict(zip(self.labels, key, strict=True))
            seen = 0
            for bound, count in zip((*self.bounds, math.inf), tuple(cell.counts), strict=True):
                seen += count
                yield "_bucket", {**labels, "le": _number(bound)}, seen
            yield "_sum", labels, cell.total
            yield "_count", labels, seen


def gauge(name: str, told: str, value: float | Mapping[str, float] | None, label: str = "") -> Family:
    """Something that is there now: one number, or numbers by a label; None: it is not known."""
    if value is None:
        return Family(name, "gauge", told, ())
    if isinstance(value, Mapping):
        return Family(name, "gauge", told, [("", {label: key}, value[key]) for key in sorted(value)])
    return Family(name, "gauge", told, [("", {}, value)])


def written(families: Iterable[Family]) -> bytes:
    """All of it as text; what has no sample is left out."""
    lines: list[str] = []
    for one in families:
        if one.samples:
            told = one.help.replace("\\", r"\\").replace("\n", r"\n")
            lines += [f"# HELP {one.name} {told}", f"# TYPE {one.name} {one.kind}"]
            lines += [
                f"{one.name}{suffix}{_labels(labels)} {_number(v)}" for suffix, labels, v in one.samples
            ]
    return "".join(f"{line}\n" for line in lines).encode()


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(value)
