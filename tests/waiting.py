"""Waiting for what another process does.

Decides: how often is looked, and that a wait which ends says for what. Never: waits for time to pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LOOK_S = 0.05


def until(done: Callable[[], T], what: str, within_s: float) -> T:
    """Look until it holds; returns what it gave."""
    deadline = time.monotonic() + within_s
    while not (value := done()):
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(LOOK_S)
    return value
