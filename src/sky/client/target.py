"""What calls can be sent to, as the operators of calls see it.

Decides: the two kinds: one that waits for ends itself, and one whose answers are awaited (for event loops).
Never: sends anything. Follows: which kind a compute is decides the type of ``call >> compute``, so a type
checker knows whether to await it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from sky.client.outermost import misuse, outermost

if TYPE_CHECKING:
    from sky.client.function import Pending, Settled
    from sky.client.handles import Future

R = TypeVar("R")
AnyTarget = TypeVar("AnyTarget", bound="Target | AsyncTarget")


class Target(Protocol):
    """What calls can be sent to: a ``sky.Compute``."""

    @property
    def awaits(self) -> Literal[False]:
        """It waits itself."""
        ...

    def call_one(self, call: Pending[R]) -> Settled[R]:
        """Run a call on one node and wait."""
        ...

    def call_all(self, call: Pending[R]) -> Settled[list[R]]:
        """Run a call on every node and wait; results by rank."""
        ...

    def submit(self, call: Pending[R]) -> Future[R]:
        """Send a call and go on."""
        ...

    def collect(self, calls: tuple[Pending[Any], ...]) -> Settled[tuple[Any, ...]]:
        """Run calls side by side and wait for all."""
        ...

    def collect_later(self, calls: tuple[Pending[Any], ...]) -> Future[Any]:
        """Send calls side by side and go on: a future of the tuple of their results."""
        ...


class AsyncTarget(Protocol):
    """What calls can be sent to without waiting: the compute of an ``async with`` block."""

    @property
    def awaits(self) -> Literal[True]:
        """Its answers are awaited."""
        ...

    def call_one(self, call: Pending[R]) -> Future[R]:
        """Have a call run on one node."""
        ...

    def call_all(self, call: Pending[R]) -> Future[list[R]]:
        """Have a call run on every node; results by rank."""
        ...

    def submit(self, call: Pending[R]) -> Future[R]:
        """Send a call."""
        ...

    def collect(self, calls: tuple[Pending[Any], ...]) -> Future[Any]:
        """Have calls run side by side."""
        ...

    def collect_later(self, calls: tuple[Pending[Any], ...]) -> Future[Any]:
        """The same."""
        ...


class CallsOnly:
    """What the operators say when something that is no call stands on their left."""

    if not TYPE_CHECKING:
        # For people: a checker of types says the same in its own words.
        __array_ufunc__ = None
        """An array on the left is not taken for many calls, one per element."""

        @outermost
        def __rrshift__(self, other: object) -> Any:
            raise misuse(_no_call(other))

        @outermost
        def __rmatmul__(self, other: object) -> Any:
            raise misuse(_no_call(other))

        @outermost
        def __lt__(self, other: object) -> Any:
            raise misuse(_no_call(other))


def _no_call(other: object) -> TypeError:
    if callable(other):
        name = getattr(other, "__name__", type(other).__name__)
        return TypeError(
            f"{name} is no call: put @sky.function above it, and call it: {name}(...) >> compute"
        )
    if isinstance(other, list | tuple):
        return TypeError("several calls are sent with sky.gather(*calls) >> compute")
    return TypeError(
        f"on the left stands no call but a value of type {type(other).__name__}, as a function without "
        "@sky.function returns it: it ran here. Put @sky.function above the function"
    )


def require_target(target: AnyTarget) -> AnyTarget:
    """The target, or TypeError: calls go to a compute that is open."""
    if isinstance(target, type) or not hasattr(target, "call_one"):
        raise misuse(TypeError(f"calls are sent to an open sky.Compute, and {target!r} is none"))
    return target
