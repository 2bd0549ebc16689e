"""Whether a function is still what it was when it was packed, found without packing it again.

Decides: what a function reads from around it, as far as that can be compared by identity.
Never: guesses: what may change inside without being another object (an array, a foreign object) makes the
answer no, and the function is packed again.
Follows: a variable set between two calls is what the second one sees; a thousand calls of a function that
reads names, numbers, functions and plain containers cost one packing.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, ItemsView, Iterable
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast

from sky.client import along
from sky.client.function import Function

PARTS_MAX = 2_000
"""A function that reads more than this is packed anew each time."""
_PLAIN = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), range, BuiltinFunctionType)
_CONTAINERS = (list, tuple, set, frozenset)


class Look:
    """All that a function reads at one moment. ``sure``: no part can change and stay the same object."""

    __slots__ = ("_parts", "_seen", "sure")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._parts: list[object] = []
        self._seen: set[int] = set()
        self.sure = True
        try:
            self._take(function)
        except RecursionError:
            self.sure = False  # Deeper than can be followed, so there is no telling.

    @property
    def parts(self) -> int:
        """How much is kept of it, to be compared with."""
        return len(self._parts)

    def same(self, earlier: Look) -> bool:
        """Whether nothing has changed since an earlier look, for certain."""
        mine, theirs = self._parts, earlier._parts
        if not (self.sure and earlier.sure and len(mine) == len(theirs)):
            return False
        return all(one is other for one, other in zip(mine, theirs, strict=True))

    def _take(self, value: Any) -> None:
        if not self.sure:
            return
        self._parts.append(value)
        if len(self._parts) > PARTS_MAX:
            self.sure = False
            return
        if type(value) in _PLAIN or id(value) in self._seen:
            return
        self._seen.add(id(value))
        if isinstance(value, FunctionType):
            self._take_function(value)
        elif isinstance(value, MethodType):
            self._take(value.__func__)
            self._take(value.__self__)
        elif isinstance(value, Function):
            self._take(cast("Function[..., Any]", value).function)
        elif isinstance(value, ModuleType):
            if not along.is_installed(value):
                self._take_all(vars(value))
        elif isinstance(value, type):
            if not _of_installed(value):
                self._take_all(vars(value))
        elif type(value) in _CONTAINERS:
            for element in itertools.islice(cast("Iterable[Any]", value), PARTS_MAX + 1):
                self._take(element)
        elif type(value) is dict:
            self._take_all(cast("dict[Any, Any]", value))
        elif isinstance(value, property | staticmethod | classmethod):
            self._take_descriptor(value)
        else:
            self._take_instance(value)

    def _take_all(self, held: Any) -> None:
        for name, value in list(itertools.islice(cast("ItemsView[str, Any]", held.items()), PARTS_MAX + 1)):
            if name not in ("__builtins__", "__dict__", "__weakref__", "__loader__", "__spec__"):
                self._take(name)
                self._take(value)

    def _take_function(self, function: FunctionType) -> None:
        if _of_installed(function):
            return
        self._take(function.__defaults__)
        self._take(function.__kwdefaults__)
        self._parts.append(function.__code__)
        if vars(function):
            self._take_all(vars(function))
        for cell in function.__closure__ or ():
            try:
                self._take(cell.cell_contents)
            except ValueError:
                self._parts.append(cell)
        known = function.__globals__
        for name in names_in(function.__code__):
            if name in known:
                self._take(known[name])

    def _take_descriptor(self, value: Any) -> None:
        parts = (value.fget, value.fset, value.fdel) if isinstance(value, property) else (value.__func__,)
        for part in parts:
            self._take(part)

    def _take_instance(self, value: Any) -> None:
        kinds = [kind for kind in type(value).__mro__ if kind is not object]
        state = getattr(value, "__dict__", None)
        hidden = any(_of_installed(kind) or "__slots__" in vars(kind) for kind in kinds)
        if hidden or not isinstance(state, dict):
            # Whatever it holds may be out of sight.
            self.sure = False
            return
        self._take(type(value))
        self._take_all(cast("dict[str, Any]", state))


def names_in(code: CodeType) -> list[str]:
    """The global names that code and what is nested in it mention."""
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names += names_in(constant)
    return names


def _of_installed(value: Any) -> bool:
    """Whether a class or function is one that travels by name."""
    name: object = getattr(value, "__module__", None)
    module = sys.modules.get(name) if isinstance(name, str) else None
    return module is not None and name != "__main__" and along.is_installed(module)
