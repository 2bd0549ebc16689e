"""How long to wait after the n-th failure in a row.

Decides: one formula for every loop. Never: waits itself. Follows: a poisoned row costs one pass a minute.
"""

from __future__ import annotations

FIRST_S = 0.5
LONGEST_S = 60.0


def delay_s(failures: int, *, first_s: float = FIRST_S, longest_s: float = LONGEST_S) -> float:
    """Seconds before the next try: doubling from ``first_s``, never above ``longest_s``."""
    if failures <= 0:
        return 0.0
    return min(longest_s, first_s * 2.0 ** min(failures - 1, 30))
