"""One execution as this node holds it, from being accepted to its outcome.

Decides: nothing; it is where the parts that act on an execution keep what they know of it.
Never: outlives its outcome. Follows: where it is can be read off it: without a number it waits; with one it
was sent to a worker, whose board tells whether it has begun.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

from sky.wire.agent import WorkItem

Stop = Literal["cancelled", "timed_out"]


class Execution:
    """``seq``: its number at the worker it was sent to (0: not sent). ``stop``: it was asked to end, and
    why; ``stopping_since_s``: when its worker was told. ``tail``: the last upload on its way. ``loads``:
    how often a used worker could not load it.
    """

    __slots__ = (
        "args_path",
        "console_lines",
        "consumed",
        "ended",
        "function_path",
        "id",
        "item",
        "loads",
        "seq",
        "started_told",
        "stop",
        "stopping_since_s",
        "tail",
    )

    def __init__(self, item: WorkItem) -> None:
        self.id = item.execution
        self.item = item
        self.function_path: Path | None = None
        self.args_path: Path | None = None
        self.seq = 0
        self.loads = 0
        self.consumed = 0
        self.console_lines = 0
        self.started_told = False
        self.ended = False
        self.stop: Stop | None = None
        self.stopping_since_s: float | None = None
        self.tail: asyncio.Task[None] | None = None
