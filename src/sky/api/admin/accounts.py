"""Accounts, their keys and their money, for the operator alone.

Decides: nothing; ``verbs/accounts`` does. Never: lets in whoever brings a customer's key: the door in front
asks for the daemon's own user or token. Follows: what makes something takes an Idempotency-Key; a payment
counts once by its own id, whatever key it came with.
"""

from __future__ import annotations

from typing import Annotated

from litestar.response.base import ASGIResponse
from msgspec import Meta

from sky.api.operation import Ask, Limit, TrialQuery, made, operation, reply
from sky.api.reading import Query
from sky.domain.errors import IdempotencyConflict, NameTaken, NotFound
from sky.domain.money import parse_usd
from sky.kit.clock import SECOND_US
from sky.store.rows import accounts as rows
from sky.store.tx import Tx
from sky.store.views import accounts as views
from sky.store.views.paging import DEFAULT_ITEMS
from sky.verbs import accounts as verbs
from sky.wire import admin

TAG = "Accounts"
ROOT = "/admin/v1"
Cursor = Annotated[str, Meta(max_length=64, description="next_cursor of the page before.")]


class PageQuery(Query, frozen=True):
    """Which part of a list is wanted."""

    cursor: Cursor | None = None
    limit: Limit = DEFAULT_ITEMS


@operation(
    "POST",
    f"{ROOT}/accounts",
    tag=TAG,
    answers=admin.Account,
    status=201,
    also=[200],
    keyed=True,
    errors=[NameTaken, IdempotencyConflict],
)
async def create_account(ask: Ask, body: admin.AccountCreate) -> ASGIResponse:
    """Make an account."""
    account, replayed = await ask.once(
        lambda tx: verbs.create(tx, body.name, enabled=body.enabled),
        lambda tx, ref: views.account(tx.connection, ref),
        body,
    )
    return made(account, f"{ROOT}/accounts/{account.id}", replayed)


@operation("GET", f"{ROOT}/accounts", tag=TAG, answers=admin.AccountPage)
async def list_accounts(ask: Ask, query: PageQuery) -> ASGIResponse:
    """List accounts, newest first."""
    return reply(await ask.unit.db.read(lambda c: views.page(c, cursor=query.cursor, limit=query.limit)))


@operation("GET", f"{ROOT}/accounts/{{account_id}}", tag=TAG, answers=admin.Account, errors=[NotFound])
async def get_account(ask: Ask, account_id: str) -> ASGIResponse:
    """Show an account with its balance."""
    return reply(await ask.unit.db.read(lambda c: views.account(c, account_id)))


@operation("PATCH", f"{ROOT}/accounts/{{account_id}}", tag=TAG, answers=admin.Account, errors=[NotFound])
async def change_account(ask: Ask, account_id: str, body: admin.AccountPatch) -> ASGIResponse:
    """Enable, disable, suspend, resume or close an account, or give it limits or a budget of its own."""

    def verb(tx: Tx) -> admin.Account:
        if body.limits is not None:
            verbs.change(tx, account_id, "limit", {**body.limits})
        if body.budget is not None:
            verbs.change(tx, account_id, "cap", _caps(body.budget))
        if body.change is not None:
            verbs.change(tx, account_id, body.change)
        return views.account(tx.connection, account_id)

    return reply(await ask.unit.db.write(verb))


@operation(
    "POST",
    f"{ROOT}/accounts/{{account_id}}/payments",
    tag=TAG,
    answers=admin.Account,
    status=201,
    also=[200],
    errors=[NotFound, IdempotencyConflict],
)
async def pay_in(ask: Ask, account_id: str, body: admin.PaymentCreate) -> ASGIResponse:
    """Add a payment, or a gift, to an account. 200: its id was counted before, and nothing changed. 409: it
    was counted for another account, or with another amount."""

    def verb(tx: Tx) -> tuple[admin.Account, bool]:
        micro = parse_usd(body.amount_usd)
        new = verbs.pay_in(tx, account_id, micro, body.payment, gift=body.gift, note=body.note)
        return views.account(tx.connection, account_id), new

    account, new = await ask.unit.db.write(verb)
    return reply(account, 201 if new else 200)


@operation(
    "POST",
    f"{ROOT}/accounts/{{account_id}}/refunds",
    tag=TAG,
    answers=admin.Account,
    status=201,
    also=[200],
    errors=[NotFound, IdempotencyConflict],
)
async def refund(ask: Ask, account_id: str, body: admin.RefundCreate, query: TrialQuery) -> ASGIResponse:
    """Take a payment, or a gift, off the balance again, never more than may be spent. 200: that was done
    before, and nothing changed. 409: it was done with another amount."""

    def verb(tx: Tx) -> tuple[admin.Account, bool]:
        micro = None if body.amount_usd is None else parse_usd(body.amount_usd)
        new = verbs.refund(tx, account_id, body.payment, micro, body.reason, gift=body.gift)
        return views.account(tx.connection, account_id), new

    account, new = await ask.write(verb, dry_run=query.dry_run)
    return reply(account, 201 if new else 200)


@operation(
    "GET", f"{ROOT}/accounts/{{account_id}}/entries", tag=TAG, answers=admin.Statement, errors=[NotFound]
)
async def list_entries(ask: Ask, account_id: str, query: PageQuery) -> ASGIResponse:
    """List what was booked on an account, oldest first."""
    return reply(
        await ask.unit.db.read(
            lambda c: views.statement(c, account_id, cursor=query.cursor, limit=query.limit)
        )
    )


@operation(
    "POST", f"{ROOT}/accounts/{{account_id}}/keys", tag=TAG, answers=admin.Key, status=201, errors=[NotFound]
)
async def create_key(ask: Ask, account_id: str, body: admin.KeyCreate) -> ASGIResponse:
    """Make a key. Its text is in this answer, and can never be had again."""
    secret = verbs.new_key()
    caps = None if body.budget is None else _caps(body.budget)

    def verb(tx: Tx) -> admin.Key:
        expires = body.expires_in_seconds
        expires_us = None if expires is None else tx.now_us + expires * SECOND_US
        key_id = verbs.create_key(tx, account_id, body.name, body.scopes, expires_us, secret, caps)
        return views.key(_key(tx, key_id), secret)

    key = await ask.unit.db.write(verb)
    return reply(key, 201, location=f"{ROOT}/keys/{key.id}", cache_control="no-store")


@operation("GET", f"{ROOT}/accounts/{{account_id}}/keys", tag=TAG, answers=admin.KeyPage, errors=[NotFound])
async def list_keys(ask: Ask, account_id: str) -> ASGIResponse:
    """List the keys of an account, oldest first."""
    return reply(await ask.unit.db.read(lambda c: views.keys(c, account_id)))


@operation("PATCH", f"{ROOT}/keys/{{key_id}}", tag=TAG, answers=admin.Key, errors=[NotFound])
async def change_key(ask: Ask, key_id: str, body: admin.KeyPatch) -> ASGIResponse:
    """Give a key a budget of its own, within that of its account."""

    def verb(tx: Tx) -> admin.Key:
        return views.key(_key(tx, verbs.cap_key(tx, key_id, _caps(body.budget))))

    return reply(await ask.unit.db.write(verb))


@operation("DELETE", f"{ROOT}/keys/{{key_id}}", tag=TAG, answers=admin.Key, errors=[NotFound])
async def revoke_key(ask: Ask, key_id: str, query: TrialQuery) -> ASGIResponse:
    """Revoke a key: it is refused at its next request."""

    def verb(tx: Tx) -> admin.Key:
        return views.key(_key(tx, verbs.revoke_key(tx, key_id)))

    return reply(await ask.write(verb, dry_run=query.dry_run))


@operation("GET", f"{ROOT}/ledger/audit", tag=TAG, answers=admin.Audit)
async def audit_ledger(ask: Ask) -> ASGIResponse:
    """Add up the whole ledger, and say what does not add up."""
    lines, findings, _ = await ask.unit.db.write(verbs.audit)
    told = tuple(admin.Finding(seq=f.seq, what=f.what) for f in findings)
    return reply(admin.Audit(lines=lines, ok=not told, findings=told))


def _caps(budget: admin.Budget) -> dict[str, int]:
    """A budget as it is kept."""
    given = {"day_micro": budget.day_usd, "month_micro": budget.month_usd}
    return {name: parse_usd(usd) for name, usd in given.items() if usd is not None}


def _key(tx: Tx, key_id: str) -> dict[str, object]:
    row = rows.key(tx.connection, key_id)
    if row is None:
        msg = f"there is no key {key_id!r}"
        raise NotFound(msg, details={"key": key_id})
    return dict(row)


ROUTES = (
    create_account,
    list_accounts,
    get_account,
    change_account,
    pay_in,
    refund,
    list_entries,
    create_key,
    list_keys,
    change_key,
    revoke_key,
    audit_ledger,
)
