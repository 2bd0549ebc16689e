"""What a call may ask about its place, and that nobody else gets an answer."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import TypeVar

import pytest

import sky
from sky.kit import context
from sky.kit.context import CallContext

T = TypeVar("T")


def on_rank(rank: int, total: int, ask: Callable[[], T]) -> T:
    def inside() -> T:
        here = CallContext("tsk_1", "exe_1", "cmp_1", "nod_1", rank, total, ("a", "b"), ("A100",))
        context.enter(here)
        return ask()

    return contextvars.copy_context().run(inside)


def test_a_call_knows_its_place() -> None:
    info = on_rank(1, 2, sky.instance_info)
    assert (info.rank, info.total, info.head, info.peers) == (1, 2, False, ("a", "b"))
    assert (info.task, info.compute, info.accelerators) == ("tsk_1", "cmp_1", ("A100",))
    assert on_rank(0, 2, sky.is_head)
    assert not on_rank(1, 2, sky.is_head)


@pytest.mark.parametrize("total", [1, 2, 3, 7])
def test_shards_are_disjoint_and_together_the_whole(total: int) -> None:
    whole = list(range(20))
    parts = [on_rank(rank, total, lambda: sky.shard(whole)) for rank in range(total)]
    assert sorted(one for part in parts for one in part) == whole
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_sequences_are_divided_alike() -> None:
    names, numbers = on_rank(1, 2, lambda: sky.shard("abcd", range(4)))
    assert (names, list(numbers)) == ("bd", [1, 3])


@pytest.mark.parametrize("ask", [sky.instance_info, sky.is_head, lambda: sky.shard([1])])
def test_outside_a_call_there_is_no_answer(ask: Callable[[], object]) -> None:
    with pytest.raises(sky.NotInCall, match="only inside a function"):
        ask()
