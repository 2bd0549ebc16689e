"""``@sky.app``: a function together with the compute it runs on, for ``sky run file.py``.

Decides: what such a declaration holds. Never: parses a command line (the command does), or opens anything
before it is run. Follows: the same file works as a script: ``main.run(10)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast

from sky.client.compute import Compute
from sky.client.function import Function
from sky.client.outermost import outermost_class

P = ParamSpec("P")
R = TypeVar("R")


@outermost_class
class App(Generic[P, R]):
    """A function and its compute. ``run`` opens the compute, calls the function there and leaves."""

    def __init__(self, function: Function[P, R], parameters: dict[str, Any]) -> None:
        self.function = function
        self.parameters = parameters

    def compute(self, **changed: Any) -> Compute:
        """A compute as declared, not yet open; keyword arguments take the place of declared ones."""
        return Compute(**{**self.parameters, **changed})

    def run(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Open the compute, run the function on it with these arguments, and leave it."""
        with self.compute() as compute:
            return self.function(*args, **kwargs) >> compute

    def local(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here, without any compute."""
        return self.function.local(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<sky.app {self.function.name}>"


class Declaration(Protocol):
    """What ``sky.app(...)`` gives: a decorator."""

    def __call__(self, function: Callable[P, R] | Function[P, R], /) -> App[P, R]: ...


def app(**parameters: Any) -> Declaration:
    """Declare the compute of a function: takes what ``sky.Compute`` takes.

    ``@sky.app(nodes=2)`` above a function makes it runnable with ``sky run file.py --its-parameter value``.
    """

    def declare(function: Callable[P, R] | Function[P, R], /) -> App[P, R]:
        if isinstance(function, Function):
            return App(cast("Function[P, R]", function), parameters)
        return App(Function[P, R](function), parameters)

    return declare
