"""One operation of the daemon's HTTP interface as a value, and the small parts such values are made of.

Decides: what a request and an answer consist of, and how bodies, queries and keys are written.
Never: names an operation (``calls``, ``calls_machines``) or opens a connection (``http``, ``http_async``).
Follows: a creating call carries its Idempotency-Key and its bytes from birth, so sending the same value
twice is the same request to the daemon, however many connections broke in between.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

T = TypeVar("T")

BLOB = "application/vnd.skyward.blob"
JSON = "application/json"
ANSWER_S = 30.0
"""How long an answer may take that waits for nothing."""
TRANSFER_S = 300.0
"""How long one read or write of a large transfer may stand still."""
EXEC_S = 3600.0
"""How long a command on a node may run."""


class Pieces:
    """Bytes that are not in one place: large content is never copied into one."""

    __slots__ = ("_parts", "_size")

    def __init__(self, parts: Sequence[bytes]) -> None:
        self._parts = parts
        self._size = sum(map(len, parts))

    def __len__(self) -> int:
        return self._size

    def __call__(self) -> Iterator[bytes]:
        return iter(self._parts)

    def __bytes__(self) -> bytes:
        return b"".join(self._parts)


Body = bytes | Callable[[], Iterable[bytes]]
"""Bytes, or something (``Pieces``, for one) that begins the same stream of bytes each time it is called."""


class CutShort(ConnectionError):
    """An answer broke off. A kind of its own, since whoever reads its content may raise a ConnectionError."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that came whole: status, headers with lower-case names, content."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One operation. ``timeout_s`` bounds each stillness; ``repeatable`` says it may be sent again."""

    method: str
    path: str
    decode: Callable[[Reply], T]
    params: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    body: Body | None = None
    timeout_s: float = ANSWER_S
    repeatable: bool = True

    @property
    def target(self) -> str:
        """Path and query as they go on the request line."""
        return f"{self.path}?{urlencode(self.params)}" if self.params else self.path


encoder = msgspec.json.Encoder()


@lru_cache(maxsize=128)
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def as_json(kind: type[T]) -> Callable[[Reply], T]:
    """Reads an answer as JSON of this shape."""
    decoder = _decoder(kind)
    return lambda reply: decoder.decode(reply.content)


def as_nothing(reply: Reply) -> None:
    """An answer without content."""


def as_content(reply: Reply) -> bytes:
    """The content as it came."""
    return reply.content


def as_existence(reply: Reply) -> bool:
    """Whether what was asked for is there."""
    return reply.status < 300


def new_key() -> str:
    """A fresh Idempotency-Key."""
    return secrets.token_hex(16)


def keyed(key: str | None, *more: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Headers that begin with an Idempotency-Key: the one given, or a fresh one."""
    return (("Idempotency-Key", key or new_key()), *more)


def query_of(**values: Any) -> tuple[tuple[str, str], ...]:
    """Query parameters; None leaves one out, booleans are spelled as JSON does."""
    pairs: list[tuple[str, str]] = []
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, bool):
            pairs.append((name, "true" if value else "false"))
        else:
            pairs.append((name, str(value)))
    return tuple(pairs)


def at(*parts: str | int) -> str:
    """A path below ``/v1``, each part quoted."""
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


def getting(path: str, kind: type[T], params: tuple[tuple[str, str], ...] = ()) -> Call[T]:
    """A GET whose answer is JSON of this shape."""
    return Call("GET", path, as_json(kind), params)


def if_match(revision: int | None) -> tuple[str, str]:
    """The precondition on a revision; None matches any."""
    return ("If-Match", "*" if revision is None else f'"{revision}"')


IS_JSON = ("Content-Type", JSON)
IS_BLOB = ("Content-Type", BLOB)
