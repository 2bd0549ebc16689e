"""What a node's journal keeps: in memory and on disk it is bounded, however many calls the node has run."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sky.agent import journal as journals
from sky.agent.journal import COMPACT_BYTES_MIN, TOLD_KEPT, Journal
from sky.wire.agent import Outcome

BATCH = 500


def _name(number: int) -> str:
    return f"exec_{number:026d}"


def _outcome(name: str, result: bytes = b"small") -> Outcome:
    return Outcome(execution=name, state="succeeded", seconds=0.1, ago_s=0.0, result=result)


def _run(
    journal: Journal, numbers: range, result: bytes = b"small", on_batch: Callable[[], None] = int
) -> None:
    """Calls from being accepted to being told, in batches, as a busy node has them."""
    for first in range(numbers.start, numbers.stop, BATCH):
        names = [_name(number) for number in range(first, min(first + BATCH, numbers.stop))]
        journal.accept(names)
        journal.end([_outcome(name, result) for name in names], 1)
        journal.tell(names)
        on_batch()


def _remembered(journal: Journal, numbers: range) -> list[int]:
    return [number for number in numbers if journal.standing(_name(number)) is not None]


def _descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def test_the_last_calls_are_remembered_and_not_all_of_them(tmp_path: Path) -> None:
    path, numbers = tmp_path / "journal", range(5 * TOLD_KEPT + 7)
    journal = Journal(path)
    journal.accept(["runs"])
    journal.end([_outcome("waits")], 1)
    _run(journal, numbers)
    for again in range(2):
        found = _remembered(journal, numbers)
        assert TOLD_KEPT <= len(found) <= 2 * TOLD_KEPT
        assert found == [*numbers[-len(found) :]], "the last ones"
        assert (journal.standing("runs"), journal.standing("waits")) == ("accepted", "untold")
        assert journal.known() == ("runs", "waits")
        if not again:
            journal.close()
            journal = Journal(path)
    journal.close()


def test_what_is_told_twice_can_be_told_a_third_time(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    _run(journal, range(1), b"its result")
    _run(journal, range(1, TOLD_KEPT + 100))
    for _ in range(3):
        ended = journal.outcome(_name(0))
        assert ended is not None
        assert ended.outcome.result == b"its result"
        journal.tell([_name(0)])
    journal.close()


def test_the_file_is_bounded_and_keeps_what_was_not_told(tmp_path: Path) -> None:
    path, sizes = tmp_path / "journal", list[int]()
    journal = Journal(path)
    journal.end([_outcome("waits", b"not told")], 7)
    _run(journal, range(40_000), b"x" * 2000, lambda: sizes.append(path.stat().st_size))
    assert max(sizes) < COMPACT_BYTES_MIN + 2 * 1024**2
    assert min(sizes[-20:]) < COMPACT_BYTES_MIN
    for _ in range(2):
        waits = journal.outcome("waits")
        assert waits is not None
        assert (waits.outcome.result, waits.at_us) == (b"not told", 7)
        assert journal.standing(_name(39_999)) == "told"
        journal.close()
        journal = Journal(path)
    journal.close()


def test_a_disk_that_is_full_when_the_file_is_rewritten_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "journal")
    _run(journal, range(1000), b"x" * 1000)
    written, refused = os.write, list[int]()

    def write(fd: int, content: Any) -> int:
        if Path(f"/proc/self/fd/{fd}").readlink().suffix == ".new":
            refused.append(fd)
            raise OSError(errno.ENOSPC, "no space left")
        return written(fd, content)

    monkeypatch.setattr(journals.os, "write", write)
    opened = _descriptors()
    with pytest.raises(OSError, match="no space"):
        _run(journal, range(1000, 40_000), b"x" * 1000)
    told = [number for number in _remembered(journal, range(1000, 40_000)) if number % BATCH == BATCH - 1]
    journal.tell([_name(told[-1])])
    assert len(refused) == 1, "it is not tried again at once"
    assert _descriptors() == opened
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal"]
    assert journal.standing(_name(told[-1])) == "told"
    assert journal.outcome(_name(0)) is not None
    monkeypatch.undo()
    journal.close()
