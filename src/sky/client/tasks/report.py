"""Everything that is wrong with a task, collected before anything is raised.

Decides: how a problem is worded: file, line, column, field, value, what is allowed.
Never: stops at the first. Follows: a task that was read from a file is told by the places in that file, one
that was made in a program by its fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from sky.client.exceptions import InvalidTaskYAMLError
from sky.kit.marked_yaml import Marked, Path

PROBLEMS_SHOWN_MAX = 30
VALUE_CHARS_MAX = 60
UNSHOWN: Final = object()
"""Stands for a value that says nothing beside its field."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong; ``line`` and ``column`` are None for what was not read from a file."""

    path: Path
    message: str
    line: int | None = None
    column: int | None = None

    @property
    def field(self) -> str:
        """The field as people write it: ``resources.any_of[0].cpus``."""
        return where(self.path)


@dataclass(slots=True)
class Report:
    """The problems of one task. ``file`` and ``marked`` are known when it was read."""

    file: str | None = None
    marked: Marked | None = None
    problems: list[Problem] = field(default_factory=list[Problem])

    def wrong(self, path: Path, message: str, value: Any = UNSHOWN) -> None:
        """Note a problem; ``value`` stands before the message, shortened, unless it is a secret."""
        hidden = value is UNSHOWN or path[:1] == ("secrets",)
        text = message if hidden else f"{shown(value)}: {message}"
        line, column = (None, None) if self.marked is None else self.marked.place(path)
        problem = Problem(path, text, line, column)
        if problem not in self.problems:
            self.problems.append(problem)

    def finish(self) -> None:
        """Raises InvalidTaskYAMLError when there is any problem."""
        if self.problems:
            raise self.error()

    def error(self) -> InvalidTaskYAMLError:
        """All problems as one error, in the order of the file."""
        in_order = sorted(self.problems, key=lambda one: (one.line or 0, one.column or 0))
        lines = [self._told(one) for one in in_order[:PROBLEMS_SHOWN_MAX]]
        if len(in_order) > PROBLEMS_SHOWN_MAX:
            lines.append(f"{len(in_order) - PROBLEMS_SHOWN_MAX} more things are wrong")
        details: dict[str, Any] = {
            "problems": [
                {"field": one.field, "message": one.message, "line": one.line, "column": one.column}
                for one in in_order
            ]
        }
        if self.file is not None:
            details["file"] = self.file
        return InvalidTaskYAMLError("\n".join(lines), details)

    def _told(self, one: Problem) -> str:
        parts = [one.field] if one.path else []
        if self.file is not None:
            place = self.file if one.line is None else f"{self.file}:{one.line}:{one.column}"
            parts.insert(0, place)
        return ": ".join([*parts, one.message])


def where(path: Path) -> str:
    """A path as people write it."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def shown(value: Any) -> str:
    """A value as it stands in a message: short, on one line."""
    text = repr(value)
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[: VALUE_CHARS_MAX - 1]}…"
