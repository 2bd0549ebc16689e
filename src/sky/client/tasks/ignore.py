"""Which files of a folder stay behind: what its ``.skyignore`` says, else what its ``.gitignore`` files say.

Decides: what a pattern matches, as git has it: the last one that matches decides, one in a deeper folder
before others, and nothing below a folder that stays behind is taken back. Never: follows a link.
Follows: git need not be here; rules of folders around the working folder count as far as its repository goes.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SKYIGNORE = ".skyignore"
GITIGNORE = ".gitignore"
REPOSITORY = ".git"
"""It stays behind, unless ``.skyignore`` has ``!.git``."""
FILE_BYTES_MAX = 1024 * 1024
STAR = "[^/]*"
_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "\\x21-\\x7e",
    "lower": "a-z",
    "print": "\\x20-\\x7e",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t\\n\\r\\f\\v",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}


@dataclass(frozen=True, slots=True)
class _Pattern:
    shape: re.Pattern[str]
    whole_path: bool
    folders_only: bool
    takes_back: bool


@dataclass(frozen=True, slots=True)
class _Rules:
    """The patterns of one file; ``base`` is its folder, from the folder that is looked at: ``""``, ``"a/"``;
    for a file further up, ``up`` is what stands before the paths instead."""

    patterns: tuple[_Pattern, ...]
    base: str = ""
    up: str = ""

    def decide(self, path: str, folder: bool) -> bool | None:
        """Whether it stays behind; None: nothing is said of it."""
        inside = self.up + path[len(self.base) :]
        name = path.rpartition("/")[2]
        for pattern in reversed(self.patterns):
            if pattern.folders_only and not folder:
                continue
            if pattern.shape.fullmatch(inside if pattern.whole_path else name):
                return not pattern.takes_back
        return None


class Ignored:
    """What stays behind of a folder. ``around``: rules of the folders around it count as well."""

    def __init__(self, root: Path, *, around: bool = False) -> None:
        self._root = root
        own = _read(root / SKYIGNORE)
        self._by_git = own is None
        self._rules: list[_Rules] = [_Rules(tuple(_patterns(REPOSITORY)))]
        if own is not None:
            self._rules.append(_Rules(tuple(_patterns(own))))
            return
        self._rules += list(_around(root)) if around else []
        excluded = _read(root / ".git" / "info" / "exclude")
        self._rules.append(_Rules(tuple(_patterns(excluded or ""))))

    def enter(self, folder: str) -> int:
        """Take in the rules of a folder (``""``, ``"a/b/"``); gives what ``leave`` wants."""
        before = len(self._rules)
        text = _read(self._root / folder / GITIGNORE) if self._by_git else None
        if text is not None:
            self._rules.append(_Rules(tuple(_patterns(text)), _plain(folder)))
        return before

    def leave(self, before: int) -> None:
        """Forget the rules of a folder, and of those below it."""
        del self._rules[before:]

    def match(self, path: str, *, folder: bool) -> bool:
        """Whether ``path``, from the folder itself, stays behind. Its folders have been entered."""
        plain = _plain(path)
        if self._by_git and plain.rpartition("/")[2] == REPOSITORY:
            return True
        for rules in reversed(self._rules):
            decided = rules.decide(plain, folder)
            if decided is not None:
                return decided
        return False


def _plain(path: str) -> str:
    return os.fsencode(path).decode("latin-1")


def _around(root: Path) -> Iterator[_Rules]:
    """The rules of the folders around, outermost first, as far as the repository goes."""
    if (root / ".git").exists():
        return
    found: list[_Rules] = []
    up = f"{_plain(root.name)}/"
    for parent in root.parents:
        text = _read(parent / GITIGNORE)
        if text is not None:
            found.append(_Rules(tuple(_patterns(text)), "", up))
        if (parent / ".git").exists():
            excluded = _read(parent / ".git" / "info" / "exclude")
            found.append(_Rules(tuple(_patterns(excluded or "")), "", up))
            yield from reversed(found)
            return
        up = f"{_plain(parent.name)}/{up}"


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX)
    except OSError:
        return None
    # A character for each byte, as git compares them.
    return content.removeprefix(codecs.BOM_UTF8).decode("latin-1")


def _patterns(text: str) -> Iterator[_Pattern]:
    for line in text.split("\n"):
        pattern = _pattern(line.removesuffix("\r"))
        if pattern is not None:
            yield pattern


def _pattern(line: str) -> _Pattern | None:
    if line.startswith("#"):
        return None
    text = _without_blanks(line)
    takes_back = text.startswith("!")
    text = text[1:] if takes_back else text
    folders_only = text.endswith("/")
    text = text[:-1] if folders_only else text
    whole_path = "/" in text
    text = text.removeprefix("/")
    if not text:
        return None
    try:
        shape = re.compile(_shape(text), re.DOTALL)
    except (re.error, ValueError):
        return None
    return _Pattern(shape, whole_path, folders_only, takes_back)


def _without_blanks(line: str) -> str:
    """A line without the spaces at its end, of which one behind a backslash stays."""
    end = len(line)
    while end and line[end - 1] == " ":
        slashes = end - 1 - len(line[: end - 1].rstrip("\\"))
        if slashes % 2:
            break
        end -= 1
    return line[:end]


def _shape(text: str) -> str:
    """A pattern as a regular expression. Raises ValueError for one that matches nothing."""
    shape, at = "", 0
    star: int | None = None
    while at < len(text):
        sign = text[at]
        if sign == "*":
            stars = len(text) - at - len(text[at:].lstrip("*"))
            piece, taken = _stars(text, at, stars)
            if piece != STAR:
                star = None
            else:
                shape = shape if star is None else _settled(shape, star)
                star = len(shape)
            shape += piece
            at += taken
            continue
        if sign == "?":
            shape += "[^/]"
        elif sign == "[":
            piece, at = _bracket(text, at + 1)
            shape += piece
            continue
        elif sign == "\\":
            at += 1
            if at == len(text):
                raise ValueError("a backslash at its end")
            shape += re.escape(text[at])
        else:
            shape += re.escape(sign)
        at += 1
    return shape


def _settled(shape: str, star: int) -> str:
    """A shape to whose end another star of the same level comes. What stands behind its last one may then
    stay where it is found first: the next star takes the rest. Were other places tried, each star would
    multiply the time."""
    return f"{shape[:star]}(?>{STAR}?{shape[star + len(STAR) :]})"


def _stars(text: str, at: int, stars: int) -> tuple[str, int]:
    """What ``*`` or ``**`` at a place becomes, and how much of the pattern that takes."""
    behind = text[at + stars : at + stars + 1]
    # Git compares what is literal first, so that two stars right behind it stand at a beginning too.
    starts_level = text[at - 1 : at] in ("", "/") or not set("*?[\\") & set(text[:at])
    if stars < 2 or not starts_level or behind not in ("", "/"):
        return STAR, stars
    if behind == "/":
        return "(?:.*/)?", stars + 1
    return ".*", stars


def _bracket(text: str, at: int) -> tuple[str, int]:
    """A set of characters, and where the pattern goes on. Raises ValueError for one that does not end."""
    negated = text[at : at + 1] in ("!", "^")
    at += negated
    inner, first = "", True
    while True:
        sign = text[at : at + 1]
        if not sign:
            raise ValueError("a bracket that does not end")
        if sign == "]" and not first:
            if not inner:
                return ("[^/]" if negated else "(?!)"), at + 1
            return f"[^/{inner}]" if negated else f"(?!/)[{inner}]", at + 1
        first = False
        named = re.compile(r"\[:([a-z]*):\]").match(text, at)
        if named is not None:
            inner += _CLASSES.get(named[1]) or _unknown(named[1])
            at = named.end()
            continue
        low, at = _sign(text, at)
        if text[at : at + 1] == "-" and text[at + 1 : at + 2] not in ("", "]"):
            high, at = _sign(text, at + 1)
            inner += f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""
        else:
            inner += re.escape(low)


def _unknown(name: str) -> str:
    raise ValueError(f"no class of characters is called {name}")


def _sign(text: str, at: int) -> tuple[str, int]:
    if text[at : at + 1] == "\\":
        at += 1
    if at >= len(text):
        raise ValueError("a bracket that does not end")
    return text[at], at + 1
