"""What the reference console knows: accounts, keys, payments and holds; kept in a file if one is named.

Decides: what an order does to the books, and that each counts once. Never: a number that can be summed: what
an account has follows from its payments and its holds each time it is asked for.
Follows: an order that is repeated is answered as before; a hold that ended is never placed again.
"""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path

import msgspec

from sky.domain.money import parse_usd, usd_text
from sky.wire import console as wire


class Key(msgspec.Struct, kw_only=True):
    """A key: its name, and whether it is good."""

    name: str
    owner: str
    good: bool = True


class Account(msgspec.Struct, kw_only=True):
    """An account; ``payments`` are amounts in micro-dollars by their ids."""

    state: str = "active"
    payments: dict[str, int] = {}


class Hold(msgspec.Struct, kw_only=True):
    """What is held under a reference: ``parts`` are amounts by the order that added them. ``ended`` is how it
    ended; ``charge_micro`` what it was charged."""

    owner: str | None
    parts: dict[str, int] = {}
    ended: str | None = None
    charge_micro: int = 0

    @property
    def amount_micro(self) -> int:
        """All that was ever held."""
        return sum(self.parts.values())


class Books(msgspec.Struct, kw_only=True):
    """Everything, as it is kept. Keys are kept by their SHA-256."""

    accounts: dict[str, Account] = {}
    keys: dict[str, Key] = {}
    holds: dict[str, Hold] = {}


class Book:
    """The books, and what may be done to them. ``path`` None: in memory only."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.books = Books()
        if path is not None and path.exists():
            self.books = msgspec.json.decode(path.read_bytes(), type=Books)

    # ── for whoever runs it ─────────────────────────────────────────────────────────────────────

    def open(self, name: str) -> None:
        """Make an account, if there is none of that name."""
        self.books.accounts.setdefault(name, Account())
        self._keep()

    def pay(self, name: str, payment: str, amount_micro: int) -> None:
        """Count a payment, once."""
        self.books.accounts[name].payments.setdefault(payment, amount_micro)
        self._keep()

    def make_key(self, name: str) -> str:
        """A new key of an account."""
        key = "sk-" + secrets.token_hex(24)
        self.books.keys[_digest(key)] = Key(name=f"key-{secrets.token_hex(6)}", owner=name)
        self._keep()
        return key

    def revoke(self, key: str) -> bool:
        """Refuse a key from now on; whether it is known."""
        found = self.books.keys.get(_digest(key))
        if found is not None:
            found.good = False
            self._keep()
        return found is not None

    def set_state(self, name: str, state: str) -> None:
        """Let an account spend (``active``) or not."""
        self.books.accounts[name].state = state
        self._keep()

    def balance(self, name: str) -> tuple[int, int]:
        """What an account may spend, and what is held of it, in micro-dollars."""
        account = self.books.accounts.get(name, Account())
        own = [hold for hold in self.books.holds.values() if hold.owner == name]
        held = sum(hold.amount_micro for hold in own if hold.ended is None)
        charged = sum(hold.charge_micro for hold in own)
        return sum(account.payments.values()) - charged - held, held

    def findings(self) -> list[str]:
        """What does not add up."""
        found = [f"{name} is below zero" for name in self.books.accounts if self.balance(name)[0] < 0]
        for reference, hold in self.books.holds.items():
            if hold.charge_micro > hold.amount_micro:
                found.append(f"{reference} was charged more than was held")
            if hold.charge_micro and hold.ended != "settled":
                found.append(f"{reference} was charged and not settled")
        return found

    # ── for sellers ─────────────────────────────────────────────────────────────────────────────

    def verify(self, question: wire.KeyQuestion) -> wire.KeyAnswer:
        """Whose key that is."""
        key = self.books.keys.get(_digest(question.key))
        if key is None or not key.good:
            return wire.KeyAnswer(status="invalid")
        refusal = self._refusal(key.owner)
        if refusal == "account_disabled" or refusal == "account_suspended":
            return wire.KeyAnswer(status=refusal, owner=key.owner, key=key.name)
        return wire.KeyAnswer(status="active", owner=key.owner, key=key.name)

    def hold(self, order: wire.HoldOrder) -> wire.HoldAnswer:
        """Hold money, once per reference."""
        hold = self.books.holds.get(order.reference)
        if hold is not None:
            return wire.HoldAnswer(status="held" if hold.ended is None else "over")
        refused = self._refuse(order.owner, order.amount_usd)
        if refused is not None:
            return refused
        parts = {order.reference: parse_usd(order.amount_usd)}
        self.books.holds[order.reference] = Hold(owner=order.owner, parts=parts)
        self._keep()
        return wire.HoldAnswer(status="held")

    def extend(self, reference: str, order: wire.ExtendOrder) -> wire.HoldAnswer:
        """Hold more, once per extension."""
        hold = self.books.holds.get(reference)
        if hold is None or hold.owner is None or hold.ended is not None:
            return wire.HoldAnswer(status="over")
        if order.extension in hold.parts:
            return wire.HoldAnswer(status="held")
        refused = self._refuse(hold.owner, order.amount_usd)
        if refused is not None:
            return refused
        hold.parts[order.extension] = parse_usd(order.amount_usd)
        self._keep()
        return wire.HoldAnswer(status="held")

    def settle(self, reference: str, order: wire.SettleOrder) -> wire.OverAnswer:
        """Charge a hold and return the rest, once."""
        hold = self.books.holds.get(reference)
        charge_micro = parse_usd(order.charge_usd)
        if hold is None:
            return wire.OverAnswer(status="unknown")
        if hold.ended is None and charge_micro <= hold.amount_micro:
            hold.ended, hold.charge_micro = "settled", charge_micro
            self._keep()
        same = hold.ended == "settled" and hold.charge_micro == charge_micro
        return wire.OverAnswer(
            status="settled" if same else "conflict", charge_usd=usd_text(hold.charge_micro)
        )

    def release(self, reference: str) -> wire.OverAnswer:
        """Return a hold whole. One that is not known is remembered as over, so that an order which is still
        on its way places nothing."""
        hold = self.books.holds.setdefault(reference, Hold(owner=None, ended="released"))
        if hold.ended is None:
            hold.ended = "released"
        self._keep()
        status = "released" if hold.ended == "released" else "conflict"
        return wire.OverAnswer(status=status, charge_usd=usd_text(hold.charge_micro))

    def funds(self, question: wire.BalanceQuestion) -> wire.BalanceAnswer:
        """What an account has."""
        available, held = self.balance(question.owner)
        return wire.BalanceAnswer(available_usd=usd_text(available), held_usd=usd_text(held))

    def _refuse(self, owner: str, amount_usd: str) -> wire.HoldAnswer | None:
        refusal = self._refusal(owner)
        if refusal is not None:
            return wire.HoldAnswer(status=refusal)
        available, _ = self.balance(owner)
        if parse_usd(amount_usd) > available:
            return wire.HoldAnswer(status="insufficient_balance", balance_usd=usd_text(available))
        return None

    def _refusal(self, owner: str) -> wire.Refusal | None:
        account = self.books.accounts.get(owner)
        if account is None or account.state == "disabled":
            return "account_disabled"
        return "account_suspended" if account.state == "suspended" else None

    def _keep(self) -> None:
        if self._path is None:
            return
        fresh = self._path.with_name(self._path.name + ".new")
        fresh.write_bytes(msgspec.json.encode(self.books))
        fresh.chmod(0o600)
        fresh.replace(self._path)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
