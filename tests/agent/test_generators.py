"""Generators: items in order, back-pressure that reaches the generator, and a proper end."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from sky.wire.agent import ITEM_WINDOW


def plain(count: int) -> Any:
    yield from range(count)


async def asynchronous(count: int) -> Any:
    for number in range(count):
        await asyncio.sleep(0)
        yield number


def items_of(node: Any, execution: str) -> list[Any]:
    return [item for item in list(node.daemon.items) if item.execution == execution]


@pytest.mark.parametrize("function", [plain, asynchronous])
def test_items_come_in_order_and_then_the_outcome(either: Any, unpack: Any, function: Any) -> None:
    execution = either.send(function, 20, stream=True)
    outcome = either.outcome(execution)
    assert (outcome.state, outcome.items, outcome.result) == ("succeeded", 20, None)
    items = items_of(either, execution)
    assert [item.index for item in items] == list(range(20))
    assert [unpack(item.value) for item in items] == list(range(20))


@pytest.mark.parametrize("function", [plain, asynchronous])
def test_a_generator_is_not_resumed_beyond_its_window(
    either: Any, until: Any, tmp_path: Path, function: Any
) -> None:
    def counted(path: str) -> Any:
        for number in range(200):
            Path(path).write_text(str(number))
            yield number

    async def counted_async(path: str) -> Any:
        for number in range(200):
            Path(path).write_text(str(number))
            yield number

    path = tmp_path / "resumed"
    execution = either.send(counted if function is plain else counted_async, str(path), stream=True)
    until(lambda: len(items_of(either, execution)) == ITEM_WINDOW, "a full window")
    assert either.value(lambda: "others go on") == "others go on"
    assert path.read_text() == str(ITEM_WINDOW - 1)
    either.credit(execution, 10)
    until(lambda: len(items_of(either, execution)) == ITEM_WINDOW + 10, "ten more")
    assert path.read_text() == str(ITEM_WINDOW + 9)
    either.credit(execution, 5)
    either.credit(execution, 200)
    assert either.outcome(execution).items == 200
    assert [item.index for item in items_of(either, execution)] == list(range(200))


def test_large_items_are_blobs_and_keep_their_place(either: Any, unpack: Any) -> None:
    def mixed() -> Any:
        import os

        yield "small"
        yield os.urandom(600_000)
        yield "small again"
        yield b"x" * 10

    execution = either.send(mixed, stream=True)
    assert either.outcome(execution).items == 4
    items = items_of(either, execution)
    assert [item.index for item in items] == [0, 1, 2, 3]
    assert items[1].value is None
    assert len(unpack(either.daemon.blobs[items[1].value_sha256])) == 600_000


def test_a_generator_that_raises_fails_after_its_items(either: Any, unpack: Any) -> None:
    def failing() -> Any:
        yield 1
        raise ValueError("after one")

    execution = either.send(failing, stream=True)
    outcome = either.outcome(execution)
    assert (outcome.state, outcome.items, outcome.error.type) == ("failed", 1, "ValueError")
    assert isinstance(unpack(outcome.result), ValueError)
    assert len(items_of(either, execution)) == 1


@pytest.mark.parametrize("kind", ["waiting for its reader", "busy", "asynchronous"])
def test_a_cancelled_generator_runs_its_finally(either: Any, until: Any, tmp_path: Path, kind: str) -> None:
    def waiting(path: str) -> Any:
        try:
            yield from range(1000)
        finally:
            Path(path).touch()

    def busy(path: str) -> Any:
        try:
            yield from range(ITEM_WINDOW - 1)
            while True:
                time.sleep(0.01)
        finally:
            Path(path).touch()

    async def awaiting(path: str) -> Any:
        try:
            for number in range(1000):
                yield number
        finally:
            Path(path).touch()

    function = {"waiting for its reader": waiting, "busy": busy, "asynchronous": awaiting}[kind]
    path = tmp_path / "closed"
    execution = either.send(function, str(path), stream=True)
    until(lambda: len(items_of(either, execution)) >= ITEM_WINDOW - 1, "items")
    either.cancel(execution)
    outcome = either.outcome(execution)
    assert outcome.state == "cancelled"
    assert path.exists()


def test_a_function_without_items_says_so(either: Any) -> None:
    outcome = either.run(lambda: 7, stream=True)
    assert (outcome.state, outcome.error.type) == ("failed", "TypeError")
    assert "int" in outcome.error.message


def test_an_item_that_does_not_pickle_names_its_type(either: Any) -> None:
    def failing() -> Any:
        import threading

        yield 1
        yield threading.Lock()

    outcome = either.run(failing, stream=True)
    assert (outcome.state, outcome.items) == ("failed", 1)
    assert "_thread.lock" in outcome.error.message
