"""Which files stay behind when a folder goes along: patterns as a ``.gitignore`` has them.

Decides: what a pattern matches. Without a slash it is a name at any level; with one, a path from the folder
itself; a slash at its end means folders only; ``**`` is any number of levels; ``!`` takes back, and the last
pattern that matches decides. Never: looks at a file.
Follows: nothing below a folder that stays behind can be taken back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

NEVER = (
    "__pycache__/",
    "*.py[cod]",
    ".git",
    ".hg/",
    ".svn/",
    ".venv/",
    "venv/",
    "node_modules/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".tox/",
    ".nox/",
    ".ipynb_checkpoints/",
    ".DS_Store",
)
"""What stays behind unless a pattern such as ``!.venv/`` takes it back."""


class _Pattern(NamedTuple):
    shape: re.Pattern[str]
    folders_only: bool
    takes_back: bool


class Excludes:
    """The patterns of one image, behind those that every image has."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [_compiled(pattern) for pattern in (*NEVER, *patterns) if pattern.strip("/! ")]

    def match(self, path: str, *, folder: bool) -> bool:
        """Whether ``path``, from the included folder, stays behind."""
        found = False
        for pattern in self._patterns:
            if (folder or not pattern.folders_only) and pattern.shape.fullmatch(path):
                found = not pattern.takes_back
        return found


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> _Pattern:
    takes_back = pattern.startswith("!")
    text = pattern.removeprefix("!").removeprefix("./")
    folders_only = text.endswith("/")
    text = text.rstrip("/")
    anchored = "/" in text
    levels = [level for level in text.split("/") if level]
    shape = "" if anchored else "(?:[^/]+/)*"
    for number, level in enumerate(levels):
        last = number == len(levels) - 1
        if level == "**":
            shape += ".+" if last else "(?:[^/]+/)*"
        else:
            shape += _level(level) + ("" if last else "/")
    return _Pattern(re.compile(shape, re.DOTALL), folders_only, takes_back)


def _level(text: str) -> str:
    """One level of a path, in which ``*`` and ``?`` stand for anything but a slash."""
    shape, at = "", 0
    while at < len(text):
        sign = text[at]
        end = text.find("]", at + 2) if sign == "[" else -1
        if sign == "\\" and at + 1 < len(text):
            at += 1
            shape += re.escape(text[at])
        elif sign == "*":
            shape += "[^/]*"
        elif sign == "?":
            shape += "[^/]"
        elif end > 0:
            inner = text[at + 1 : end]
            negated = inner[:1] in ("!", "^")
            shape += f"[{'^/' if negated else ''}{_class(inner[1:] if negated else inner)}]"
            at = end
        else:
            shape += re.escape(sign)
        at += 1
    return shape


def _class(text: str) -> str:
    return re.sub(r"([\\\[\]^&~|])", r"\\\1", text)
