"""Single values of a task: texts, numbers, amounts, choices, and lists and mappings of these.

Decides: which spellings are taken, and the one form in which a value is kept.
Never: raises: what is wrong goes into the report, and None stands for the value. Follows: each check takes a
value in the form that it gives as well, so reading what was written changes nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from sky.client.tasks.report import Report
from sky.kit.marked_yaml import Path
from sky.kit.nearby import hint

Check = Callable[[Report, Path, Any], Any]

_AMOUNT = re.compile(r"(?P<number>\d+(?:\.\d+)?) *(?P<unit>[A-Za-z]*) *(?P<more>\+?)")
_UNITS_GB = {
    "": 1.0,
    "b": 1 / 1024**3,
    "kb": 1 / 1024**2,
    "k": 1 / 1024**2,
    "mb": 1 / 1024,
    "m": 1 / 1024,
    "gb": 1.0,
    "g": 1.0,
    "tb": 1024.0,
    "t": 1024.0,
    "pb": 1024.0**2,
    "p": 1024.0**2,
}
_TIME = re.compile(r"(?P<number>\d+) *(?P<unit>[a-z]*)")
_MINUTES = {"s": 1 / 60, "": 1.0, "m": 1.0, "min": 1.0, "h": 60.0, "d": 1440.0, "w": 10080.0}
MINUTES_MAX = 525_600
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PORT = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
PORT_MAX = 65_535
PORTS_MAX = 64
LABEL_CHARS_MAX = 256


def text(report: Report, path: Path, value: Any) -> str | None:
    """A text."""
    if isinstance(value, str):
        return value
    report.wrong(path, "it is a text; put it in quotes", value)
    return None


def number(least: float, most: float, what: str = "a number") -> Check:
    """A number between two bounds; one in quotes is taken."""

    def check(report: Report, path: Path, value: Any) -> float | None:
        given = _number(value)
        if given is None or not least <= given <= most:
            report.wrong(path, f"it is {what} from {least:g} to {most:g}", value)
            return None
        return given

    return check


def whole(least: int, most: int) -> Check:
    """A whole number between two bounds; one in quotes is taken."""

    def check(report: Report, path: Path, value: Any) -> int | None:
        given = _number(value)
        if given is None or given != int(given) or not least <= given <= most:
            report.wrong(path, f"it is a whole number from {least} to {most}", value)
            return None
        return int(given)

    return check


def flag(report: Report, path: Path, value: Any) -> bool | None:
    """true or false."""
    if isinstance(value, bool):
        return value
    report.wrong(path, "it is true or false", value)
    return None


def choice(*words: str) -> Check:
    """One of some words, in small or large letters."""

    def check(report: Report, path: Path, value: Any) -> str | None:
        given = value.lower() if isinstance(value, str) else value
        for word in words:
            if given == word.lower():
                return word
        near = hint(str(value).upper() if words[0].isupper() else str(given), words)
        said = f"it is one of {', '.join(words)}"
        report.wrong(path, said if near.startswith("known") else f"{said}; {near}", value)
        return None

    return check


def anything(_report: Report, _path: Path, value: Any) -> Any:
    """What is checked by whoever uses it."""
    return value


def mapping(report: Report, path: Path, value: Any, said: str = "it is a mapping") -> dict[str, Any] | None:
    """A mapping with texts as names."""
    if not isinstance(value, Mapping):
        report.wrong(path, said, value)
        return None
    return {str(name): item for name, item in cast("Mapping[Any, Any]", value).items()}


def fields(report: Report, path: Path, value: Any, known: Mapping[str, Check]) -> dict[str, Any] | None:
    """A mapping of known fields, each checked; one that is None is left out."""
    given = mapping(report, path, value, f"it is a mapping with the fields {', '.join(known)}")
    if given is None:
        return None
    found: dict[str, Any] = {}
    for name, item in given.items():
        if name not in known:
            report.wrong((*path, name), f"there is no such field; {hint(name, known)}")
        elif item is not None:
            checked = known[name](report, (*path, name), item)
            if checked is not None:
                found[name] = checked
    return found


def items(report: Report, path: Path, value: Any) -> list[Any] | None:
    """A list, or one thing that stands for a list of it."""
    if isinstance(value, list | tuple | set | frozenset):
        given = cast("Iterable[Any]", value)
        return sorted(given, key=str) if isinstance(value, set | frozenset) else list(given)
    if isinstance(value, Mapping):
        report.wrong(path, "it is a list", value)
        return None
    return [value]


def texts(report: Report, path: Path, value: Any) -> dict[str, str] | None:
    """A mapping of texts; numbers and true or false are written as texts."""
    given = mapping(report, path, value)
    if given is None:
        return None
    found: dict[str, str] = {}
    for name, item in given.items():
        plain = as_text(report, (*path, name), item)
        if plain is not None:
            found[name] = plain
    return found


def as_text(report: Report, path: Path, value: Any) -> str | None:
    """A text, or a number, date or truth value as the file has it."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple | set | Mapping):
        report.wrong(path, "it is a text or a number", value)
        return None
    written = None if report.marked is None or isinstance(value, bool) else report.marked.texts.get(path)
    return str(value) if written is None else written


def labels(report: Report, path: Path, value: Any) -> dict[str, str] | None:
    """Labels of machines: short texts by short names."""
    found = texts(report, path, value)
    for name, item in (found or {}).items():
        if not 0 < len(name) <= LABEL_CHARS_MAX or len(item) > LABEL_CHARS_MAX:
            said = f"name and value of a label have {LABEL_CHARS_MAX} characters at most"
            report.wrong((*path, name), said, item)
    return found


def variables(report: Report, path: Path, value: Any) -> dict[str, str | None] | None:
    """Variables of the environment; one that is None must be given before it is used."""
    given: dict[str, Any] | None
    if isinstance(value, list | tuple):
        given = _pairs(report, path, cast("Iterable[Any]", value))
    else:
        given = mapping(report, path, value, "it is a mapping of names to values")
    if given is None:
        return None
    found: dict[str, str | None] = {}
    for name, item in given.items():
        if not _NAME.fullmatch(name):
            report.wrong(
                (*path, name), f"{name!r} is no name of a variable: letters, digits and _, no digit first"
            )
        elif item is None:
            found[name] = None
        else:
            plain = as_text(report, (*path, name), item)
            if plain is not None and "\0" in plain:
                report.wrong((*path, name), "it has a NUL in it, which no variable can have", plain)
            elif plain is not None:
                found[name] = plain
    return found


def _pairs(report: Report, path: Path, given: Iterable[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for index, pair in enumerate(given):
        two = cast("tuple[Any, ...]", pair) if isinstance(pair, list | tuple) else ()
        if len(two) != 2:
            report.wrong((*path, index), "it is a pair of name and value", pair)
            continue
        found[str(two[0])] = two[1]
    return found


# ── amounts ─────────────────────────────────────────────────────────────────────────────────────


def amount(most: float, units: bool, example: str) -> Check:
    """How much of something: ``4`` is exactly that, ``4+`` at least; with ``units`` in GB."""

    def check(report: Report, path: Path, value: Any) -> str | None:
        match = None if isinstance(value, bool) else _AMOUNT.fullmatch(str(value).strip())
        scale = None if match is None else _scale(match["unit"], units)
        if match is None or scale is None or not 0 < float(match["number"]) * scale <= most:
            report.wrong(path, f"it is more than 0 and at most {most:g}, such as {example}", value)
            return None
        return f"{_plain(float(match['number']) * scale)}{match['more']}"

    return check


def size_gb(most: int) -> Check:
    """A size in whole GB: ``100``, ``100GB`` or ``1TB``."""

    def check(report: Report, path: Path, value: Any) -> int | None:
        match = None if isinstance(value, bool) else _AMOUNT.fullmatch(str(value).strip())
        scale = None if match is None or match["more"] else _scale(match["unit"], True)
        size = 0.0 if match is None or scale is None else float(match["number"]) * scale
        if not 0 < size <= most:
            report.wrong(path, f"it is a size of at most {most} GB, such as 256 or '1TB'", value)
            return None
        return math.ceil(size)

    return check


def _scale(unit: str, units: bool) -> float | None:
    if not units:
        return None if unit else 1.0
    return _UNITS_GB.get(unit.lower().replace("ib", "b"))


def _plain(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")


def minutes(report: Report, path: Path, value: Any) -> int | None:
    """A time in minutes: ``10``, ``10m``, ``2h``, ``1d``; below 0: never."""
    if isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= MINUTES_MAX:
        return value
    match = _TIME.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    scale = None if match is None else _MINUTES.get(match["unit"])
    time = None if match is None or scale is None else math.ceil(int(match["number"]) * scale)
    if time is None or time > MINUTES_MAX:
        report.wrong(path, "it is a number of minutes, or a time such as '10m', '2h' or '1d'", value)
        return None
    return time


def ports(report: Report, path: Path, value: Any) -> list[str] | None:
    """Ports and ranges of ports, each once."""
    given = items(report, path, value)
    found: dict[str, None] = {}
    for index, item in enumerate(given or ()):
        at = (*path, index) if isinstance(value, list | tuple) else path
        match = None if isinstance(item, bool) else _PORT.fullmatch(str(item).strip())
        first, last = (0, 0) if match is None else (int(match[1]), int(match[2] or match[1]))
        if not 0 < first <= last <= PORT_MAX:
            report.wrong(at, f"it is a port from 1 to {PORT_MAX}, or a range such as '8080-8090'", item)
            continue
        found[f"{first}" if first == last else f"{first}-{last}"] = None
    if len(found) > PORTS_MAX:
        report.wrong(path, f"it has at most {PORTS_MAX} ports and ranges")
    return None if given is None else list(found)


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        match = _AMOUNT.fullmatch(value.strip())
        plain = match is not None and not match["unit"] and not match["more"]
        return float(value) if plain else None
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return None
