"""What a type checker must know about the SDK. Never run: ``test_typing`` gives it to pyright.

Lines that end in ``# wrong`` must be errors, and no other line may be one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from typing import assert_type

import sky


@sky.function
def train(epochs: int, rate: float = 0.1) -> float:
    return epochs * rate


@sky.function(timeout=5, retry=sky.Retry(safe_retries=1))
def name_of(number: int) -> str:
    return str(number)


@sky.function
async def fetch(url: str) -> bytes:
    return url.encode()


@sky.function
def count(to: int) -> Iterator[int]:
    yield from range(to)


@sky.function
def counting(to: int) -> Generator[str, None, None]:
    yield str(to)


@sky.function
async def ticking(to: int) -> AsyncIterator[float]:
    yield float(to)


@sky.function
def add(left: int, right: int) -> int:
    return left + right


class Model:
    @sky.function
    def score(self, value: float, *, times: int = 1) -> str:
        return str(value * times)

    @staticmethod
    @sky.function
    def half(value: int) -> float:
        return value / 2


def methods(compute: sky.Compute, model: Model) -> None:
    assert_type(model.score(1.0, times=2), sky.Pending[str])
    assert_type(model.score(1.0) >> compute, str)
    assert_type(model.score.local(1.0), str)
    assert_type(Model.half(3) >> compute, float)
    assert_type(sky.map(model.score, [1.0, 2.0]) >> compute, list[str])
    model.score("x")  # wrong
    model.score()  # wrong
    train >> compute  # wrong
    train.remote(1)  # wrong
    list(train(1))  # wrong


def named() -> None:
    sky.Compute("dev", nodes=(0, 4))
    sky.Compute(name="dev", volumes=[], ttl=60)
    sky.Compute("dev", ttl="10m")  # wrong
    try:
        raise sky.errors.TaskTimedOut("too long", "tsk_1")
    except sky.errors.CallError as error:
        assert_type(error.task, str)


def blocking(compute: sky.Compute) -> None:
    assert_type(train(10), sky.Pending[float])
    assert_type(train(10) >> compute, float)
    assert_type(train(10, rate=0.5) @ compute, list[float])
    assert_type(fetch("x") >> compute, bytes)
    assert_type(train.local(10), float)
    assert_type(name_of.options(timeout=3)(1) >> compute, str)
    assert_type(train.options(timeout=3), sky.Function[..., float])  # wrong


def together(compute: sky.Compute) -> None:
    assert_type((train(1) & name_of(2)) >> compute, tuple[float, str])
    assert_type((train(1) & name_of(2) & fetch("x")) >> compute, tuple[float, str, bytes])
    assert_type(sky.gather(train(1), train(2)) >> compute, list[float])
    assert_type(sky.gather(train(1), name_of(2)) >> compute, list[float | str])
    assert_type(sky.gather(train(1), stream=True, ordered=False) >> compute, sky.Items[float])
    assert_type((train(1) & name_of(2)) > compute, sky.Future[tuple[float, str]])
    assert_type(sky.gather(train(1), train(2)) > compute, sky.Future[list[float]])
    assert_type(sky.map(train, range(3)) >> compute, list[float])
    assert_type(sky.map(name_of, [1]) >> compute, list[str])
    assert_type(sky.map(add, [1], (2,)) >> compute, list[int])
    assert_type(sky.map(train, range(3), stream=True) >> compute, sky.Items[float])
    assert_type(sky.map(train, range(3)).stream(ordered=False) >> compute, sky.Items[float])


def streams(compute: sky.Compute) -> None:
    assert_type(count(3) >> compute, sky.Items[int])
    assert_type(counting(3) >> compute, sky.Items[str])
    assert_type(ticking(3) >> compute, sky.Items[float])
    for item in count(3) >> compute:
        assert_type(item, int)
    iterator: Iterator[int] = count(3) >> compute
    next(iterator)


async def futures(compute: sky.Compute) -> None:
    future = train(10) > compute
    assert_type(future, sky.Future[float])
    assert_type(future.result(timeout=3), float)
    assert_type(await future, float)
    async with sky.Compute(provider=sky.Local(), nodes=(1, 4)) as other:
        assert_type(other, sky.AsyncCompute)
        assert_type(await (name_of(1) > other), str)
        assert_type(await (name_of(1) >> other), str)
        assert_type(await (fetch("x") >> other), bytes)
        assert_type(await (train(1) @ other), list[float])
        assert_type(await ((train(1) & name_of(2)) >> other), tuple[float, str])
        assert_type(await (sky.gather(train(1), train(2)) >> other), list[float])
        assert_type(await (sky.map(train, range(3)) >> other), list[float])
        async for number in count(3) >> other:
            assert_type(number, int)
        async for result in sky.map(train, range(3), stream=True) >> other:
            assert_type(result, float)
        async for text in counting(3) >> compute:
            assert_type(text, str)
        (train(1) >> other).upper()  # wrong
        async for _ in train(1) >> other:  # wrong
            pass


def inside() -> None:
    assert_type(sky.instance_info().rank, int)
    assert_type(sky.is_head(), bool)
    assert_type(sky.shard([1, 2, 3]), list[int])
    assert_type(sky.shard([1], "ab"), tuple[list[int], str])


@sky.app(provider=sky.Local(), nodes=2)
def main(epochs: int) -> float:
    return train.local(epochs)


def declared() -> None:
    assert_type(main.run(3), float)
    assert_type(main.compute(), sky.Compute)
    main.run("three")  # wrong


def mistakes(compute: sky.Compute) -> None:
    train("ten")  # wrong
    train(epochs=1, speed=2)  # wrong
    train()  # wrong
    train.local(None)  # wrong
    train(1) >> 5  # wrong
    sky.map(train, ["a"])  # wrong
    sky.map(add, [1])  # wrong
    sky.map(len, ["a"])  # wrong
    (train(1) >> compute).upper()  # wrong
    sky.Compute(nodes="two")  # wrong
    sky.Compute(executor="fibre")  # wrong
    sky.Image(pip=3)  # wrong
    sky.nothing()  # wrong
