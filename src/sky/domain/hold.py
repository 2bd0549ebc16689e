"""A hold that a console keeps for a job of ours: what is noted here of it while it is not certain.

Decides: what a plan reads of it. Never: what it is worth (``ledger`` mirrors what the console has said).
Follows: an order to a console is noted before it is given, so that a crash between the two is repaired.
"""

from __future__ import annotations

from msgspec import Struct


def extension_name(job_id: str, ordinal: int) -> str:
    """Under which name an extension of a job's hold counts once."""
    return f"{job_id}:{ordinal}"


class Noted(Struct, frozen=True):
    """An order that was or is to be given: the first hold of a job is ordinal 1. ``leaving``: it is not to
    stand, whatever became of it."""

    ordinal: int
    amount_micro: int
    noted_us: int
    leaving: bool


class HoldView(Struct, frozen=True):
    """What is noted of one job's hold. ``job_state`` None: no job was written; ``charge_micro``: what it
    costs in the end, None before; ``finished_us``: when it ended."""

    job_id: str
    job_state: str | None
    settled: bool
    charge_micro: int | None
    finished_us: int | None
    noted: Noted | None
