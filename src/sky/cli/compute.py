"""``sky compute``: all its commands, from the modules that carry them out.

Decides: which modules those are. Never: does anything itself.
"""

from __future__ import annotations

from sky.cli import computes, machines, run, sessions, view
from sky.cli.app import noun

__all__ = ["app", "computes", "machines", "run", "sessions", "view"]

app = noun("compute")
