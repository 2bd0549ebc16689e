"""What a function that can be sent is before it is sent: how it is described, bound, refused, kept."""

from __future__ import annotations

import functools
import importlib
import io
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pytest

import sky
from sky import errors
from sky.client import outgoing, pack, standing
from sky.client.errors import PackError

LOCK = threading.Lock()


@sky.function
def double(number: int, *, plus: int = 0) -> int:
    return number * 2 + plus


class Counter:
    """Has methods that can be sent."""

    def __init__(self, start: int) -> None:
        self.start = start

    @sky.function
    def add(self, number: int) -> int:
        return self.start + number

    @staticmethod
    @sky.function
    def triple(number: int) -> int:
        return number * 3

    @classmethod
    def make(cls, start: int) -> Counter:
        return cls(start)


def sent(call: sky.Pending[Any]) -> Any:
    """What a call would give, run from its payloads as a node does."""
    ready = outgoing.prepare(call)
    function = pack.unpack(bytes(ready.function.content))
    content = ready.blob.content if ready.blob else ready.inline
    args, kwargs = pack.unpack(bytes(content or b""))
    return function(*args, **kwargs)


# ── what people type ────────────────────────────────────────────────────────────────────────────


def test_methods_are_bound_and_bring_their_object() -> None:
    assert Counter(4).add.local(1) == 5
    assert sent(Counter(4).add(1)) == 5
    assert sent(Counter(4).add.options(timeout=3)(number=1)) == 5
    assert sent(Counter.triple(2)) == 6
    assert sent(sky.function(Counter(1).add.function)(1)) == 2
    assert sent(sky.function(Counter.make)(9)).start == 9
    assert sent(sky.function(functools.partial(pow, 2))(5)) == 32


anything: Any = double
decorate: Any = sky.function
builtin: Any = len
many: Any = [double(1)]
image: Any = sky.Image
compute: Any = sky.Compute
target: Any = sky.Compute()


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda: anything(1, 2), r"double\(\): too many positional"),
        (lambda: anything(nummer=1), r"double\(\): missing a required argument: 'number'"),
        (lambda: anything >> object(), "call it first"),
        (lambda: anything(1) >> 3, r"an open sky\.Compute, and 3 is none"),
        (lambda: anything(1) @ sky.Compute, "open sky.Compute"),
        (lambda: bool(anything(1)), r"double\(1\) describes a call that was not sent"),
        (lambda: list(anything(1)), "has no items"),
        (lambda: anything(1).result(), "has no 'result'"),
        (lambda: anything.remote(1), ">> compute"),
        (lambda: 3 >> target, r"a value of type int.*Put @sky\.function above"),
        (lambda: "3" @ target, r"a value of type str"),
        (lambda: target < 3.5, r"a value of type float"),
        (
            lambda: builtin >> target,
            r"len is no call: put @sky\.function above it, and call it: len\(\.\.\.\)",
        ),
        (lambda: many >> target, r"sky\.gather\(\*calls\) >> compute"),
        (
            lambda: image(pip="numpy"),
            r"image\.pip: 'numpy' is one text where a list belongs; write \['numpy'\]",
        ),
        (lambda: image(includes="data"), r"image\.includes: 'data'"),
        (lambda: compute(plugins="torch"), r"plugins: 'torch' is one text"),
        (lambda: anything.unknown, "no attribute 'unknown'"),
        (lambda: outgoing.prepare(many), r"sky\.gather\(\*calls\)"),
        (lambda: outgoing.prepare(builtin), "put @sky.function above"),
        (lambda: decorate(3), "and 3 is none"),
        (lambda: sky.function(staticmethod(len)), "next to the function"),
        (lambda: decorate(timeout=0)(len), "more than 0, not 0"),
        (lambda: decorate(timeout="3")(len), "not '3'"),
    ],
)
def test_what_is_typed_wrong_is_told_how_it_is_right(use: Any, said: str) -> None:
    with pytest.raises((TypeError, AttributeError, ValueError, errors.InvalidRequest), match=said):
        use()


# ── what cannot go along ────────────────────────────────────────────────────────────────────────


@dataclass
class Holder:
    """Holds anything."""

    held: Any


def test_the_argument_that_cannot_travel_is_named_with_the_way_to_it() -> None:
    wrong: Any = double
    cases: list[tuple[Any, str]] = [
        (LOCK, "number is a _thread.lock"),
        ({"a": [1, Holder(LOCK)]}, r"number\['a'\]\[1\]\.held is a _thread\.lock"),
        ((n for n in "ab"), "number is a generator, which cannot be pickled; make a list of it first"),
    ]
    for value, said in cases:
        with pytest.raises(PackError, match=said):
            outgoing.prepare(wrong(value))
    with (
        pytest.raises(
            PackError, match=r"plus\[0\] is an open file \('.*test_function\.py'\), .*; open it inside"
        ),
        open(__file__, encoding="utf-8") as file,
    ):
        outgoing.prepare(wrong(1, plus=[file]))


def test_what_a_function_reads_and_cannot_take_along_is_named() -> None:
    def uses() -> Any:
        return LOCK

    @sky.function
    def near() -> Any:
        return uses()

    with pytest.raises(PackError, match=r"LOCK, a global variable that uses\(\) uses, is a _thread\.lock"):
        outgoing.prepare(near())

    file = io.TextIOWrapper(io.BytesIO())

    @sky.function
    def reads(held: Any = LOCK) -> Any:
        return file

    with pytest.raises(PackError, match=r"file, which reads\(\) takes from around it, is an open file"):
        outgoing.prepare(reads())


def test_what_says_itself_that_it_stays_is_believed() -> None:
    class Stays:
        inside = LOCK

        def __reduce__(self) -> str:
            raise TypeError("this one stays here")

    wrong: Any = double
    with pytest.raises(PackError, match=r"number\[0\] is a .*Stays, .*this one stays here"):
        outgoing.prepare(wrong([Stays()]))


def test_a_huge_function_is_remarked_upon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "LARGE_FUNCTION_BYTES", 1000)
    noise = numpy.random.default_rng(1).random(1000)

    @sky.function
    def heavy() -> float:
        return float(noise[0])

    with pytest.warns(UserWarning, match=r"heavy\(\) is 0 MB .* better an argument"):
        outgoing.prepare(heavy())


# ── as it is now ────────────────────────────────────────────────────────────────────────────────

RATE = 1
RATES = {"a": [1]}


class Settings:
    """Read by a function."""

    rate = 1


HELD = Counter(1)
ARRAY = numpy.zeros(2)


def helper() -> Any:
    return RATE, RATES, Settings.rate, HELD.start, float(ARRAY[0])


@sky.function
def reads() -> Any:
    return helper()


def test_what_changes_between_two_calls_is_seen_by_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    here = sys.modules[__name__]
    before = sent(reads())
    monkeypatch.setattr(here, "RATE", 2)
    assert sent(reads()) == (2, *before[1:])
    monkeypatch.setitem(RATES, "a", [2])
    assert sent(reads())[1] == {"a": [2]}
    monkeypatch.setattr(Settings, "rate", 2)
    assert sent(reads())[2] == 2
    monkeypatch.setattr(HELD, "start", 2)
    assert sent(reads())[3] == 2
    ARRAY[0] = 2.0
    assert sent(reads())[4] == 2.0
    monkeypatch.setattr(here, "helper", lambda: "another")
    assert sent(reads()) == "another"


def test_a_module_that_is_edited_and_loaded_again_goes_along_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    source = tmp_path / "edited_module.py"
    source.write_text("VALUE = 1\ndef work():\n    return VALUE\n")
    module = importlib.import_module("edited_module")
    work: Any = sky.function(module.work)
    assert sent(work()) == 1
    source.write_text("VALUE = 22\ndef work():\n    return VALUE\n")
    importlib.reload(module)
    assert sent(work()) == 22, "it is another function that has the new code, but they read the same globals"
    monkeypatch.delitem(sys.modules, "edited_module")


def test_what_has_not_changed_is_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[str] = []
    real = outgoing.pack_function

    def counting(function: Any, name: str) -> Any:
        packed.append(name)
        return real(function, name)

    monkeypatch.setattr(outgoing, "pack_function", counting)
    factor = [2]

    @sky.function
    def times(number: int) -> int:
        return number * factor[0] + len(RATES)

    for number in range(5):
        outgoing.prepare(times(number))
    assert len(packed) == 1
    factor[0] = 3
    outgoing.prepare(times(1))
    assert len(packed) == 2

    array = numpy.zeros(2)

    @sky.function
    def opaque(number: int) -> float:
        return number + float(array[0])

    for number in range(5):
        outgoing.prepare(opaque(number))
    assert len(packed) == 7, "an array may have changed"
    same = opaque.as_it_is()
    first = outgoing.prepare(same(0)).function
    array[0] = 1
    assert outgoing.prepare(same(1)).function is first
    assert len(packed) == 8


# ── how far it is looked for changes ────────────────────────────────────────────────────────────


def _nested(levels: int) -> list[Any]:
    held: list[Any] = []
    for _ in range(levels):
        held = [held]
    return held


@pytest.mark.parametrize(
    "held",
    [list(range(100_000)), {n: n for n in range(100_000)}, [str(n) for n in range(100_000)], _nested(5_000)],
    ids=["numbers", "table", "texts", "levels"],
)
def test_what_reads_more_than_can_be_compared_is_not_taken_for_unchanged(held: Any) -> None:
    def reads() -> int:
        return len(held)

    look = standing.Look(reads)
    assert not look.sure
    assert not look.same(look)
    assert look.parts <= standing.PARTS_MAX + 1, "nor is all of it kept"
