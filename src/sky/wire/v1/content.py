"""Functions, as they are registered and shown.

Decides: their fields. Never: what is in one. Follows: the name of content is its SHA-256.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from sky.wire.v1.base import Answer, Request, ShortText


class FunctionCreate(Request, frozen=True):
    """Registers a blob that is already stored as a function."""

    codec: Annotated[str, Meta(min_length=1, max_length=64)]
    name: ShortText | None = None


class Function(Answer, frozen=True):
    """A piece of code, named by its hash."""

    sha256: str
    codec: str
    size_bytes: int
    created_at: datetime
    name: str | None = None


class FunctionPage(Answer, frozen=True):
    """Some functions, newest first."""

    items: tuple[Function, ...]
    next_cursor: str | None = None
