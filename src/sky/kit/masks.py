"""Keeps secrets out of text that people read: what is known to be one, and what looks like one.

Decides: which parts of a text are hidden. Never: tells what it hides, or holds text back.
Follows: text that comes in pieces is looked at across their borders; of a secret whose beginning was shown
before it could be recognised, all that is still to come is hidden.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping

from sky.kit import secrets

HIDDEN = "***"
VALUE_CHARS_MIN = 6
"""Shorter values are words that any text may contain."""
VALUES_MAX = 10_000
LOOK_BACK_CHARS = 4_096
KEY_LINES_MAX = 400
"""How many lines after the beginning of a private key are hidden when its end does not come."""
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----")
_KEY_ENDS = re.compile(r"-----END [A-Z ]{0,40}PRIVATE KEY-----")
_UNFINISHED = re.compile(
    r"\b(?:AKIA|ASIA|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|hf_|[sr]k[-_]|AIza|eyJ)[A-Za-z0-9_\-.]{0,2000}\Z"
)
"""The beginning of a shape at the end of a piece."""

Span = tuple[int, int]


class Masks:
    """The values that are known, and how text looks without them and without what looks like them.

    They are learnt in one thread while others hide them: a set of values never changes, it is replaced.
    ``beside``: what those hide is hidden here too.
    """

    def __init__(self, values: Iterable[str] = (), *, beside: Masks | None = None) -> None:
        self._beside = beside
        self._learning = threading.Lock()
        self._values: dict[str, None] = {}
        self._known: re.Pattern[str] | None = None
        self.add(values)

    def add(self, values: Iterable[str]) -> None:
        """From now on these are hidden too; of a value of several lines, each line."""
        found = {line.strip() for value in values for line in (value, *value.splitlines())}
        with self._learning:
            known = self._values
            fresh = [value for value in found if len(value) >= VALUE_CHARS_MIN and value not in known]
            if fresh:
                self._values = {**known, **dict.fromkeys(fresh[: VALUES_MAX - len(known)])}
                longest_first = sorted(self._values, key=len, reverse=True)
                self._known = re.compile("|".join(map(re.escape, longest_first)))

    def add_named(self, environment: Mapping[str, str]) -> None:
        """Add the values of variables whose names say that they are secrets."""
        self.add(value for name, value in environment.items() if secrets.named(name, value))

    def hide(self, text: str) -> str:
        """A whole text without secrets."""
        return _without(text, self.spans(text))

    def spans(self, text: str) -> list[Span]:
        """Where the secrets of a text are, in order, and apart from each other."""
        found: list[Span] = []
        if self._known is not None:
            found += (match.span() for match in self._known.finditer(text))
        if self._beside is not None:
            return _apart([*found, *self._beside.spans(text)])
        for _, hints, shape in secrets.SHAPES:
            if any(hint in text for hint in hints):
                found += (match.span(1 if shape.groups else 0) for match in shape.finditer(text))
        if "PRIVATE KEY-----" in text:
            found += _keys(text)
        return _apart(found)

    def begun(self, text: str) -> int:
        """How many characters at the end of a text may be the beginning of a secret."""
        unfinished = _UNFINISHED.search(text, max(0, len(text) - LOOK_BACK_CHARS))
        most = len(text) - unfinished.start() if unfinished else 0
        for value in self._values:
            for count in range(min(len(value) - 1, len(text)), max(most, VALUE_CHARS_MIN // 2), -1):
                if text.endswith(value[:count]):
                    most = count
                    break
        return most if self._beside is None else max(most, self._beside.begun(text))


class Flow:
    """One stream of text in pieces: which secrets reach from one into the next.

    ``whole`` pieces end where a line does; others are parts of one line.
    """

    def __init__(self, masks: Masks) -> None:
        self._masks = masks
        self._before = ""
        self._key_lines = 0

    @property
    def open(self) -> bool:
        """Whether anything that was said matters for what comes."""
        return bool(self._before or self._key_lines)

    def hide(self, piece: str, *, whole: bool) -> str:
        """The next piece without secrets."""
        if self._key_lines:
            return self._in_key(piece, whole=whole)
        text = self._before + piece
        spans = self._masks.spans(text)
        if not whole:
            begun = self._masks.begun(text)
            spans = _apart([*spans, (len(text) - begun, len(text))]) if begun else spans
        offset = len(self._before)
        self._before = "" if whole else text[-LOOK_BACK_CHARS:]
        begins = list(_KEY_BEGINS.finditer(piece))
        if begins and not _KEY_ENDS.search(piece, begins[-1].end()):
            self._key_lines = KEY_LINES_MAX
        return _without(piece, [(max(0, a - offset), b - offset) for a, b in spans if b > offset])

    def _in_key(self, piece: str, *, whole: bool) -> str:
        ends = _KEY_ENDS.search(piece)
        if ends is None:
            self._key_lines = max(0, self._key_lines - piece.count("\n") - (not whole))
            return re.sub(r"[^\n]+", HIDDEN, piece)
        self._key_lines = 0
        hidden = re.sub(r"[^\n]+", HIDDEN, piece[: ends.end()])
        return hidden + self.hide(piece[ends.end() :], whole=whole)


def _keys(text: str) -> Iterable[Span]:
    """Private keys, line by line: the lines stay, and nothing of what they say."""
    place = 0
    while (begins := _KEY_BEGINS.search(text, place)) is not None:
        ends = _KEY_ENDS.search(text, begins.end())
        place = ends.end() if ends else len(text)
        start = begins.start()
        for line in text[begins.start() : place].split("\n"):
            yield start, start + len(line)
            start += len(line) + 1


def _apart(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _without(text: str, spans: list[Span]) -> str:
    if not spans:
        return text
    parts: list[str] = []
    place = 0
    for start, end in spans:
        parts += (text[place:start], HIDDEN)
        place = end
    return "".join((*parts, text[place:]))
