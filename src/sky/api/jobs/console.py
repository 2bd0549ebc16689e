"""Keys and balances that a console keeps: asked about over HTTP, and believed for a minute at most.

Decides: whose a key is, as the console says; that its money is held there before a job is written. Never:
keeps a key, believes a refusal twice, or lets a job through when the console says nothing.
Follows: a key that was revoked there is refused here within a minute; a hold for which no job was written is
given back, at once or, after a crash, by the loop ``holds``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import NoReturn

from sky.api.selling import Balance, KeyHolder
from sky.console.bridge import Bridge, Unavailable
from sky.domain.account import Limits
from sky.domain.job_errors import JobRefused
from sky.domain.money import parse_usd
from sky.kit.clock import Clock
from sky.store.db import Database
from sky.store.rows import holds as rows
from sky.verbs import holds
from sky.verbs import jobs as verbs
from sky.verbs.accounts import KEY_PREFIX, hash_of
from sky.verbs.jobs import CONSOLE, Customer, Wanted
from sky.wire import console as wire

KEY_PREFIX_THERE = "sk-"
KEY_CHARS = range(8, 513)
BELIEVED_MAX = 10_000
"""How many keys are remembered; beyond that, the one that was asked about longest ago is not."""
AGAIN_S = 5
_REFUSED = {
    "account_disabled": "the user of this key is disabled; ask who gave you the key",
    "account_suspended": "the organisation of this key is suspended; ask who gave you the key",
}


class ConsoleKeys:
    """The keys and balances at a console. ``believed_s``: how long it is not asked again about a good key."""

    def __init__(
        self, bridge: Bridge, db: Database, clock: Clock, usual: Callable[[], Limits], believed_s: float
    ) -> None:
        self._bridge = bridge
        self._db = db
        self._clock = clock
        self._usual = usual
        self._believed_s = believed_s
        self._known: OrderedDict[str, tuple[float, KeyHolder]] = OrderedDict()

    async def holder(self, key: str | None) -> KeyHolder:
        """Whose key that is. Raises JobRefused."""
        if key is not None and key.startswith(KEY_PREFIX):
            raise JobRefused("invalid_key", f"keys that begin with {KEY_PREFIX} are not known here")
        if key is None or not key.startswith(KEY_PREFIX_THERE) or len(key) not in KEY_CHARS:
            raise JobRefused("missing_key", "send your key as 'Authorization: Bearer sk-...'")
        digest = hash_of(key)
        asked_s = self._clock.monotonic_s()
        until_s, known = self._known.get(digest, (0.0, None))
        if known is not None and asked_s < until_s:
            return known
        self._known.pop(digest, None)
        try:
            answer = await self._bridge.verify(key)
        except Unavailable as error:
            _not_decided("the key could not be verified", error)
        if answer.status in _REFUSED:
            raise JobRefused(answer.status, _REFUSED[answer.status])
        if answer.status == "invalid":
            raise JobRefused("invalid_key", "this key is unknown, disabled or expired; make another one")
        if answer.owner is None or answer.key is None:
            msg = "the console knows this key and not whose it is; nothing was done: tell your seller"
            raise JobRefused("owner_unresolved", msg)
        found = KeyHolder(
            Customer(f"{holds.PREFIX}{answer.owner}", answer.key, CONSOLE, None, self._usual()),
            frozenset(answer.scopes) | ({"read"} if "jobs" in answer.scopes else frozenset[str]()),
        )
        self._known[digest] = (asked_s + self._believed_s, found)
        while len(self._known) > BELIEVED_MAX:
            self._known.popitem(last=False)
        return found

    @asynccontextmanager
    async def held(self, customer: Customer, wanted: Wanted) -> AsyncGenerator[str | None]:
        """The money of a job, held while its row is written; gives the id that the job must have."""
        owner, amount_micro = customer.owner, wanted.hold_micro
        job_id = await self._db.write(lambda tx: holds.order(tx, owner, amount_micro))
        try:
            try:
                answer = await self._bridge.hold(job_id, owner.removeprefix(holds.PREFIX), amount_micro)
            except Unavailable as error:
                _not_decided("the money could not be held", error)
            if answer.status != "held":
                _refuse(answer, wanted)
            yield job_id
        finally:
            # Nothing is left of an order that was taken. What was held and not used is given back; so is what
            # nobody can say whether it was held.
            if await self._db.read(lambda c: rows.find(c, job_id)) is not None:
                await self._db.write(lambda tx: holds.give_up(tx, job_id))

    async def balance(self, customer: Customer) -> Balance:
        """What the console says that a customer has."""
        try:
            answer = await self._bridge.balance(customer.owner.removeprefix(holds.PREFIX))
        except Unavailable as error:
            _not_decided("the balance could not be read", error)
        return Balance(parse_usd(answer.available_usd), parse_usd(answer.held_usd))


def _refuse(answer: wire.HoldAnswer, wanted: Wanted) -> NoReturn:
    if answer.status in _REFUSED:
        raise JobRefused(answer.status, _REFUSED[answer.status])
    if answer.status == "over":
        msg = "the console says that this hold, which is new, is over; nothing was submitted: submit again"
        raise JobRefused("placement_failed", msg)
    raise verbs.short_of(wanted, None if answer.balance_usd is None else parse_usd(answer.balance_usd))


def _not_decided(what: str, error: Unavailable) -> NoReturn:
    msg = f"{what}, for the console does not answer ({error}); nothing was done: try again"
    raise JobRefused("console_unavailable", msg, after_s=AGAIN_S) from error
