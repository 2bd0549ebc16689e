"""The way in: ``python -m sky.server.main --home FOLDER`` runs a daemon.

Decides: that nothing is looked through for garbage while the parts are loaded: what they make stays, and
looking costs an eighth of a start. Never: anything else; ``daemon`` runs it.
Follows: this file imports nothing before that; the daemon turns the looking on again when it serves.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to stop; returns the exit code (0 stopped, 2 wrong settings, 3 cannot start)."""
    gc.disable()
    from sky.server import daemon

    return daemon.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
