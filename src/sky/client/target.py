"""What calls can be sent to, as the operators of calls see it.

Decides: the two kinds: one that waits for ends itself, and one whose answers are awaited (for event loops).
Never: sends anything. Follows: which kind a compute is decides the type of ``call >> compute``, so a type
checker knows whether to await it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

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


def require_target(target: AnyTarget) -> AnyTarget:
    """The target, or TypeError: calls go to a compute that is open."""
    if isinstance(target, type) or not hasattr(target, "call_one"):
        raise TypeError(f"calls are sent to an open sky.Compute, and {target!r} is none")
    return target
