"""Reads task files.

Decides: what becomes of a file before its fields are looked at: it is found, it is YAML, it is one mapping or
several, and ``${NAME}`` is filled in. Never: looks at what the fields mean, or asks anybody.
Follows: whatever the file is, the only error is InvalidTaskYAMLError, which names the file and the place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from sky.client.exceptions import InvalidTaskYAMLError
from sky.client.tasks import values
from sky.client.tasks.fields import FILLED_IN
from sky.client.tasks.report import Report
from sky.kit import marked_yaml
from sky.kit.marked_yaml import Marked, YamlError
from sky.kit.nearby import hint

TEXT = "<text>"
"""Stands for the name of a file where there is none."""
Overrides = Mapping[str, str] | Iterable[tuple[str, str]] | None
_NAMES = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")


def content_of(path: str | os.PathLike[str], what: str = "a task file") -> bytes:
    """What is in a file. Raises InvalidTaskYAMLError for one that cannot be read."""
    try:
        named = Path(os.fspath(path)).expanduser()
    except (TypeError, RuntimeError) as error:  # RuntimeError: a ~ of nobody
        raise _unreadable(repr(path), f"{error}; a path of {what} is a text or a pathlib.Path") from error
    try:
        with named.open("rb") as file:
            return file.read(marked_yaml.BYTES_MAX + 1)
    except IsADirectoryError as error:
        raise _unreadable(path, f"it is a folder, and not {what}") from error
    except FileNotFoundError as error:
        raise _unreadable(path, f"there is no such file{_near(named)}") from error
    except (OSError, ValueError) as error:
        raise _unreadable(path, f"it cannot be read: {getattr(error, 'strerror', None) or error}") from error


def content_of_text(text: str) -> bytes:
    """The text of a task file, as a file would have it. Raises InvalidTaskYAMLError for what is no text."""
    if not isinstance(cast("object", text), str):
        raise _unreadable(TEXT, f"it is a {type(text).__name__}; sky.Task.from_yaml_config reads a mapping")
    return text.encode("utf-8", "surrogateescape")


def _near(path: Path) -> str:
    try:
        beside = [one.name for one in path.parent.iterdir() if one.is_file()]
    except OSError:
        return f"; there is no folder {str(path.parent)!r} either"
    near = hint(path.name, beside)
    return f"; {near}" if near.startswith("did") else ""


def _unreadable(path: object, message: str) -> InvalidTaskYAMLError:
    return InvalidTaskYAMLError(f"{path}: {message}", {"file": str(path)})


def documents(content: bytes, file: str) -> list[Marked]:
    """The documents of a file, each a mapping. Raises InvalidTaskYAMLError."""
    try:
        found = marked_yaml.parse_all(content)
    except YamlError as error:
        place = f"{file}:{error.line}:{error.column}" if error.column else f"{file}:{error.line}"
        where = place if error.line else file
        details = {"file": file, "line": error.line or None}
        raise InvalidTaskYAMLError(f"{where}: {error}", details) from error
    for marked in found:
        if not isinstance(marked.value, dict):
            report = Report(file, marked)
            kind = "list" if isinstance(marked.value, list) else "single value"
            said = f"a task is a mapping with fields such as run and resources; this is a {kind}"
            if Path(file).suffix.lower() not in (".yaml", ".yml"):
                said += f"; a script is run by a command: bash {file}"
            report.wrong((), said)
            report.finish()
    return found


def env_file(path: str | os.PathLike[str]) -> dict[str, str]:
    """The variables of a file with a ``NAME=value`` on each line. Raises InvalidTaskYAMLError."""
    try:
        text = content_of(path, "a file of variables").decode("utf-8")
    except UnicodeDecodeError as error:
        raise _unreadable(path, "it is not UTF-8") from error
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        plain = line.strip()
        if not plain or plain.startswith("#"):
            continue
        match = _LINE.fullmatch(plain)
        if match is None:
            raise _unreadable(f"{path}:{number}", f"{plain[:40]!r}: a line is NAME=value")
        found[match[1]] = _unquoted(match[2].strip())
    return found


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        inner = value[1:-1]
        return inner.replace("\\n", "\n").replace('\\"', '"') if value[0] == '"' else inner
    return re.split(r"\s+#", value, maxsplit=1)[0]


def settled(marked: Marked, report: Report, envs: Overrides, secrets: Overrides) -> dict[str, Any]:
    """The fields of a document with the variables that were given beside it, filled in where they belong."""
    config = dict(cast("dict[str, Any]", marked.value))
    _given(config, "envs", envs, report)
    _given(config, "secrets", secrets, report)
    known: dict[str, str] = {}
    for name in ("envs", "secrets"):
        variables: Any = config.get(name)
        if isinstance(variables, dict):
            for key, item in cast("dict[str, Any]", variables).items():
                if item is not None and not isinstance(item, dict | list):
                    known[key] = marked.texts.get((name, key), str(item))
    for name in FILLED_IN:
        if config.get(name) is not None:
            config[name] = _filled(config[name], known, marked, (name,))
    return config


def _given(config: dict[str, Any], field: str, overrides: Overrides, report: Report) -> None:
    given = ({} if overrides is None else values.variables(report, (field,), overrides)) or {}
    variables: Any = config.get(field)
    if variables is not None and not isinstance(variables, dict):
        return
    config[field] = {**cast("dict[str, Any]", variables or {}), **given}
    option = "--env" if field == "envs" else "--secret"
    for name, item in cast("dict[str, Any]", config[field]).items():
        if item is None:
            report.wrong((field, name), f"it has no value here, so it has to be given: {option} {name}=VALUE")
    if not config[field]:
        del config[field]
    if report.marked is not None:
        for name in given:
            report.marked.texts.pop((field, name), None)


def _filled(value: Any, known: Mapping[str, str], marked: Marked, path: marked_yaml.Path) -> Any:
    if isinstance(value, str):
        return fill_in(value, known)
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [_filled(item, known, marked, (*path, index)) for index, item in enumerate(items)]
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for name, item in cast("dict[str, Any]", value).items():
            filled = fill_in(name, known)
            if filled != name:
                marked.lines[(*path, filled)], marked.columns[(*path, filled)] = marked.place((*path, name))
            found[filled] = _filled(item, known, marked, (*path, filled))
        return found
    return value


def fill_in(text: str, known: Mapping[str, str]) -> str:
    """A text with the values of the variables that it names; names that are not known stay."""
    return _NAMES.sub(lambda found: known.get(found[1] or found[2], found[0]), text)
