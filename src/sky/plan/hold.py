"""What a console is to be told of a job's hold next.

Decides: when a hold is given up that no job came of, when more is asked for, and when it is settled.
Never: speaks to anybody. Follows: of a hold that was ordered and whose job was not written, nothing is left;
the end of a job goes before everything else.
"""

from __future__ import annotations

from msgspec import Struct

from sky.domain import job as j
from sky.domain.hold import HoldView
from sky.plan.decision import Decision


class GiveUp(Struct, frozen=True):
    """Note that a hold is not to stand, so that no job is written for it any more."""


class Release(Struct, frozen=True):
    """Have a hold returned whole."""


class Extend(Struct, frozen=True):
    """Have more held."""

    ordinal: int
    amount_micro: int


class Settle(Struct, frozen=True):
    """Have a hold charged, and the rest of it returned."""

    charge_micro: int


Action = GiveUp | Release | Extend | Settle


def plan(view: HoldView, now_us: int, *, orphan_us: int) -> Decision[Action]:
    """The next thing to tell the console: at most one. ``orphan_us``: how long after its order a hold may
    wait for its job, longer than a submit takes."""
    noted = view.noted
    if view.job_state is None:
        if noted is None:
            return Decision((), None, "there is no such hold")
        if noted.leaving:
            return Decision((Release(),), None, "no job came of it")
        due_us = noted.noted_us + orphan_us
        if now_us < due_us:
            return Decision((), due_us, "its job is about to be written")
        return Decision((GiveUp(),), now_us, "its job was never written")
    if view.job_state in j.TERMINAL:
        if view.settled or view.charge_micro is None:
            return Decision((), None, "it is settled")
        return Decision((Settle(view.charge_micro),), None, "its job is over")
    if noted is not None:
        return Decision((Extend(noted.ordinal, noted.amount_micro),), None, "its job runs on")
    return Decision((), None, "it stands")
