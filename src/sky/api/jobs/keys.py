"""Keys of our own: ``uck_`` and forty characters, looked up at each request.

Decides: whose a key is. Never: keeps one. Follows: a key that was revoked is refused at the next request; a
text of another shape costs no look-up.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from sky.api.selling import Balance, KeyHolder, limits_of
from sky.domain import account as a
from sky.domain.account import Limits
from sky.domain.budget import ACCOUNT, KEY, Budget, budgets
from sky.domain.job_errors import JobRefused
from sky.kit.clock import Clock
from sky.store.db import Database
from sky.store.rows import accounts, ledger
from sky.verbs.accounts import hash_of, is_key
from sky.verbs.jobs import LOCAL, Customer, Wanted

DARK_PREFIX = "sk-"
DARK_CHARS_MIN = 8


class LocalKeys:
    """The keys in our own database."""

    def __init__(self, db: Database, clock: Clock, usual: Callable[[], Limits]) -> None:
        self._db = db
        self._clock = clock
        self._usual = usual

    async def holder(self, key: str | None) -> KeyHolder:
        """Whose key that is."""
        if key is None or not is_key(key):
            msg = "send your key as 'Authorization: Bearer uck_...'"
            raise JobRefused("missing_key", msg)
        digest = hash_of(key)
        row = await self._db.read(lambda c: accounts.key_by_hash(c, digest))
        if row is None or not hmac.compare_digest(row["sha256"], digest):
            raise JobRefused("invalid_key", "this key is not known; ask the operator for another one")
        if row["revoked_us"] is not None:
            raise JobRefused("invalid_key", "this key was revoked; make or ask for another one")
        if row["expires_us"] is not None and row["expires_us"] <= self._clock.now_us():
            raise JobRefused("invalid_key", "this key has expired; make or ask for another one")
        if row["account_state"] is None:
            msg = "the account of this key is gone; nothing was done: tell your seller"
            raise JobRefused("owner_unresolved", msg)
        return holder_of(row, self._usual())

    def held(self, customer: Customer, wanted: Wanted) -> AbstractAsyncContextManager[str | None]:
        """Nothing: the money is held in the transaction that writes the job."""
        del customer, wanted
        return nullcontext()

    async def balance(self, customer: Customer) -> Balance:
        """What the ledger says."""
        account_id = customer.account_id or ""
        return Balance(*await self._db.read(lambda c: ledger.balances(c, account_id)))


def holder_of(row: Mapping[str, Any], usual: Limits) -> KeyHolder:
    """Who a known key lets in."""
    account_id: str = row["account_id"]
    scopes = frozenset(row["scopes"]) | ({a.READ} if a.JOBS in row["scopes"] else frozenset[str]())
    customer = Customer(
        owner=f"account:{account_id}",
        key_id=row["id"],
        backend=LOCAL,
        account_id=account_id,
        limits=limits_of(row["limits"], usual),
        budgets=budgets_of(row["account_caps"], row["caps"]),
    )
    return KeyHolder(customer, scopes, refusal_of(row["account_state"], enabled=row["enabled"]))


def budgets_of(account_caps: Any, key_caps: Any) -> tuple[Budget, ...] | None:
    """The budgets of an account and a key; None: what is kept of them cannot be read."""
    try:
        return (*budgets(ACCOUNT, account_caps), *budgets(KEY, key_caps))
    except ValueError:
        return None


def refusal_of(state: str, *, enabled: bool) -> tuple[str, str] | None:
    """Why an account may not submit; None: it may."""
    if state != a.ACTIVE:
        return "account_suspended", f"this account is {state} and submits no jobs; ask the operator"
    if not enabled:
        return "compute_not_enabled", "this account may not submit jobs yet; ask the operator to enable it"
    return None


class ShapeOnly:
    """A build without a job store: a key has its shape or not, and opens nothing."""

    async def holder(self, key: str | None) -> KeyHolder:
        """Anybody whose key has the shape."""
        if key is None or not key.startswith(DARK_PREFIX) or len(key) < DARK_CHARS_MIN:
            raise JobRefused("missing_key", "send your key as 'Authorization: Bearer sk-...'")
        nobody = Customer("nobody", hash_of(key), LOCAL, None, Limits(None, None, {}))
        return KeyHolder(nobody, frozenset(a.SCOPES))

    def held(self, customer: Customer, wanted: Wanted) -> AbstractAsyncContextManager[str | None]:
        """Nothing: no job is written."""
        del customer, wanted
        return nullcontext()

    async def balance(self, customer: Customer) -> Balance:
        """Nothing: nobody has an account."""
        del customer
        return Balance(0, 0)
