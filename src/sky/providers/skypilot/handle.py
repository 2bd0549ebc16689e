"""What SkyPilot knows of a cluster and tells only as a pickle: its zone, its type, its addresses.

Decides: which values are looked for. Never: runs or imports anything that a pickle names: its instructions
are read one by one, and every object becomes a mapping of what it holds. Follows: a pickle of another form
tells nothing, and a machine has some facts less.
"""

from __future__ import annotations

import base64
import binascii
import pickletools
from dataclasses import dataclass
from typing import Any, Final, cast

from sky.providers.skypilot.shape import Item, every, mapping, text

CHARS_MAX = 4 << 20
STEPS_MAX = 200_000
_MARK: Final = object()
_EMPTY: Final = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": list, "EMPTY_SET": list}
_TUPLES: Final = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_CONSTANTS: Final = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_PASSED_OVER: Final = frozenset({"PROTO", "FRAME", "STOP"})
_PUTS: Final = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
_GETS: Final = frozenset({"GET", "BINGET", "LONG_BINGET"})


@dataclass(frozen=True, slots=True)
class Handle:
    """The facts of a cluster's first node."""

    zone: str | None = None
    instance_type: str | None = None
    spot: bool | None = None
    inside: str | None = None
    outside: str | None = None


def read(encoded: object) -> Handle:
    """The facts in a handle as the server sends it."""
    if not isinstance(encoded, str) or len(encoded) > CHARS_MAX:
        return Handle()
    try:
        whole = mapping(_Reader().value(base64.b64decode(encoded, validate=True)))
    except (binascii.Error, ValueError, IndexError, KeyError, TypeError, RecursionError):
        return Handle()
    resources = mapping(whole.get("launched_resources"))
    spot = resources.get("_use_spot")
    first = [*every(next(iter(every(whole.get("stable_internal_external_ips"))), ())), None, None]
    return Handle(
        zone=text(resources.get("_zone")),
        instance_type=text(resources.get("_instance_type")),
        spot=spot if isinstance(spot, bool) else None,
        inside=text(first[0]),
        outside=text(first[1]),
    )


class _Reader:
    """A stack and a memory, as a pickle's instructions use them; no class and no function is ever called."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memory: dict[int, Any] = {}

    def value(self, data: bytes) -> object:
        for steps, (code, argument, _) in enumerate(pickletools.genops(data)):
            if steps > STEPS_MAX:
                raise ValueError("it is too long")
            self._step(code.name, argument)
        return self._stack[-1]

    def _step(self, name: str, argument: Any) -> None:
        if name in _PASSED_OVER:
            return
        if name in _GETS:
            self._stack.append(self._memory[int(argument)])
        elif name in _PUTS or name == "MEMOIZE":
            self._memory[len(self._memory) if argument is None else int(argument)] = self._stack[-1]
        elif name in _EMPTY:
            self._stack.append(_EMPTY[name]())
        elif name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name])
        elif name == "MARK":
            self._stack.append(_MARK)
        elif argument is not None and name != "GLOBAL":
            self._stack.append(argument)  # a text, a number, or bytes
        else:
            self._made(name)

    def _made(self, name: str) -> None:
        """Instructions that make a thing of others."""
        if name in ("TUPLE", "LIST", "FROZENSET"):
            self._stack.append(self._marked())
        elif name in _TUPLES:
            self._stack[-_TUPLES[name] :] = [self._stack[-_TUPLES[name] :]]
        elif name == "DICT":
            _fill(made := dict[str, Any](), self._marked())
            self._stack.append(made)
        elif name in ("SETITEM", "SETITEMS"):
            pairs = self._marked() if name == "SETITEMS" else self._taken(2)
            _fill(self._stack[-1], pairs)
        elif name in ("APPEND", "APPENDS", "ADDITEMS"):
            more = self._taken(1) if name == "APPEND" else self._marked()
            if isinstance(self._stack[-1], list):
                cast("list[Any]", self._stack[-1]).extend(more)
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            self._taken(2 if name == "STACK_GLOBAL" else 0)
            self._stack.append({})
        elif name in ("REDUCE", "NEWOBJ", "NEWOBJ_EX"):
            self._taken(3 if name == "NEWOBJ_EX" else 2)
            self._stack.append({})
        elif name == "BUILD":
            self._build(self._taken(1)[0])
        elif name == "POP":
            self._taken(1)
        elif name == "POP_MARK":
            self._marked()
        else:
            raise ValueError(f"the instruction {name} is not known here")

    def _build(self, state: object) -> None:
        """What an object holds; where it has slots too, its state is a pair."""
        parts = every(state) or [state]
        if isinstance(self._stack[-1], dict):
            for part in parts:
                cast("Item", self._stack[-1]).update(mapping(part))

    def _marked(self) -> list[Any]:
        at = len(self._stack) - 1
        while self._stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise ValueError("it takes more than there is")
        taken = self._stack[at + 1 :]
        del self._stack[at:]
        return taken

    def _taken(self, count: int) -> list[Any]:
        if count > len(self._stack):
            raise ValueError("it takes more than there is")
        taken = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        return taken


def _fill(into: object, pairs: list[Any]) -> None:
    """Keys and values by turns. A key that is no text is looked for by nobody."""
    if isinstance(into, dict):
        known = cast("dict[str, Any]", into)
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if isinstance(key, str):
                known[key] = value
