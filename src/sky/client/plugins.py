"""Plugins as their user names them: ``sky.plugins.Torch(...)``, and what they do in this process.

Decides: which plugins have a side here (those that put joblib on the compute), and when it is entered.
Never: imports a library that a plugin is about before a compute with that plugin is opened.
Follows: a plugin is given as its kind, as a ``sky.Plugin`` with parameters, or as one of the typed ones
below, and means the same.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sky.wire.plugins import Jax, Joblib, Sklearn, Torch

if TYPE_CHECKING:
    from sky.client.compute import Compute

__all__ = ["Jax", "Joblib", "Sklearn", "Torch"]

SPREADING = frozenset({Joblib.kind, Sklearn.kind})


def require(kinds: Iterable[str]) -> None:
    """Raises ModuleNotFoundError when this process lacks what a plugin needs here."""
    spreading = sorted(SPREADING.intersection(kinds))
    if spreading and importlib.util.find_spec("joblib") is None:
        raise ModuleNotFoundError(
            f"the plugin {spreading[0]!r} needs joblib here as well as on the nodes: pip install joblib",
            name="joblib",
        )


def entered(kinds: Iterable[str], compute: Compute) -> contextlib.ExitStack:
    """What plugins do in this thread until the stack is closed."""
    with contextlib.ExitStack() as stack:
        if SPREADING.intersection(kinds):
            from sky.client.joblib_backend import joblib_backend

            stack.enter_context(joblib_backend(compute))
        return stack.pop_all()
