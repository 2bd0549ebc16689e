"""Places where the process may die, so that a test can make it die there.

Decides: nothing in production, where ``point`` only counts. Never: raises unless a test armed it.
Follows: every commit and every outside effect passes through a named point; ``tests/flows`` dies at each.
"""

from __future__ import annotations

from collections.abc import Callable


class Died(BaseException):
    """The process died here. Not an ``Exception``: nothing may catch it and go on."""


class _State:
    __slots__ = ("budget", "names", "passed", "watcher")

    def __init__(self) -> None:
        self.budget: int | None = None
        self.passed = 0
        self.names: list[str] | None = None
        self.watcher: Callable[[str], None] | None = None


_state = _State()


def arm(budget: int) -> None:
    """Die at the point that is passed after ``budget`` others; counting starts anew."""
    _state.budget, _state.passed, _state.names = budget, 0, None


def record() -> None:
    """Die nowhere, but remember the names of the points that are passed."""
    _state.budget, _state.passed, _state.names = None, 0, []


def disarm() -> tuple[str, ...]:
    """Stop; returns the names remembered since ``record``."""
    names = tuple(_state.names or ())
    _state.budget, _state.names = None, None
    return names


def watch(watcher: Callable[[str], None] | None) -> None:
    """Let ``watcher`` decide, at every point and by its name, what happens there; None: nobody."""
    _state.watcher = watcher


def point(name: str) -> None:
    """The process may die right here."""
    if _state.watcher is not None:
        _state.watcher(name)
    if _state.names is not None:
        _state.names.append(name)
    if _state.budget is None:
        return
    if _state.budget == 0:
        _state.budget = None
        raise Died(name)
    _state.budget -= 1
