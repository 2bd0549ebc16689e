"""How a request is read: its headers, its query, its body.

Decides: what a well-formed request is, and the limits of reading one. Never: what it leads to.
Follows: everything that does not fit is refused by name, with the value and what would be right, before an
operation runs; a body is read no further than its limit.
"""

from __future__ import annotations

import asyncio
import re
import typing
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import parse_qsl

import msgspec
from litestar.connection import Request

from sky.api.errors import branches, line_end_refused, malformed, misfit, short, unknown_name
from sky.api.patterns import line_end
from sky.domain.errors import InvalidRequest, PayloadTooLarge, PreconditionRequired, UnsupportedMediaType

KEY_CHARS_MAX = 255
QUERY_FIELDS_MAX = 100
BODY_GAP_S = 60.0
"""How long a sender may pause inside of a body."""

JSON = "application/json"
EXACT_INTEGERS = 2**53
"""From here on, a number with a fraction in its notation is no longer exact."""

_KEY = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_TAG = re.compile(r'"(\d{1,18})"')


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query parameters of an operation, each a field."""


def header(request: Request[Any, Any, Any], name: bytes) -> str | None:
    """A request header by its name in lower case; None when it was not sent."""
    for key, value in request.scope["headers"]:
        if key == name:
            return value.decode("latin-1")
    return None


async def chunks(request: Request[Any, Any, Any], *, limit_bytes: int, gap_s: float) -> AsyncIterator[bytes]:
    """The body of a request as it arrives. Raises PayloadTooLarge beyond ``limit_bytes``."""
    announced = header(request, b"content-length")
    if announced is not None and announced.isdigit() and int(announced) > limit_bytes:
        raise too_large(int(announced), limit_bytes)
    receive, total = request.receive, 0
    while True:
        try:
            async with asyncio.timeout(gap_s):
                message = await receive()
        except TimeoutError:
            msg = f"the body paused for more than {gap_s:g} s"
            raise InvalidRequest(
                msg, details={"field": "", "expected": "a body without such pauses"}
            ) from None
        if message["type"] == "http.disconnect":
            msg = "the connection was closed before the body ended"
            raise InvalidRequest(msg, details={"field": "", "expected": "a whole body"})
        content = message.get("body", b"")
        total += len(content)
        if total > limit_bytes:
            raise too_large(total, limit_bytes)
        if content:
            yield content
        if not message.get("more_body", False):
            return


def too_large(size: int, limit_bytes: int) -> PayloadTooLarge:
    """The refusal of a body over its limit."""
    return PayloadTooLarge(
        f"the body is over the limit of {limit_bytes} bytes",
        details={"bytes": size, "limit_bytes": limit_bytes},
    )


def media_of(request: Request[Any, Any, Any]) -> str:
    return (header(request, b"content-type") or "").partition(";")[0].strip().lower()


async def json_body(
    request: Request[Any, Any, Any], kind: Any, limit_bytes: int, *, optional: bool = False
) -> Any:
    """The body as ``kind``. ``optional``: no body at all stands for an empty object."""
    media = media_of(request)
    if media and media != JSON:
        raise wrong_media(media, (JSON,))
    raw = b"".join([c async for c in chunks(request, limit_bytes=limit_bytes, gap_s=BODY_GAP_S)])
    if not raw and optional:
        raw = b"{}"
    elif not media:
        raise wrong_media(media, (JSON,))
    return decoded(raw, kind)


def wrong_media(media: str, known: Sequence[str]) -> UnsupportedMediaType:
    """The refusal of a body whose type an operation does not take."""
    shown = f"a body of type {short(media)!r} is not taken here" if media else "Content-Type is missing"
    return UnsupportedMediaType(
        f"{shown}; send {' or '.join(known)}", details={"content_type": short(media), "expected": list(known)}
    )


def decoded(raw: bytes, kind: Any) -> Any:
    """JSON bytes as ``kind``, or the refusal that says what does not fit."""
    try:
        value = msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError:
        value = _decoded_again(raw, kind)
    except (ValueError, RecursionError) as error:
        raise malformed(error) from None
    if b'\\n"' in raw:
        check_line_ends(value, kind)
    return value


def _decoded_again(raw: bytes, kind: Any) -> Any:
    """The same with whole numbers that were written as 3.0, which JSON does not tell from 3."""
    try:
        plain = msgspec.json.decode(raw)
        whole = _whole(plain)
    except (ValueError, RecursionError) as worse:
        raise malformed(worse) from None
    try:
        return msgspec.convert(whole, kind)
    except msgspec.ValidationError as error:
        raise misfit(error, kind, plain) from None


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < EXACT_INTEGERS:
        return int(value)
    if isinstance(value, list):
        return [_whole(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in cast("dict[str, Any]", value).items()}
    return value


def check_line_ends(value: Any, kind: Any, *, place: str = "", root: str = "") -> None:
    """Refuse a text that only fits its pattern but for a line end."""
    steps = line_end(value, kind)
    if steps is not None:
        raise line_end_refused(steps, place=place, root=root)


def query_of(request: Request[Any, Any, Any], kind: type[Query] | None) -> Query | None:
    """The query parameters as ``kind``; without a kind there may be none."""
    raw = request.scope["query_string"]
    if not raw:
        if kind is None or not has_required(kind):
            return None if kind is None else kind()
        pairs: list[tuple[str, str]] = []
    else:
        try:
            pairs = parse_qsl(
                raw.decode("ascii"), keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX, errors="strict"
            )
        except ValueError as error:
            msg = f"the query cannot be read: {error}"
            raise InvalidRequest(
                msg, details={"field": "query", "expected": "percent-encoded UTF-8"}
            ) from None
    return _converted(pairs, kind)


def _converted(pairs: list[tuple[str, str]], kind: type[Query] | None) -> Query | None:
    fields = {} if kind is None else _query_fields(kind)
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name not in fields:
            known = sorted(fields)
            details = {"field": short(name), "expected": "one of the known parameters", "known": known}
            raise unknown_name("query parameter", name, known, details=details)
        if fields[name]:
            values.setdefault(name, []).extend(part for part in value.split(",") if part)
        elif name in values:
            msg = f"query parameter {name} was given twice"
            raise InvalidRequest(msg, details={"field": name, "value": short(value), "expected": "one value"})
        else:
            values[name] = value
    if kind is None:
        return None
    try:
        query = msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise misfit(error, kind, values, place="query parameter ") from None
    check_line_ends(query, kind, place="query parameter ")
    return query


_FIELDS: dict[type[Query], dict[str, bool]] = {}


def _query_fields(kind: type[Query]) -> dict[str, bool]:
    """The parameters of ``kind``, and whether each may be given several times."""
    if kind not in _FIELDS:
        _FIELDS[kind] = {
            f.encode_name: any(typing.get_origin(kind) is tuple for kind in branches(f.type))
            for f in msgspec.structs.fields(kind)
        }
    return _FIELDS[kind]


def has_required(kind: Any) -> bool:
    """Whether an empty object is no value of ``kind``."""
    return any(f.required for f in msgspec.structs.fields(kind))


def path_of(request: Request[Any, Any, Any], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """The path parameters, each as its type."""
    given = request.scope["path_params"]
    out: dict[str, Any] = {}
    for name, kind in kinds.items():
        value: str = given[name]
        if kind is not str:
            try:
                value = msgspec.convert(value, kind, strict=False)
            except msgspec.ValidationError as error:
                raise misfit(error, kind, value, place="path parameter ", root=name) from None
            check_line_ends(value, kind, place="path parameter ", root=name)
        out[name] = value
    return out


def key_of(request: Request[Any, Any, Any]) -> str | None:
    """The Idempotency-Key; None when there is none."""
    key = header(request, b"idempotency-key")
    if key is None or (len(key) <= KEY_CHARS_MAX and _KEY.fullmatch(key)):
        return key
    expected = f"1 to {KEY_CHARS_MAX} printable ASCII characters"
    raise InvalidRequest(
        f"Idempotency-Key must be {expected}; it has {len(key)}",
        details={"field": "Idempotency-Key", "value": short(key), "expected": expected},
    )


def revision_of(request: Request[Any, Any, Any]) -> int | None:
    """The revision that If-Match names; None when any will do (``*``)."""
    text = header(request, b"if-match")
    if text is None:
        raise PreconditionRequired(
            'If-Match is missing: send the ETag of the last read, such as "7", or * for whatever it is now',
            details={"field": "If-Match", "value": None, "expected": 'an entity tag such as "7", or *'},
        )
    text = text.strip()
    if text == "*":
        return None
    if (tag := _TAG.fullmatch(text)) is not None:
        return int(tag[1])
    raise InvalidRequest(
        f'If-Match must be one strong entity tag such as "7", with its quotes, or *; it is {short(text)!r}',
        details={"field": "If-Match", "value": short(text), "expected": 'an entity tag such as "7", or *'},
    )
