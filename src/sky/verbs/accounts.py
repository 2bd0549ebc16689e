"""Customers' accounts as an operator keeps them: make one, pay in, limit, suspend, close; and their keys.

Decides: what each writes. Never: shows a key twice.
Follows: a payment counts once, however often it is told, and is taken off again once.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
from collections.abc import Mapping
from typing import Any

from sky.domain import account as a
from sky.domain import ledger as l
from sky.domain.errors import IdempotencyConflict, InvalidRequest, NameTaken, NotFound
from sky.domain.lifecycle import Fact
from sky.domain.money import usd_text
from sky.kit import ids
from sky.store.rows import accounts, jobs, ledger
from sky.store.sql import Row
from sky.store.tx import Tx
from sky.verbs.spec_rules import invalid

KEY_PREFIX = "uck_"
KEY_CHARS = 40
_ALPHABET = string.digits + string.ascii_letters
_KEY = re.compile(rf"{KEY_PREFIX}[0-9A-Za-z]{{{KEY_CHARS}}}")
REFERENCE_CHARS_MAX = 120


def create(tx: Tx, name: str, *, enabled: bool) -> str:
    """Make an account; returns its id."""
    if accounts.find(tx.connection, name) is not None:
        msg = f"the name {name!r} is taken by another account; choose another"
        raise NameTaken(msg, details={"name": name})
    account_id = ids.new("account")
    row = {
        "id": account_id,
        "name": name,
        "state": a.ACTIVE,
        "version": 1,
        "enabled": enabled,
        "limits": None,
        "created_us": tx.now_us,
    }
    tx.add("accounts", [row])
    return account_id


def find(tx: Tx, ref: str) -> Row:
    """The account with that id or name. Raises NotFound."""
    row = accounts.find(tx.connection, ref)
    if row is None:
        msg = f"there is no account {ref!r}; `sky admin account list` shows those there are"
        raise NotFound(msg, details={"account": ref})
    return row


def change(tx: Tx, ref: str, change_of: str, given: Mapping[str, Any] | None = None) -> str:
    """Enable, disable, suspend, resume or close an account, or give it limits or budgets; returns its id."""
    row = find(tx, ref)
    account_id = row["id"]
    if row["state"] == a.CLOSED and change_of != "close":
        msg = f"account {row['name']} is closed, which is final; make another one"
        raise InvalidRequest(msg, details={"field": "account", "value": ref, "expected": "an open account"})
    facts: dict[str, Fact] = {
        "enable": a.AccountEnabled(account_id, enabled=True),
        "disable": a.AccountEnabled(account_id, enabled=False),
        "limit": a.AccountLimited(account_id, dict(given or {})),
        "cap": a.AccountCapped(account_id, dict(given or {})),
        "suspend": a.AccountSuspended(account_id),
        "resume": a.AccountResumed(account_id),
        "close": a.AccountClosed(account_id),
    }
    if change_of == "resume" and row["state"] == a.ACTIVE:
        return account_id
    tx.apply(facts[change_of])
    return account_id


def pay_in(
    tx: Tx, ref: str, amount_micro: int, payment: str, *, gift: bool = False, note: str | None = None
) -> bool:
    """Add money to an account: a payment, or a gift of ours. False when ``payment`` was counted before.
    Raises IdempotencyConflict when that was for another account, or with another amount."""
    row = find(tx, ref)
    if row["state"] == a.CLOSED:
        msg = f"account {row['name']} is closed and takes no money"
        raise InvalidRequest(msg, details={"field": "account", "value": ref, "expected": "an open account"})
    if not 0 < amount_micro <= l.AMOUNT_MICRO_MAX:
        most = usd_text(l.AMOUNT_MICRO_MAX)
        raise invalid("amount_usd", usd_text(amount_micro), f"an amount above 0, up to {most} USD")
    if not 0 < len(payment) <= REFERENCE_CHARS_MAX:
        raise invalid("payment", payment[:80], f"1 to {REFERENCE_CHARS_MAX} characters")
    make = l.credit if gift else l.top_up
    movement = make(row["id"], payment, amount_micro, note)
    if ledger.enter(tx, movement):
        return True
    before = ledger.booked(tx.connection, movement.reference)
    if before != frozenset(movement.entries):
        raise _counted_otherwise(tx, payment, before)
    return False


def refund(
    tx: Tx, ref: str, payment: str, amount_micro: int | None, reason: str, *, gift: bool = False
) -> bool:
    """Take a payment, or a gift, off a balance again: that much of it, or all (None). False when that was
    done before. Raises InvalidRequest where the balance has less, IdempotencyConflict where another amount
    was taken, NotFound where the account has no such payment."""
    row = find(tx, ref)
    paid = (l.credit if gift else l.top_up)(row["id"], payment, 0)
    counted = {
        entry.account: entry.amount_micro for entry in ledger.booked(tx.connection, paid.reference)
    }.get(l.available(row["id"]))
    if counted is None:
        what = "gift" if gift else "payment"
        msg = f"account {row['name']} has no {what} {payment!r}; `sky admin account statement {row['name']}` "
        raise NotFound(f"{msg}shows what it has", details={"account": ref, "payment": payment})
    amount_micro = counted if amount_micro is None else amount_micro
    if not 0 < amount_micro <= counted:
        most = usd_text(counted)
        raise invalid("amount_usd", usd_text(amount_micro), f"more than 0, up to the {most} USD of it")
    movement = l.refund(paid, amount_micro, reason)
    try:
        if ledger.enter(tx, movement):
            return True
    except l.BelowZero as short:
        msg = (
            f"account {row['name']} has {usd_text(short.balance_micro)} USD to spend, less than the "
            f"{usd_text(amount_micro)} USD to be taken off; take less, or wait for what its jobs give back"
        )
        raise InvalidRequest(msg, details={"account": ref, "payment": payment}) from None
    if ledger.booked(tx.connection, movement.reference) != frozenset(movement.entries):
        msg = f"another amount of {payment!r} was taken off before; `sky admin account statement` shows it"
        raise IdempotencyConflict(msg, details={"payment": payment, "account": row["id"]})
    return False


def _counted_otherwise(tx: Tx, payment: str, before: frozenset[l.Entry]) -> IdempotencyConflict:
    """Money that would be lost in silence if its payment were taken for the one that was counted."""
    [entry] = [entry for entry in before if entry.account not in l.PLATFORM]
    account_id = entry.account.partition("/")[0]
    owner = find(tx, account_id)["name"]
    was = f"{usd_text(entry.amount_micro)} USD for account {owner}"
    msg = f"{payment!r} was counted before, with {was}; `sky admin account statement {owner}` shows it"
    return IdempotencyConflict(msg, details={"payment": payment, "account": account_id})


def cap_key(tx: Tx, key_id: str, caps: Mapping[str, Any]) -> str:
    """Give a key budgets; returns its id."""
    if accounts.key(tx.connection, key_id) is None:
        msg = f"there is no key {key_id!r}; `sky admin key list` shows those there are"
        raise NotFound(msg, details={"key": key_id})
    accounts.cap_key(tx, key_id, caps)
    return key_id


def create_key(
    tx: Tx,
    ref: str,
    name: str,
    scopes: tuple[str, ...],
    expires_us: int | None,
    key: str,
    caps: Mapping[str, Any] | None = None,
) -> str:
    """Keep a key of an account; returns its id. ``key`` is the key itself, of which only the hash is kept."""
    row = find(tx, ref)
    if row["state"] == a.CLOSED:
        msg = f"account {row['name']} is closed and gets no keys"
        raise InvalidRequest(msg, details={"field": "account", "value": ref, "expected": "an open account"})
    key_id = ids.new("key")
    accounts.add_key(
        tx,
        {
            "id": key_id,
            "account_id": row["id"],
            "name": name,
            "sha256": hash_of(key),
            "hint": key[:8],
            "scopes": list(scopes),
            "created_us": tx.now_us,
            "expires_us": expires_us,
            "caps": None if caps is None else dict(caps),
        },
    )
    return key_id


def revoke_key(tx: Tx, key_id: str) -> str:
    """Refuse a key from now on; returns its id."""
    if accounts.key(tx.connection, key_id) is None:
        msg = f"there is no key {key_id!r}; `sky admin key list` shows those there are"
        raise NotFound(msg, details={"key": key_id})
    accounts.revoke_key(tx, key_id)
    return key_id


def audit(tx: Tx) -> tuple[int, list[l.Finding], dict[str, int]]:
    """Add up all there is: how many lines, what does not add up, and the balance of each account."""
    found = l.Audit()
    found.read(ledger.lines(tx.connection))
    return found.lines, found.close(jobs.unsettled(tx.connection)), found.balances()


def new_key() -> str:
    """A fresh key, to be shown once."""
    return KEY_PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(KEY_CHARS))


def is_key(text: str) -> bool:
    """Whether ``text`` has the shape of a key of ours."""
    return _KEY.fullmatch(text) is not None


def hash_of(key: str) -> str:
    """What is kept of a key. It has 238 bits of chance, so that a fast hash hides it."""
    return hashlib.sha256(key.encode()).hexdigest()
