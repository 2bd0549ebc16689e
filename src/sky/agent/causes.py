"""What a process died of, in words for the person whose call it ran."""

from __future__ import annotations

import signal

TERMINATED = "was told to end by a SIGTERM that its node did not send"
TERMINATED_CODE = 143
"""What a worker with threads exits with when it was told to end: 128 and the number of SIGTERM."""


def cause(code: int, *, by_us: bool) -> str:
    """The end of a sentence that begins with the process; ``code`` as ``subprocess`` gives it."""
    if code == TERMINATED_CODE and not by_us:
        return TERMINATED
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if name == "SIGKILL" and not by_us:
        return "was killed by SIGKILL, probably because the machine ran out of memory"
    return f"was killed by {name}"
