"""For how long is kept what is over, or what nothing names.

Decides: those times. Never: removes anything. Follows: None is for ever; whatever something that is there
names is there too, whatever its age.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

DAY_US: Final = 24 * 3600 * 1_000_000
FRESH_US: Final = 3600 * 1_000_000
"""Content that was used so lately need not be noted as used again."""
UNWRITTEN_US: Final = 2400 * 1_000_000
"""How long after it was put into a bucket content may get its row. It is fresh for longer, by more than a
bucket's clock may be off: none is removed that a row is about to name."""
UNNAMED_US_MIN: Final = 2 * FRESH_US
"""Content is never removed sooner: whoever has brought it is about to name it."""


class Keeping(Struct, frozen=True):
    """In microseconds. ``ended_us``: deleted computes and removed clusters, with all that was theirs;
    ``calls_us``: calls that are over, of computes that are there; ``requests_us``: requests that are over;
    ``deliveries_us``: what became of messages to webhooks; ``unnamed_us``: functions and content that
    nothing names."""

    ended_us: int | None = 365 * DAY_US
    calls_us: int | None = None
    requests_us: int = 30 * DAY_US
    deliveries_us: int = 30 * DAY_US
    unnamed_us: int = 7 * DAY_US


USUAL: Final = Keeping()
"""What holds where the operator says nothing."""
