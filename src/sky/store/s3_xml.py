"""Reads what a bucket answers in XML: a page of a list, and the code of an error.

Decides: which elements count. Never: expands an entity or reads a document type, which no store sends.
Follows: an answer that is not what it should be is an error, never an empty list.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Never
from urllib.parse import unquote
from xml.parsers import expat

DEPTH_MAX = 8


class UnreadableError(ValueError):
    """An answer of the storage that is not what it should be."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some keys with their sizes in bytes and since when they are there, where that is told; ``after`` is
    where the next page begins (None: there is none)."""

    sizes: dict[str, int]
    after: str | None
    since_us: dict[str, int] = field(default_factory=dict[str, int])

    def without(self, prefix: str) -> Page:
        """The same keys as they are within a prefix."""
        sizes = {key.removeprefix(prefix): size for key, size in self.sizes.items()}
        since_us = {key.removeprefix(prefix): at_us for key, at_us in self.since_us.items()}
        return Page(sizes, self.after, since_us)


@dataclass
class _Reader:
    """What was read so far: (path of element names, text) of every element without others in it."""

    path: list[str] = field(default_factory=list[str])
    text: list[str] = field(default_factory=list[str])
    found: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def start(self, name: str, _: dict[str, str]) -> None:
        self.path.append(name.rpartition("}")[2])
        self.text.clear()
        if len(self.path) > DEPTH_MAX:
            raise UnreadableError("the storage's answer is nested too deep")

    def data(self, text: str) -> None:
        self.text.append(text)

    def end(self, _: str) -> None:
        self.found.append(("/".join(self.path), "".join(self.text)))
        self.text.clear()
        self.path.pop()


def page_of(body: bytes) -> Page:
    """A page of a list. Raises UnreadableError."""
    sizes: dict[str, int] = {}
    since_us: dict[str, int] = {}
    key = after = None
    at_us: int | None = None
    truncated = False
    root = ""
    for path, text in _elements(body):
        root, _, name = path.partition("/")
        match name:
            case "Contents/Key":
                key = unquote(text, errors="strict")
            case "Contents/Size":
                if key is None or not text.isdigit():
                    raise UnreadableError("the storage listed a size that belongs to no key")
                sizes[key] = int(text)
            case "Contents/LastModified":
                at_us = _moment_us(text)
            case "Contents":
                if key is not None and at_us is not None:
                    since_us[key] = at_us
                key = at_us = None
            case "IsTruncated":
                truncated = text == "true"
            case "NextContinuationToken":
                after = text
            case _:
                pass
    if root != "ListBucketResult":
        raise UnreadableError("the storage's answer is no list")
    if truncated and not after:
        raise UnreadableError("the storage's list goes on, and does not say where")
    return Page(sizes, after if truncated else None, since_us)


def _moment_us(text: str) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1_000_000)
    except ValueError:
        raise UnreadableError("the storage listed a moment that is none") from None


def error_code(body: bytes) -> str | None:
    """The code of an error; None: it says none."""
    try:
        return next((text for path, text in _elements(body) if path == "Error/Code"), None)
    except UnreadableError:
        return None


def _elements(body: bytes) -> list[tuple[str, str]]:
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _no_type
    parser.StartElementHandler = reader.start
    parser.CharacterDataHandler = reader.data
    parser.EndElementHandler = reader.end
    try:
        parser.Parse(body, True)
    except (expat.ExpatError, UnicodeError) as error:
        raise UnreadableError(f"the storage's answer is no XML: {error}") from None
    return reader.found


def _no_type(*_: object) -> Never:
    raise UnreadableError("the storage's answer declares a document type")
