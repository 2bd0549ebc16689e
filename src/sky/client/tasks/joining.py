"""The graph that is being made in this thread, which new tasks join.

Decides: nothing but which one is innermost. Never: knows what a task or a graph is.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol


class Graph(Protocol):
    """What tasks join."""

    def add(self, task: Any) -> None: ...

    def add_edge(self, op1: Any, op2: Any) -> None: ...


class _Open(threading.local):
    def __init__(self) -> None:
        self.graphs: list[Graph] = []


_open = _Open()


def enter(graph: Graph) -> None:
    """From now on tasks join this one."""
    _open.graphs.append(graph)


def leave(graph: Graph) -> None:
    """Tasks join it no longer."""
    _open.graphs.remove(graph)


def current() -> Graph | None:
    """The innermost one."""
    return _open.graphs[-1] if _open.graphs else None
