"""``sky.toml``: computes with a name, kept beside the code that uses them.

Decides: where the file is looked for (the current folder, then its parents), what it may hold, and which
line a mistake is on. Never: creates anything; ``sky compute create NAME`` does, with the table of that name.
Follows: a mistake is told with file, line, field and the nearest right name, before any daemon is asked.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple, cast

from sky.cli import definition
from sky.cli.errors import CliError
from sky.cli.nouns import near
from sky.client.definition import FILE_BYTES_MAX, IMAGE_SHORTCUTS, MACHINE_FIELDS, find
from sky.kit import secrets
from sky.wire import v1

KNOWN = (definition.COMPUTE_FIELDS | MACHINE_FIELDS | IMAGE_SHORTCUTS | {"provider", "plugins"}) - {"desired"}
PUT_ELSEWHERE = "definitions are served back; put credentials on a provider: `sky provider add`"


class Problem(NamedTuple):
    """A mistake in the file: where, what, and what would be right. ``line`` is None where it is unknown."""

    line: int | None
    field: str
    message: str
    hint: str | None

    def at(self, path: Path) -> str:
        """File, line and field, as editors understand them."""
        where = f"{path}:{self.line}" if self.line else str(path)
        return f"{where}: {self.field}: {self.message}" if self.field else f"{where}: {self.message}"


class Invalid(CliError):
    """The file has mistakes; the first is the message, all are ``problems``."""

    def __init__(self, path: Path, problems: list[Problem]) -> None:
        more = f" (and {len(problems) - 1} more: `sky config validate`)" if len(problems) > 1 else ""
        super().__init__("invalid_config", problems[0].at(path) + more, problems[0].hint, 2)
        self.problems = problems


class File(NamedTuple):
    """The file that was found, its text, and its tables by name, as they are written."""

    path: Path
    text: str
    computes: dict[str, dict[str, Any]]
    problems: list[Problem]


def read(path: Path) -> File:
    """The file with everything that is wrong in it. Raises Invalid when it cannot be read at all."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise Invalid(path, [Problem(None, "", f"is larger than {FILE_BYTES_MAX} bytes", None)])
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except OSError as error:
        raise Invalid(path, [Problem(None, "", f"cannot be read: {error.strerror}", None)]) from error
    except UnicodeDecodeError as error:
        raise Invalid(path, [Problem(None, "", "is not UTF-8 text", None)]) from error
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+)", str(error))
        message = str(error).partition(" (at ")[0]
        raise Invalid(path, [Problem(int(found[1]) if found else None, "", message, None)]) from error
    problems = [
        Problem(line_of(text, (key,)), key, "there is no such table", "known: [compute.NAME]")
        for key in content
        if key != "compute"
    ]
    tables = content.get("compute", {})
    computes: dict[str, dict[str, Any]] = {}
    if not isinstance(tables, dict):
        problems.append(Problem(line_of(text, ("compute",)), "compute", "is not a table", "[compute.NAME]"))
        return File(path, text, {}, problems)
    for name, table in cast("dict[str, Any]", tables).items():
        if isinstance(table, dict):
            computes[name] = cast("dict[str, Any]", table)
        else:
            line = line_of(text, ("compute", name))
            hint = "tables are written [compute.NAME]"
            problems.append(Problem(line, f"compute.{name}", "is not a table", hint))
    for name, table in computes.items():
        problems += _problems_of(text, name, table)
    return File(path, text, computes, problems)


def compute(name: str, folder: Path | None = None) -> dict[str, Any] | None:
    """The table of that name in the nearest file; None when there is no such table or file.

    Raises Invalid when that table has a mistake.
    """
    path = find(folder)
    if path is None:
        return None
    file = read(path)
    table = file.computes.get(name)
    if table is None:
        return None
    own = [p for p in file.problems if p.field.split(".")[:2] == ["compute", name]]
    if own:
        raise Invalid(path, own)
    return table


def _problems_of(text: str, name: str, table: dict[str, Any]) -> list[Problem]:
    at = ("compute", name)
    problems: list[Problem] = []
    if not re.fullmatch(v1.NAME_PATTERN, name):
        hint = "letters, digits, dots, dashes and underscores, at most 63"
        problems.append(Problem(line_of(text, at), ".".join(at), "is not a name a compute can have", hint))
    for key in table:
        if key not in KNOWN:
            meant = near(key, sorted(KNOWN))
            hint = f"did you mean `{meant[0]}`?" if meant else f"known: {', '.join(sorted(KNOWN))}"
            field = ".".join((*at, key))
            problems.append(Problem(line_of(text, (*at, key)), field, "there is no such field", hint))
    if problems:
        return problems
    try:
        definition.spec_of(definition.expand(table))
    except definition.Refused as error:
        path = _as_written(error.path, table)
        message = str(error).removeprefix(".".join(error.path) + ": ")
        problems.append(Problem(line_of(text, (*at, *path)), ".".join((*at, *path)), message, error.hint))
    except CliError as error:
        key = str(error).split(" ", 1)[0]
        line = line_of(text, (*at, key))
        problems.append(Problem(line, ".".join(at), str(error), error.hint))
    for field, why in secrets.find(table, ""):
        # The daemon refuses these too; here they are found before anybody asks it.
        path = tuple(field.removeprefix(".").replace("[", ".").replace("]", "").split("."))
        line = line_of(text, (*at, *(part for part in path if not part.isdigit())))
        problems.append(Problem(line, ".".join((*at, *path)), f"is a credential: {why}", PUT_ELSEWHERE))
    return problems


def _as_written(path: tuple[str, ...], table: dict[str, Any]) -> tuple[str, ...]:
    """Where a field of the full form stands in the table, which may use the short forms."""
    if path[:1] == ("image",) and len(path) > 1 and path[1] in table:
        return path[1:2]
    if path[:1] == ("specs",) and "specs" not in table:
        kept = tuple(part for part in path[1:] if not part.isdigit() and part != "...")
        return kept[:1]
    return path


def line_of(text: str, path: tuple[str, ...]) -> int | None:
    """The line that a key is written on, or the nearest enclosing table's; None when neither is found."""
    tables: tuple[str, ...] = ()
    best: tuple[int, int] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?", line)
        key = re.match(r"\s*([A-Za-z0-9_.\-\"']+)\s*=", line)
        if header:
            tables = _keys(header[1])
            whole = tables
        elif key:
            whole = (*tables, *_keys(key[1]))
        else:
            continue
        shared = min(len(whole), len(path))
        if whole[:shared] == path[:shared] and (best is None or shared > best[0]):
            best = (shared, number)
    return best[1] if best else None


def _keys(text: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in text.split("."))
