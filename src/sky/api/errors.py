"""How a refusal becomes an answer, and how a body or a query is explained when it is wrong.

Decides: the JSON and the headers of every failure, and what a caller is told about a value that does not fit.
Never: decides that something fails. Follows: whatever raised, the caller gets one shape, and no trace, no
HTML and no bare text ever leaves; a bug is logged with its trace under the request id and answered bare.
"""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec
import structlog
from litestar.connection import Request
from litestar.exceptions import HTTPException
from litestar.types import Scope

from sky.api.stream import Whole
from sky.domain.errors import (
    Busy,
    Internal,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    SkyError,
    Unauthorized,
)
from sky.store.tx import ConflictError
from sky.wire.error import Error, ErrorCode
from sky.wire.v1.base import NAME_PATTERN, SHA256_PATTERN

VALUE_CHARS_MAX = 120
NEAR: Final = 0.6
_PATH = re.compile(r"^(?P<what>.*?)(?: - at (?:`key` in )?`(?P<path>[^`]*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<index>\d+|\.\.\.)\]")
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<name>.*)`$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<name>.*)`$", re.DOTALL)
_EXPECTED = re.compile(r"^Expected (?P<expected>.*?)(?:, got (?P<got>.*))?$", re.DOTALL)
_ENUM = re.compile(r"^Invalid enum value (?P<value>.*)$", re.DOTALL)
_POSITION = re.compile(r"\(byte (?P<byte>\d+)\)")
_HIDDEN = ("credentials", "env", "shell_vars")

_log = structlog.get_logger(__name__)
_encoder = msgspec.json.Encoder()


# ── answers ─────────────────────────────────────────────────────────────────────────────────────


def body_of(error: SkyError, request_id: str | None) -> bytes:
    """The JSON that ``error`` is answered with."""
    shape = Error(
        code=cast("ErrorCode", error.code),
        message=error.message,
        retryable=error.retryable,
        request_id=request_id,
        details=error.details,
    )
    return _encoder.encode(shape)


def headers_of(error: SkyError) -> dict[str, str]:
    """Headers that belong to the answer: when to try again, which methods there are, how to identify."""
    headers: dict[str, str] = {}
    if error.after_s is not None:
        headers["retry-after"] = str(max(1, round(error.after_s)))
    if isinstance(error, MethodNotAllowed) and error.details is not None:
        headers["allow"] = ", ".join(error.details.get("allow", ()))
    if isinstance(error, Unauthorized):
        headers["www-authenticate"] = 'Bearer realm="skyfleet"'
    if error.status == 413:  # the rest of the body is not wanted
        headers["connection"] = "close"
    return headers


def settled(error: Exception) -> Exception:
    """``error``, but that somebody else was first is told as what it is to a caller: come again."""
    if isinstance(error, ConflictError):
        text = (
            "something else changed at that moment what this request is about; nothing was written, try again"
        )
        return Busy(text, after_s=1.0)
    return error


def understood(request: Request[Any, Any, Any], error: Exception) -> SkyError:
    """``error`` as a refusal. What is none of ours is a bug, and logged here."""
    if isinstance(error, SkyError) and not isinstance(error, Internal):
        return error
    if isinstance(error, HTTPException) and error.status_code < 500:
        return _routing(request, error)
    _log.error("request.failed", request_id=request.scope["state"].get("request_id"), exc_info=error)
    return Internal("the daemon failed on this request; its log has the reason under this request id")


def _routing(request: Request[Any, Any, Any], error: HTTPException) -> SkyError:
    method, path = request.scope["method"], request.scope["path"]
    if error.status_code == 405:
        allowed = {str(k).lower(): v for k, v in (error.headers or {}).items()}.get("allow", "")
        methods = {name.strip() for name in allowed.split(",") if name.strip()}
        if "GET" in methods:
            methods.add("HEAD")
        shown = ", ".join(sorted(methods))
        return MethodNotAllowed(
            f"{short(path)} does not take {method}; it takes {shown}",
            details={"method": method, "allow": sorted(methods)},
        )
    if error.status_code == 404:
        return NotFound(
            f"there is no path {path}; /v1/openapi.json lists those there are", details={"path": path}
        )
    return InvalidRequest(error.detail or "the request cannot be read")


def answer(request: Request[Any, Any, Any], error: Exception) -> Any:
    """What Litestar calls when an operation raised."""
    known = understood(request, error)
    body = body_of(known, request.scope["state"].get("request_id"))
    return Whole(body, media="application/json", status=known.status, headers=headers_of(known).items())


async def note_socket(error: Exception, scope: Scope) -> None:
    """What Litestar calls after any failure: one of a socket has no answer that would tell of it."""
    if scope["type"] == "websocket":
        _log.error("socket.failed", path=scope["path"], exc_info=error)


# ── explanations ────────────────────────────────────────────────────────────────────────────────


def malformed(error: Exception) -> InvalidRequest:
    """A body that is no JSON: where it stops being it."""
    text = str(error).removeprefix("JSON is malformed: ")
    found = _POSITION.search(text)
    details: dict[str, Any] = {"field": "", "expected": "JSON"}
    if found is not None:
        details["position"] = int(found["byte"])
    return InvalidRequest(f"the body is not JSON: {text}", details=details)


def misfit(
    error: msgspec.ValidationError, kind: Any, value: Any, *, place: str = "", root: str = ""
) -> InvalidRequest:
    """A value that does not fit ``kind``: which field, what it was, and what would be right.

    ``value`` is the whole of what was sent as plain values; ``place`` is put before the name of a field
    (as in ``query parameter``), and ``root`` is the name of the whole where that is no object.
    """
    match = _PATH.match(str(error))
    what, path = (match["what"], match["path"] or "$") if match else (str(error), "$")
    steps = [step["name"] or step["index"] for step in _STEP.finditer(path)]
    if (unknown := _UNKNOWN.match(what)) is not None:
        return _unknown_field([*steps, unknown["name"]], _fields_at(kind, steps), place)
    if (missing := _MISSING.match(what)) is not None:
        name = _join([*steps, missing["name"]])
        return InvalidRequest(
            f"{place}{name} is missing", details={"field": name, "value": None, "expected": "a value"}
        )
    name = _join(steps) or root
    expected = _expected(what, kind, steps)
    details: dict[str, Any] = {"field": name, "expected": expected}
    shown = ""
    if not any(step in _HIDDEN for step in steps):
        details["value"] = short(_at(value, steps))
        shown = f"; it is {details['value']!r}"
    label = f"{place}{name}" if name else "the body"
    return InvalidRequest(f"{label} must be {expected}{shown}", details=details)


def line_end_refused(steps: Sequence[str], *, place: str, root: str) -> InvalidRequest:
    """The refusal of a text that ends in a line end."""
    name = _join(list(steps)) or root
    expected = "text without a line end"
    return InvalidRequest(f"{place}{name} must be {expected}", details={"field": name, "expected": expected})


def unknown_name(kind: str, name: str, known: list[str], *, details: dict[str, Any]) -> InvalidRequest:
    """Something called ``name`` is not known: say what is, and which of it is near."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=NEAR)
    hint = f"; did you mean {near[0]}?" if near else ""
    there = f"known: {', '.join(known)}" if known else "there is none here"
    return InvalidRequest(f"{kind} {short(name)!r} is not known{hint} ({there})", details=details)


def short(value: Any) -> Any:
    """``value`` as it may be repeated to its sender: never longer than a line."""
    if isinstance(value, bool | float) or value is None:
        return value
    if isinstance(value, int):
        return value if -(2**53) < value < 2**53 else f"{str(value)[:40]}"
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= VALUE_CHARS_MAX else text[:VALUE_CHARS_MAX] + "…"


def _unknown_field(steps: list[str], known: list[str], place: str) -> InvalidRequest:
    name = _join(steps)
    details = {"field": name, "expected": "one of the known fields", "known": known}
    near = difflib.get_close_matches(steps[-1], known, n=1, cutoff=NEAR)
    hint = f"; did you mean {near[0]}?" if near else ""
    there = f" (known here: {', '.join(known)})" if known else ""
    return InvalidRequest(f"{place}{short(name)} is not a known field{hint}{there}", details=details)


def _expected(what: str, kind: Any, steps: list[str]) -> str:
    if (enum := _ENUM.match(what)) is not None:
        choices = _choices(_type_at(kind, steps))
        if choices:
            return "one of " + ", ".join(map(str, choices))
        return f"another value than {enum['value']}"
    told = _described(_type_at(kind, steps) if steps else kind)
    if told is not None:
        return told
    if (found := _EXPECTED.match(what)) is not None:
        return found["expected"].replace("`", "")
    return what[:1].lower() + what[1:]


def _join(steps: list[str]) -> str:
    out = ""
    for step in steps:
        if step.isdigit() or step == "...":
            out += f"[{step}]"
        else:
            out += f".{step}" if out else step
    return out


def _at(value: Any, steps: list[str]) -> Any:
    here = value
    for step in steps:
        if step == "..." and isinstance(here, dict):
            return f"one of {', '.join(map(str, list(cast('dict[str, Any]', here))[:8]))}"
        if isinstance(here, dict):
            here = cast("dict[str, Any]", here).get(step)
        elif isinstance(here, list) and step.isdigit() and int(step) < len(cast("list[Any]", here)):
            here = cast("list[Any]", here)[int(step)]
        else:
            return None
    return here


def branches(kind: Any) -> list[Any]:
    """The types that ``kind`` may be, without None, aliases and constraints."""
    if typing.get_origin(kind) is typing.Annotated:
        return branches(typing.get_args(kind)[0])
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return [bare for arg in typing.get_args(kind) if arg is not type(None) for bare in branches(arg)]
    return [kind]


def _type_at(kind: Any, steps: list[str]) -> Any:
    here = kind
    for step in steps:
        found: Any = None
        for bare in branches(here):
            if step.isdigit() or step == "...":
                arguments = typing.get_args(bare)
                found = arguments[-1] if typing.get_origin(bare) is dict else (arguments or (None,))[0]
            elif isinstance(bare, type) and issubclass(bare, msgspec.Struct):
                found = next((f.type for f in msgspec.structs.fields(bare) if f.encode_name == step), None)
            if found is not None:
                break
        if found is None:
            return None
        here = found
    return here


def _described(kind: Any) -> str | None:
    """What a plain type with limits takes, in words; None for any other type."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        found = [_described(arg) for arg in typing.get_args(kind) if arg is not type(None)]
        return found[0] if len(found) == 1 else None
    if typing.get_origin(kind) is not typing.Annotated:
        return _WORDS.get(kind)
    plain, *marks = typing.get_args(kind)
    limits = {
        name: value
        for mark in marks
        if isinstance(mark, msgspec.Meta)
        for name in ("ge", "le", "min_length", "max_length", "pattern")
        if (value := getattr(mark, name)) is not None
    }
    word = _WORDS.get(plain)
    if word is None:
        return None
    if "pattern" in limits:
        return _PATTERNS.get(limits["pattern"], f"{word} that matches {limits['pattern']}")
    low, high = limits.get("ge", limits.get("min_length")), limits.get("le", limits.get("max_length"))
    unit = " characters" if plain is str else ""
    of = " of" if plain is str else ""
    if low is not None and high is not None:
        return f"{word}{of or ' from'} {low} to {high}{unit}"
    if high is not None:
        return f"{word}{of} at most {high}{unit}"
    return f"{word}{of} at least {low}{unit}" if low is not None else word


_PATTERNS = {
    NAME_PATTERN: "1 to 63 letters, digits, dots, dashes or underscores, a letter or digit first",
    SHA256_PATTERN: "64 hexadecimal digits in lower case",
}
_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    bytes: "base64",
}


def _fields_at(kind: Any, steps: list[str]) -> list[str]:
    return [
        field.encode_name
        for bare in branches(_type_at(kind, steps))
        if isinstance(bare, type) and issubclass(bare, msgspec.Struct)
        for field in msgspec.structs.fields(bare)
    ]


def _choices(kind: Any) -> list[Any]:
    return [
        value
        for bare in branches(kind)
        if typing.get_origin(bare) is typing.Literal
        for value in typing.get_args(bare)
    ]
