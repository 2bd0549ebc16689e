"""Finds the part of a value that cannot be pickled, and says where in the value it is.

Decides: which way leads in: elements, attributes, and what a function reads from around it.
Never: changes the value; looks for longer than ``SEARCH_S``. Runs only after pickling has failed.
Follows: "x['a'].lock is a _thread.lock" where pickle says only "cannot pickle '_thread.lock' object".
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple, cast

from sky.kit.clock import SystemClock

PACK_ERROR = "sky.PackError"
"""What a node calls it when a call cannot be read there, or its result cannot be sent back."""
SEARCH_S = 3.0
DEPTH_MAX = 40
WIDTH_MAX = 10_000
"""So many parts of one value are tried at most."""
TEXT_CHARS_MAX = 60
_clock = SystemClock()


class Culprit(NamedTuple):
    """``place`` is how one would write the way to it, ``note`` whose variable that is."""

    place: str
    note: str
    thing: str
    advice: str

    def __str__(self) -> str:
        return f"{self.where}; {self.advice}"

    @property
    def where(self) -> str:
        """Without the advice."""
        return f"{self.place or 'it'}{self.note} is {self.thing}, which cannot be pickled"


class _Step(NamedTuple):
    """One way into a value: appended to the expression, or the beginning of a new one."""

    text: str
    value: Any
    note: str = ""


def find(value: Any, packs: Callable[[Any], bool], names: Mapping[int, str] | None = None) -> Culprit | None:
    """The innermost part of ``value`` that ``packs`` says no to; None when no part of it is alone to blame.

    ``names`` are what to call the elements of ``value`` where it is a tuple.
    """
    deadline_s = _clock.monotonic_s() + SEARCH_S
    place, note, seen = "", "", {id(value)}
    steps = _named(value, names) if names is not None else _steps(value)
    found: Any = None
    inside = False
    for _ in range(DEPTH_MAX):
        step = _first_bad(steps, packs, seen, deadline_s)
        if step is None:
            break
        inside, found = True, step.value
        seen.add(id(found))
        place = step.text if step.note or not place else place + step.text
        note = step.note or note
        if _has_its_own_way(found):
            break
        steps = _steps(found)
    if not inside:
        return Culprit("", "", describe(value), _advice(value)) if not _composed(value) else None
    return Culprit(place, note, describe(found), _advice(found))


def _first_bad(
    steps: Iterator[_Step], packs: Callable[[Any], bool], seen: set[int], deadline_s: float
) -> _Step | None:
    for count, step in enumerate(steps):
        if count >= WIDTH_MAX or _clock.monotonic_s() > deadline_s:
            return None
        if id(step.value) not in seen and not packs(step.value):
            return step
    return None


def _has_its_own_way(value: Any) -> bool:
    """Whether its class says how it is pickled: then that is to blame and nothing inside."""
    kind = cast("type[object]", type(value))
    return any(isinstance(getattr(kind, name), FunctionType) for name in ("__reduce__", "__reduce_ex__"))


def describe(value: Any) -> str:
    """What a value is, in a few words."""
    if isinstance(value, io.IOBase):
        name = getattr(value, "name", None)
        return f"an open file ({name!r})" if isinstance(name, str | int) else "an open file"
    kind = cast("type[object]", type(value))
    if isinstance(value, FunctionType | type):
        word = "class" if isinstance(value, type) else "function"
        return f"the {word} {cast('Any', value).__qualname__}"
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _advice(value: Any) -> str:
    if isinstance(value, io.IOBase):
        return "open it inside the function"
    if type(value).__name__ in ("generator", "async_generator", "coroutine", "map", "filter", "zip"):
        return "make a list of it first"
    return "make it inside the function, or leave it out (__getstate__ of its class)"


def _composed(value: Any) -> bool:
    return isinstance(value, dict | list | tuple | set | frozenset | FunctionType | type | functools.partial)


# ── the ways in ─────────────────────────────────────────────────────────────────────────────────


def _named(value: Any, names: Mapping[int, str]) -> Iterator[_Step]:
    for place, element in enumerate(value):
        yield _Step(names.get(place, f"argument {place + 1}"), element)


def _steps(value: Any) -> Iterator[_Step]:
    """The parts of a value, each with the text that leads to it."""
    if isinstance(value, dict):
        for key, element in list(cast("dict[Any, Any]", value).items()):
            yield _Step(f"[{_short(key)}]", element)
            yield _Step(f" (the key {_short(key)})", key)
    elif isinstance(value, list | tuple):
        for place, element in enumerate(cast("list[Any]", value)):
            yield _Step(f"[{place}]", element)
    elif isinstance(value, set | frozenset):
        for element in cast("set[Any]", value):
            yield _Step(" (an element)", element)
    elif isinstance(value, FunctionType):
        yield from _around(value)
    elif isinstance(value, MethodType):
        yield _Step(".__self__", value.__self__)
        yield _Step(".__func__", value.__func__)
    elif isinstance(value, functools.partial):
        partial = cast("functools.partial[Any]", value)
        yield _Step(".func", partial.func)
        yield _Step(".args", partial.args)
        yield _Step(".keywords", partial.keywords)
    elif isinstance(value, type):
        for name, member in list(vars(value).items()):
            yield _Step(f".{name}", getattr(member, "__func__", member))
    else:
        yield from _attributes(value)


def _around(function: FunctionType) -> Iterator[_Step]:
    """What a function reads: variables of the function around it, globals, defaults."""
    said = f"{function.__qualname__.rpartition('.')[2]}()"
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            value = cell.cell_contents
        except ValueError:
            continue
        yield _Step(name, value, f", which {said} takes from around it,")
    for name in sorted(_names(code)):
        if name in function.__globals__:
            yield _Step(name, function.__globals__[name], f", a global variable that {said} uses,")
    for name, value in (function.__kwdefaults__ or {}).items():
        yield _Step(name, value, f", a default of {said},")
    defaults = function.__defaults__ or ()
    positional = code.co_varnames[: code.co_argcount]
    for name, value in zip(positional[len(positional) - len(defaults) :], defaults, strict=True):
        yield _Step(name, value, f", a default of {said},")
    for name, value in vars(function).items():
        yield _Step(f"{said[:-2]}.{name}", value, " ")


def _names(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names(constant)
    return names


def _attributes(value: Any) -> Iterator[_Step]:
    state: Any = getattr(value, "__dict__", None)
    if isinstance(state, dict):
        for name, element in list(cast("dict[str, Any]", state).items()):
            yield _Step(f".{name}", element)
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name):
                yield _Step(f".{name}", getattr(value, name))


def _short(key: object) -> str:
    text = repr(key)
    return text if len(text) <= TEXT_CHARS_MAX else text[:TEXT_CHARS_MAX] + "…"
