"""Functions that a worker process knows, unpickled once each.

Decides: when a function is unpickled (at its first call) and what is said when that fails.
Never: fetches anything; the agent has put the payload into a file. Follows: how many are kept is the agent's
decision, which says ``Forget``; a call that is under way holds on to its function.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from sky.agent import payload, source, steps
from sky.agent.frames import Forget, Learn

FUNCTION_BYTES_MAX = 1024**3


class Function:
    """One function, by the file its payload is in."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._value: Any = None

    def load(self) -> Any:
        """The callable. Raises what unpickling raises, and TypeError when it is something else."""
        if self._value is None:
            with self._lock:
                if self._value is None:
                    value = steps.step_in(self._path) or payload.unpack_file(self._path, FUNCTION_BYTES_MAX)
                    if not callable(value):
                        raise TypeError(f"the payload is a {type(value).__name__} and not a function")
                    if not isinstance(value, steps.Step):
                        source.relabel(value)
                    self._value = value
        return self._value


class Functions:
    """The functions that calls may name now."""

    def __init__(self) -> None:
        self._known: dict[str, Function] = {}

    def learn(self, frame: Learn) -> None:
        """Calls will name this one."""
        self._known[frame.sha256] = Function(Path(frame.path))

    def forget(self, frame: Forget) -> None:
        """Calls will not name this one."""
        self._known.pop(frame.sha256, None)

    def get(self, sha256: str) -> Function:
        """Raises KeyError for one that was never learned, which the agent never does."""
        return self._known[sha256]
