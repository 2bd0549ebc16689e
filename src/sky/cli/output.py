"""Where text goes and how it may look: results on standard output, everything else on standard error.

Decides: when colours are allowed (a terminal, and no NO_COLOR), how wide a line may be, how a table is laid
out, how JSON is written. Never: knows a noun; ``render`` does.
Follows: what is piped has no escape codes and no cut values; what comes from elsewhere cannot move a
terminal's cursor; progress is shown to a person and to nobody else.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
import unicodedata
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Self, TextIO

import msgspec

Format = Literal["table", "json"]
WIDTH_PIPED = 80
WIDTH_MIN = 40
GAP = "  "
ELLIPSIS = "…"
PROGRESS_AFTER_S = 1.0
"""What takes no longer than that is not worth a line."""
TICK_S = 0.25

STYLES = {
    "good": "36",
    "busy": "33",
    "bad": "1;31",
    "dim": "2",
    "bold": "1",
    "title": "1",
}
"""Escape codes. No two differ in red and green alone: whoever cannot tell those apart sees them differ."""


class Cell(str):
    """Text of a table with a style, one of ``STYLES``."""

    __slots__ = ("style",)

    def __new__(cls, text: object, style: str = "") -> Self:
        cell = super().__new__(cls, text)
        cell.style = style
        return cell


def prepare() -> None:
    """Make the standard streams take any character, whatever the locale says."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def coloured(stream: TextIO | None = None) -> bool:
    """Whether escape codes may be written there."""
    return movable(stream) and not os.environ.get("NO_COLOR")


def movable(stream: TextIO | None = None) -> bool:
    """Whether a line may be written over there: a terminal, and not a dumb one."""
    where = sys.stdout if stream is None else stream
    return where.isatty() and os.environ.get("TERM") != "dumb"


def styled(text: str, style: str, stream: TextIO | None = None) -> str:
    """``text`` with a style where the stream may have one."""
    code = STYLES.get(style)
    return f"\x1b[{code}m{text}\x1b[0m" if code and coloured(stream) else text


def width() -> int:
    """Columns that a line for people may have."""
    return max(WIDTH_MIN, shutil.get_terminal_size((WIDTH_PIPED, 24)).columns)


def clean(text: str) -> str:
    """``text`` on one line without anything a terminal would act on."""
    if text.isprintable():
        return text
    shown = (c if c.isprintable() else " " if c.isspace() else f"\\x{ord(c):02x}" for c in text)
    return " ".join("".join(shown).split())


def cells(text: str) -> int:
    """Columns that ``text`` takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def cut(text: str, columns: int) -> str:
    """``text`` in at most so many columns. Ids are cut in the middle: their ends tell them apart."""
    if cells(text) <= columns:
        return text
    if text[3:4] == "_" and columns > 12:
        return f"{text[: columns - 7]}{ELLIPSIS}{text[-6:]}"
    while text and cells(text) > columns - 1:
        text = text[:-1]
    return text + ELLIPSIS


# ── results ─────────────────────────────────────────────────────────────────────────────────────


def say(text: str = "") -> None:
    """A line of the result."""
    clear_progress()
    sys.stdout.write(text + "\n")


def json(value: Any) -> None:
    """A result as JSON: the interface's own, indented for a person, on one line for a program."""
    encoded = msgspec.json.encode(value)
    if sys.stdout.isatty():
        encoded = msgspec.json.format(encoded, indent=2)
    say(encoded.decode())


def plain(value: Any) -> dict[str, Any]:
    """A shape of the interface as the dictionary that its JSON is."""
    return msgspec.to_builtins(value)


def dumps(value: Any) -> str:
    """A value as JSON on one line."""
    return msgspec.json.encode(value).decode()


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, flexible: Sequence[str] = ()) -> None:
    """Rows under headings. On a terminal, the columns named ``flexible`` are cut until a line fits."""
    laid_out = [[_cell(value) for value in row] for row in rows]
    widths = [max([cells(head), *(cells(row[i]) for row in laid_out)]) for i, head in enumerate(headings)]
    if sys.stdout.isatty():
        _squeeze(headings, widths, flexible)
    say(_line([Cell(head, "dim") for head in headings], widths))
    for row in laid_out:
        say(_line(row, widths))


def _squeeze(headings: Sequence[str], widths: list[int], flexible: Sequence[str]) -> None:
    over = sum(widths) + len(GAP) * (len(widths) - 1) - width()
    for name in flexible:
        if over <= 0:
            return
        i = headings.index(name)
        less = max(0, min(over, widths[i] - max(8, len(name))))
        widths[i] -= less
        over -= less


def _cell(value: object) -> Cell:
    style = value.style if isinstance(value, Cell) else ""
    return Cell("-" if value is None or value == "" else clean(str(value)), style)


def _line(row: Sequence[Cell], widths: Sequence[int]) -> str:
    parts: list[str] = []
    for cell, columns in zip(row, widths, strict=True):
        text = cut(cell, columns)
        parts.append(styled(text, cell.style) + " " * (columns - cells(text)))
    return GAP.join(parts).rstrip()


def pairs(rows: Iterable[tuple[str, object]]) -> None:
    """Names and values below each other; long values are wrapped under their beginning."""
    listed = [(name, _cell(value)) for name, value in rows]
    columns = max((len(name) for name, _ in listed), default=0) + len(GAP)
    room = width() - columns if sys.stdout.isatty() else 10_000
    for name, value in listed:
        first, *rest = _wrapped(value, room)
        say(styled(f"{name:<{columns}}", "dim") + styled(first, value.style))
        for line in rest:
            say(" " * columns + styled(line, value.style))


def _wrapped(text: str, columns: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, max(20, columns)) or [""]


# ── everything else ─────────────────────────────────────────────────────────────────────────────


def write(text: str) -> None:
    """Part of the result, as it is, at once."""
    clear_progress()
    sys.stdout.write(text)
    sys.stdout.flush()


def note(text: str) -> None:
    """A line about what happens, beside the result."""
    clear_progress()
    sys.stderr.write(clean(text) + "\n")
    sys.stderr.flush()


def away(seconds: float) -> None:
    """A line about a server that does not answer, and is tried again for so many seconds."""
    note(f"no answer from the server; trying again for up to {seconds:.0f} s; Ctrl-C ends only the waiting")


def tell_error(text: str) -> None:
    """An error and its hint, each on one line; of several things that are wrong, one on each line."""
    clear_progress()
    for line in text.split("\nhint: "):
        head = "error: " if line.startswith("error: ") else "hint: "
        first, *more = line.removeprefix("error: ").splitlines()
        style = "bad" if head == "error: " else "dim"
        sys.stderr.write(styled(head, style, sys.stderr) + clean(first) + "\n")
        for other in more:
            sys.stderr.write(f"  {clean(other)}\n")
    sys.stderr.flush()


def tell_error_as_json(fields: Mapping[str, str | None]) -> None:
    """An error for a program: one object on one line."""
    clear_progress()
    sys.stderr.write(dumps(fields) + "\n")
    sys.stderr.flush()


class _Moving:
    """The line that says what is waited for, and from its second second on for how long.

    A thread of its own writes the seconds, for as long as there is something to say.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._text: str = ""
        self._since_s = 0.0
        self._drawn: str = ""
        self._shown = self._ticks = False
        self._quiet_since_s = 0.0
        self.standing: str | None = None

    def show(self, text: str, since_s: float | None = None) -> None:
        """Have this on the line from now on."""
        with self._lock:
            if text != self._text or not self._shown:
                self._text, self._since_s = text, time.monotonic() if since_s is None else since_s
            self._draw()
            self.tick()

    def clear(self) -> None:
        """Have nothing there, before something else is written."""
        with self._lock:
            if self._shown:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
            self._shown = False
            self._quiet_since_s = time.monotonic()

    def tick(self) -> None:
        """Have the seconds counted."""
        with self._lock:
            if not self._ticks:
                self._ticks = True
                threading.Thread(target=self._count, name="sky-progress", daemon=True).start()

    def _draw(self) -> None:
        seconds = int(time.monotonic() - self._since_s)
        shown: str = f"{self._text} {seconds} s" if seconds >= PROGRESS_AFTER_S else self._text
        if self._shown and shown == self._drawn:
            return
        sys.stderr.write("\r\x1b[K" + cut(clean(shown), width() - 1))
        sys.stderr.flush()
        self._drawn, self._shown = shown, True

    def _count(self) -> None:
        never = threading.Event()
        while not never.wait(TICK_S):
            with self._lock:
                if self._shown:
                    self._draw()
                elif self.standing is None:
                    self._ticks = False
                    return
                elif time.monotonic() - self._quiet_since_s >= PROGRESS_AFTER_S:
                    self.show(self.standing, self._quiet_since_s)


_moving = _Moving()


def progress(text: str) -> None:
    """What is waited for, on one line that the next one replaces; only for a person."""
    if movable(sys.stderr):
        _moving.show(text)


def clear_progress() -> None:
    """Take the line of ``progress`` away again."""
    _moving.clear()


@contextmanager
def waiting(text: str) -> Generator[None]:
    """Show what is waited for, whenever nothing else was shown for a moment."""
    if not movable(sys.stderr):
        yield
        return
    before, _moving.standing = _moving.standing, text
    _moving.clear()
    _moving.tick()
    try:
        yield
    finally:
        _moving.standing = before
        _moving.clear()


def raw(text: str, stream: TextIO) -> None:
    """What a program on a node wrote, as it wrote it."""
    clear_progress()
    stream.write(text if text.endswith("\n") else text + "\n")
    stream.flush()
