"""What a history is mostly about: some things must go wrong together, and by chance seldom do.

Decides: which acts are frequent, how long the pauses are, what the world is like. Never: what an act does.
Follows: a profile is drawn with the seed; a plain history has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PAUSES_S = (0.0, 0.0, 0.1, 0.1, 0.1, 1.0, 1.0, 5.0, 5.0, 20.0, 20.0, 80.0)
ROUGH_PAUSES_S = (0.1, 1.0, 5.0, 20.0, 20.0, 40.0, 80.0)
LONG_PAUSES_S = (1.0, 5.0, 13.0, 20.0, 40.0, 80.0)


@dataclass(frozen=True, slots=True)
class Profile:
    """``weights``: how often an act is chosen, where that is not as usual; ``leases_s`` of the computes,
    and ``end_s``, how long a machine takes to end, are drawn from. None: as usual."""

    weights: Mapping[str, int] = field(default_factory=dict[str, int])
    pauses_s: tuple[float, ...] | None = None
    leases_s: tuple[int, ...] = (60, 600)
    end_s: float | None = None
    sets_clock: bool | None = None


PROFILES: dict[str, Profile] = {
    "plain": Profile(),
    "partitions": Profile(
        weights={
            "an agent is cut off": 12,
            "an agent is back": 2,
            "a machine that is cut off is taken": 6,
            "a daemon dies": 1,
            "a daemon is about to die": 1,
            "delete": 0,
            "a machine is taken": 0,
        },
        pauses_s=LONG_PAUSES_S,
        leases_s=(60,),
    ),
    "deletions": Profile(
        weights={
            "call": 20,
            "a node that is cut off is deleted": 20,
            "an agent does not stop its work": 4,
            "cancel": 10,
            "delete": 0,
            "a machine is taken": 0,
        },
        pauses_s=ROUGH_PAUSES_S,
        end_s=60.0,
    ),
    "outages": Profile(
        weights={
            "every daemon is away, and a machine goes": 12,
            "job": 12,
            "a machine is taken": 0,
            "a daemon dies": 1,
            "a daemon is about to die": 1,
        },
        pauses_s=ROUGH_PAUSES_S,
    ),
    "clock": Profile(
        weights={"the clock is set": 8, "a daemon dies": 5},
        pauses_s=ROUGH_PAUSES_S,
        sets_clock=True,
    ),
}
DRAWN = ("plain",) * 4 + ("partitions", "deletions", "outages", "clock")
