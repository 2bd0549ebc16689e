"""``sky compute``: all its commands, from the modules that carry them out.

Decides: which modules those are. Never: does anything itself.
"""

from __future__ import annotations

from sky.cli import computes, generations, machines, sessions, view
from sky.cli.app import later, noun

__all__ = ["app", "computes", "generations", "machines", "sessions", "view"]

app = noun("compute")
later(
    app,
    "sky.cli.run:run_on",
    "Run a function of a Python file on this compute, as `sky run --compute` does.",
    "sky compute run dev train.py --epochs 10",
    "sky compute run dev train.py:train --all",
    name="run",
    instead=("call", "submit"),
)
