"""The way in: ``python -m sky.server.main --home FOLDER`` runs a daemon.

Decides: that nothing is looked through for garbage while the parts are loaded: what they make stays, and
looking costs an eighth of a start; and that what paints tracebacks on terminals is not loaded, which the log
never does and is a fifteenth. Never: anything else; ``daemon`` runs it.
Follows: this file imports nothing before that; the daemon turns the looking on again when it serves.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import cast


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to stop; returns the exit code (0 stopped, 2 wrong settings, 3 cannot start)."""
    gc.disable()
    with _without("rich"):
        from sky.server import daemon

    return daemon.main(arguments)


@contextmanager
def _without(name: str) -> Generator[None]:
    """Who imports a package that they can do without does, meanwhile; afterwards it can be had again."""
    if name in sys.modules:
        yield
        return
    modules = cast("dict[str, object]", sys.modules)
    modules[name] = None  # it is not to be imported
    try:
        yield
    finally:
        del modules[name]


if __name__ == "__main__":
    sys.exit(main())
