"""Every operation of an operator who sells, as values.

Decides: paths, parameters, headers and bodies below ``/admin/v1``. Never: opens a connection or waits.
Follows: an account carries its Idempotency-Key from birth, and a payment its own id; making a key is never
sent twice, because its answer is the only one that shows it.
"""

from __future__ import annotations

from urllib.parse import quote

from sky.client.request import IS_JSON, Call, as_json, encoder, getting, keyed, query_of
from sky.wire import admin
from sky.wire.webhooks import DeliveryState

ROOT = "/admin/v1"


def _at(*parts: str) -> str:
    return "/".join((ROOT, *(quote(part, safe="") for part in parts)))


def get_catalogue() -> Call[admin.CatalogueStatus]:
    """Which file is sold from, and whether its newest version holds."""
    return getting(_at("catalogue"), admin.CatalogueStatus)


def get_garbage() -> Call[admin.GarbageReport]:
    """What may be removed now."""
    return getting(_at("garbage"), admin.GarbageReport)


def collect_garbage() -> Call[admin.GarbageReport]:
    """Have it removed now; said again, it is the same."""
    return Call("POST", _at("garbage"), as_json(admin.GarbageReport))


def create_account(create: admin.AccountCreate, key: str | None = None) -> Call[admin.Account]:
    """Make an account."""
    headers = keyed(key, IS_JSON)
    return Call("POST", _at("accounts"), as_json(admin.Account), (), headers, encoder.encode(create))


def list_accounts(*, cursor: str | None = None, limit: int | None = None) -> Call[admin.AccountPage]:
    """Some accounts, newest first."""
    return getting(_at("accounts"), admin.AccountPage, query_of(cursor=cursor, limit=limit))


def get_account(account: str) -> Call[admin.Account]:
    """One account with its balance."""
    return getting(_at("accounts", account), admin.Account)


def change_account(account: str, patch: admin.AccountPatch) -> Call[admin.Account]:
    """Change the state or the limits of an account. Said twice, it is the same."""
    where = _at("accounts", account)
    return Call("PATCH", where, as_json(admin.Account), (), (IS_JSON,), encoder.encode(patch))


def pay_in(account: str, payment: admin.PaymentCreate) -> Call[tuple[admin.Account, bool]]:
    """Add money to an account; and whether it was counted now, and not before."""
    return _counted(account, "payments", payment)


def refund(
    account: str, taken: admin.RefundCreate, *, dry_run: bool = False
) -> Call[tuple[admin.Account, bool]]:
    """Take a payment off an account again; and whether it was taken now, and not before."""
    return _counted(account, "refunds", taken, dry_run=dry_run)


def _counted(
    account: str, what: str, body: admin.PaymentCreate | admin.RefundCreate, *, dry_run: bool = False
) -> Call[tuple[admin.Account, bool]]:
    read, where = as_json(admin.Account), _at("accounts", account, what)
    encoded = encoder.encode(body)
    query = query_of(dry_run=dry_run or None)
    return Call("POST", where, lambda reply: (read(reply), reply.status == 201), query, (IS_JSON,), encoded)


def list_entries(
    account: str, *, cursor: str | None = None, limit: int | None = None
) -> Call[admin.Statement]:
    """Some lines of an account's ledger, oldest first."""
    return getting(_at("accounts", account, "entries"), admin.Statement, query_of(cursor=cursor, limit=limit))


def create_key(account: str, create: admin.KeyCreate) -> Call[admin.Key]:
    """Make a key. Never sent twice: the first may have been made, and would be seen by nobody."""
    where = _at("accounts", account, "keys")
    body = encoder.encode(create)
    return Call("POST", where, as_json(admin.Key), (), (IS_JSON,), body, repeatable=False)


def list_keys(account: str) -> Call[admin.KeyPage]:
    """The keys of an account."""
    return getting(_at("accounts", account, "keys"), admin.KeyPage)


def change_key(key: str, patch: admin.KeyPatch) -> Call[admin.Key]:
    """Give a key a budget. Said twice, it is the same."""
    return Call("PATCH", _at("keys", key), as_json(admin.Key), (), (IS_JSON,), encoder.encode(patch))


def revoke_key(key: str, *, dry_run: bool = False) -> Call[admin.Key]:
    """Refuse a key from now on."""
    return Call("DELETE", _at("keys", key), as_json(admin.Key), query_of(dry_run=dry_run or None))


def list_webhooks(account: str) -> Call[admin.WebhookPage]:
    """Where an account has events sent."""
    return getting(_at("accounts", account, "webhooks"), admin.WebhookPage)


def get_webhook(webhook: str) -> Call[admin.Webhook]:
    """One webhook."""
    return getting(_at("webhooks", webhook), admin.Webhook)


def switch_webhook(webhook: str, *, enabled: bool) -> Call[admin.Webhook]:
    """End sending to a webhook, or begin again. Said twice, it is the same."""
    body = encoder.encode(admin.WebhookSwitch(enabled=enabled))
    return Call("PATCH", _at("webhooks", webhook), as_json(admin.Webhook), (), (IS_JSON,), body)


def list_deliveries(
    webhook: str, *, state: DeliveryState | None = None, cursor: str | None = None, limit: int | None = None
) -> Call[admin.DeliveryPage]:
    """Some of what was sent to a webhook, newest first."""
    query = query_of(state=state, cursor=cursor, limit=limit)
    return getting(_at("webhooks", webhook, "deliveries"), admin.DeliveryPage, query)


def redeliver(webhook: str, delivery: str) -> Call[admin.Delivery]:
    """Send something once more. Not sent twice: each would be a message."""
    where = _at("webhooks", webhook, "deliveries", delivery, "redeliver")
    return Call("POST", where, as_json(admin.Delivery), repeatable=False)


def sold_job(job: str) -> Call[admin.SoldJobPage]:
    """One job that somebody bought, as whoever sells it sees it; an empty page where there is none."""
    return getting(_at("jobs"), admin.SoldJobPage, query_of(job=job))


def audit_ledger() -> Call[admin.Audit]:
    """Add up the whole ledger."""
    return getting(_at("ledger", "audit"), admin.Audit)
