"""What is printed of what nodes write: whose lines, in which order, and how long a result waits for them."""

from __future__ import annotations

import threading
import time

import pytest

from sky.client import console as module
from sky.client.console import Console
from sky.wire.v1 import ConsoleEvent


def wrote(task: str | None, content: str, rank: int = 0, stream: str = "stdout") -> ConsoleEvent:
    out = "stderr" if stream == "stderr" else "stdout"
    return ConsoleEvent(compute="c", node="n", content=content, task=task, rank=rank, stream=out)


def test_only_our_own_tasks_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console()
    console.expect("tsk_1")
    for event in (wrote("tsk_1", "ours"), wrote("tsk_2", "theirs"), wrote(None, "the node's")):
        console.heard(event)
    console.heard(wrote("tsk_1", "bad", stream="stderr"))
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("ours\n", "bad\n")


def test_lines_that_came_before_their_task_was_known_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console()
    console.heard(wrote("tsk_1", "early"))
    console.expect("tsk_1")
    console.heard(wrote("tsk_1", "late"))
    assert capsys.readouterr().out == "early\nlate\n"


def test_each_line_says_its_rank_when_there_are_several(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(ranks=True)
    console.expect("tsk_1")
    console.heard(wrote("tsk_1", "a\nb", rank=1))
    assert capsys.readouterr().out == "[rank 1] a\n[rank 1] b\n"


def test_a_result_waits_for_its_lines_and_not_longer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SETTLE_S", 20.0)
    console = Console()
    console.expect("tsk_1", "tsk_2")
    later = threading.Timer(0.2, console.heard, (wrote("tsk_1", "a\n\nb"),))
    later.start()
    begun = time.monotonic()
    console.settle("tsk_1", 3)
    assert capsys.readouterr().out == "a\n\nb\n"
    assert time.monotonic() - begun < 20.0
    monkeypatch.setattr(module, "SETTLE_S", 0.5)
    begun = time.monotonic()
    console.settle("tsk_2", 1)
    assert time.monotonic() - begun >= 0.5
