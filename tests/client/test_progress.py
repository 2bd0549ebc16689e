"""What is said while something takes its time: on a terminal, in a notebook, and where neither is."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import pytest
from tests import waiting

from sky.client import progress
from sky.client.console import Console
from sky.client.progress import FRESH_LINE, Progress, Tally, lasting
from sky.wire.v1 import ConsoleEvent


class Terminal(io.StringIO):
    """A standard error that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


class Notebook(io.StringIO):
    """A standard error as a notebook's kernel has one."""


Notebook.__module__ = "ipykernel.iostream"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "CALLS_FROM_S", 0.0)
    monkeypatch.setattr(progress, "CALLS_EVERY_S", 0.0)


def shown_on(stream: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_a_terminal_has_one_line_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = shown_on(Terminal(), monkeypatch)
    with Progress() as said:
        said.say("one")
        said.say("one")
        said.say("two")
    assert seen.getvalue() == f"{FRESH_LINE}one{FRESH_LINE}two{FRESH_LINE}"


def test_what_goes_on_for_long_says_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = shown_on(Terminal(), monkeypatch)
    monkeypatch.setattr(progress, "LASTING_FROM_S", 0.01)
    with lasting("sending …"):
        waiting.until(lambda: re.search(r"sending … \(\d+ s\)", seen.getvalue()), "it is said", within_s=20.0)
    with lasting("in silence", quiet=True), Progress() as said:
        said.say("comes up")
        waiting.until(lambda: re.search(r"comes up \(\d+ s\)", seen.getvalue()), "so is that", within_s=20.0)
    assert seen.getvalue().endswith(FRESH_LINE)
    assert "silence" not in seen.getvalue()
    plain = shown_on(io.StringIO(), monkeypatch)
    with lasting("sending …"):
        assert plain.getvalue() == ""


def test_a_notebook_has_one_line_without_control_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = shown_on(Notebook(), monkeypatch)
    with Progress() as said:
        said.say("seven")
        said.say("two")
    assert seen.getvalue() == "\r\rseven\r     \rtwo\r   \r"


def test_elsewhere_it_is_plain_lines_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = shown_on(io.StringIO(), monkeypatch)
    for quiet in (False, True):
        with Progress(quiet=quiet) as said:
            said.say("one")
            said.say("two")
        tally = Tally(quiet=quiet)
        tally.stands(3, 1000)
        tally.over()
    assert seen.getvalue() == "sky: one\nsky: two\n"


def test_many_calls_are_counted_and_the_count_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = shown_on(Terminal(), monkeypatch)
    tally = Tally()
    tally.stands(1, 2)
    assert seen.getvalue() == "", "three calls are not many"
    tally.stands(1234, 1000)
    assert seen.getvalue() == f"{FRESH_LINE}1,234 calls have ended, 1,000 are under way (0 s)"
    tally.over()
    assert seen.getvalue().endswith(FRESH_LINE)
    shown = seen.getvalue()
    tally.over()
    tally.stands(9, 0)
    assert seen.getvalue() == shown, "with none under way there is nothing to say"


def test_what_calls_print_does_not_land_on_the_moving_line(monkeypatch: pytest.MonkeyPatch) -> None:
    both = shown_on(Terminal(), monkeypatch)
    monkeypatch.setattr(sys, "stdout", both)
    tally, console = Tally(), Console()
    console.expect("tsk_1")
    tally.stands(5, 5)
    console.heard(
        ConsoleEvent(compute="cmp_1", node="nod_1", rank=0, task="tsk_1", stream="stdout", content="hello")
    )
    counted = "5 calls have ended, 5 are under way (0 s)"
    assert both.getvalue() == f"{FRESH_LINE}{counted}{FRESH_LINE}hello\n"


def test_of_what_goes_on_within_each_other_the_inner_one_has_the_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = shown_on(Terminal(), monkeypatch)
    monkeypatch.setattr(progress, "LASTING_FROM_S", 0.01)
    with lasting("outer"):
        waiting.until(lambda: "outer (" in seen.getvalue(), "the outer one is said", within_s=20.0)
        with lasting("inner"):
            waiting.until(lambda: "inner (" in seen.getvalue(), "the inner one is said", within_s=20.0)
            count = seen.getvalue().count("inner (")
            waiting.until(lambda: seen.getvalue().count("inner (") > count + 3, "it goes on", within_s=20.0)
            assert "outer" not in seen.getvalue().partition("inner (")[2]
        said = len(seen.getvalue())
        waiting.until(lambda: "outer (" in seen.getvalue()[said:], "the outer one is back", within_s=20.0)
    assert seen.getvalue().endswith(FRESH_LINE)
