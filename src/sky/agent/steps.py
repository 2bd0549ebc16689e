"""The steps of a paid job, done in a worker: pull, run, upload.

Decides: which step a function names, and that a step answers in JSON. Never: raises for what the customer
must be told: that is part of the answer. Follows: a step is a call like any other, so it is cancelled,
timed and logged like one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from sky.agent import job_command
from sky.agent.payload import Packed
from sky.wire import steps as wire


class Step:
    """A step, by its name, as the thing to be called."""

    def __init__(self, name: str) -> None:
        """Raises TypeError for a name that is no step's."""
        if name not in _STEPS:
            raise TypeError(f"there is no step {name[:40]!r}; this agent is older than its daemon")
        self._do = _STEPS[name]

    def __call__(self, *_: Any) -> Any:
        raise TypeError("a step is run with the arguments as they arrived")

    def run(self, content: bytes | None, path: str | None) -> Packed:
        """Do it; returns its answer as a payload."""
        given = content if content is not None else Path(path or "").read_bytes()
        answer = wire.packed(self._do(msgspec.json.decode(given, type=wire.Order)))
        return Packed(answer)


def step_in(path: Path) -> Step | None:
    """The step that the content of a function names; None when it is a function that was pickled."""
    with path.open("rb") as file:
        head = file.read(len(wire.MAGIC) + 64)
    name = wire.named(head)
    return None if name is None else Step(name)


_STEPS: dict[str, Callable[[wire.Order], wire.Outcome]] = {
    "prepare": job_command.prepare,
    "run": job_command.run,
    "upload": job_command.upload,
}
