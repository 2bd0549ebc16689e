"""What a process died of, in words for the person whose call it ran."""

from __future__ import annotations

import signal


def cause(code: int, *, by_us: bool) -> str:
    """The end of a sentence that begins with the process; ``code`` as ``subprocess`` gives it."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if name == "SIGKILL" and not by_us:
        return "was killed by SIGKILL, probably because the machine ran out of memory"
    return f"was killed by {name}"
