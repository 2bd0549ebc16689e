"""Spans of traces: where they begin and end in our code, whoever collects them.

Decides: nothing. Never: collects one; without a collector (``collect_with``) a span is nothing at all.
Follows: the code that is traced needs no package for it, and costs nothing while nobody asked for traces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

Attributes = Mapping[str, str | int | float]


class Span(Protocol):
    """A span that has begun."""

    def tell(self, name: str, attributes: Attributes) -> None:
        """What is known of it now: its name, and more about it."""
        ...


class _Nothing:
    def tell(self, name: str, attributes: Attributes) -> None:
        """Nobody asked."""


Maker = Callable[[str, Attributes, Mapping[str, str]], AbstractContextManager[Span]]
_NOTHING = nullcontext(_Nothing())
_makers: list[Maker] = []


def collect_with(maker: Maker | None) -> None:
    """From now on spans are made by that; None: by nobody."""
    _makers[:] = [] if maker is None else [maker]


def asked_for() -> bool:
    """Whether anybody collects."""
    return bool(_makers)


def span(
    name: str, attributes: Attributes | None = None, carrier: Mapping[str, str] | None = None
) -> AbstractContextManager[Span]:
    """A span around what is done meanwhile, below the one that this is in, or the one that ``carrier`` (the
    headers of a request) names."""
    return _makers[0](name, attributes or {}, carrier or {}) if _makers else _NOTHING
