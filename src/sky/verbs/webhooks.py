"""Webhook endpoints as they are asked for: make, change, rotate, delete, send once more.

Decides: what each writes, and which addresses may be named at all. Never: sends anything, or resolves a name.
Follows: a secret is kept sealed, and shown once; after a rotation the old one signs too for a day.
"""

from __future__ import annotations

import base64
import ipaddress
import secrets
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec import UNSET, Struct

from sky.domain.job import EVENTS
from sky.domain.job_errors import JobRefused
from sky.kit import addresses, ids
from sky.kit.nearby import hint
from sky.store.rows import webhooks
from sky.store.sql import Row
from sky.store.tx import Tx
from sky.wire import webhooks as wire

_FORM = "whsec_{}"
SECRET_BYTES = 32
ENDPOINTS_MAX = 20
OLD_SECRET_US = 24 * 3600 * 1_000_000


class Sealing(Struct, frozen=True):
    """How secrets are kept, and whether endpoints on this computer may be named."""

    seal: Callable[[Mapping[str, str]], bytes]
    unseal: Callable[[bytes], Mapping[str, str]]
    loopback: bool = False


def create(tx: Tx, owner: str, body: wire.WebhookCreate, sealing: Sealing) -> tuple[str, str]:
    """Make an endpoint; returns its id and its secret."""
    check_url(body.url, sealing)
    if len(webhooks.of_owner(tx.connection, owner)) >= ENDPOINTS_MAX:
        msg = f"you have {ENDPOINTS_MAX} endpoints, as many as an account may have; delete one"
        raise JobRefused("invalid_url", msg, param="url")
    secret = new_secret()
    webhook_id = ids.new("webhook")
    row = {
        "id": webhook_id,
        "owner": owner,
        "url": body.url,
        "secrets": sealing.seal({"now": secret}),
        "types": None if body.types is UNSET else _types(body.types),
        "enabled": True,
        "created_us": tx.now_us,
    }
    webhooks.add(tx, row)
    return webhook_id, secret


def change(tx: Tx, row: Row, body: wire.WebhookPatch, sealing: Sealing) -> None:
    """Change an endpoint."""
    values: dict[str, Any] = {}
    if body.url is not UNSET:
        check_url(body.url, sealing)
        values["url"] = body.url
    if body.types is not UNSET:
        values["types"] = None if body.types is None else _types(body.types)
    if body.enabled is not UNSET:
        values |= {"enabled": body.enabled, "disabled_reason": None}
    if values:
        webhooks.change(tx, row["id"], values)
        tx.touch(f"webhooks/{row['id']}")


def switch(tx: Tx, row: Row, *, enabled: bool, reason: str | None = None) -> None:
    """Begin to send to an endpoint, or end it; ``reason`` is what its owner is told. What was due goes on
    when it begins again."""
    webhooks.change(tx, row["id"], {"enabled": enabled, "disabled_reason": None if enabled else reason})
    tx.touch(f"webhooks/{row['id']}")


def rotate(tx: Tx, row: Row, sealing: Sealing) -> str:
    """Give an endpoint another secret; the old one signs too for a day. Returns the new one."""
    kept = sealing.unseal(row["secrets"])
    secret = new_secret()
    sealed = {"now": secret, "old": kept["now"], "old_until_us": str(tx.now_us + OLD_SECRET_US)}
    webhooks.change(tx, row["id"], {"secrets": sealing.seal(sealed)})
    return secret


def delete(tx: Tx, row: Row) -> None:
    """Forget an endpoint; what is on its way to it is not sent any more."""
    webhooks.forget(tx, row["id"])


def redeliver(tx: Tx, row: Row, delivery_id: str) -> None:
    """Send a delivery once more."""
    if not webhooks.again(tx, row["id"], delivery_id):
        raise JobRefused("not_found", f"this endpoint has no delivery {delivery_id[:40]!r}")
    tx.touch(f"webhooks/{row['id']}")


def signing(sealed: bytes, sealing: Sealing, now_us: int) -> list[str]:
    """The secrets that sign now: the present one, and for a while the one before."""
    kept = sealing.unseal(sealed)
    good = [kept["now"]]
    if "old" in kept and now_us < int(kept["old_until_us"]):
        good.append(kept["old"])
    return good


def check_url(url: str, sealing: Sealing) -> None:
    """Refuse an address that nothing may be sent to, as far as it can be seen without looking its name up."""
    problem = _bad_url(url, loopback=sealing.loopback)
    if problem is not None:
        raise JobRefused("invalid_url", f"url: {problem}; give an https:// address", param="url")


def _bad_url(url: str, *, loopback: bool) -> str | None:
    if len(url) > wire.URL_CHARS_MAX or not url.isprintable() or " " in url:
        return f"it is longer than {wire.URL_CHARS_MAX} characters, or has characters that no address has"
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        return "it is no URL"
    if not host or parts.username is not None or parts.password is not None:
        return "it names no host, or carries a user name"
    if loopback and parts.scheme == "http" and host in ("localhost", "127.0.0.1", "::1"):
        return None
    if parts.scheme != "https":
        return f"it begins with {parts.scheme[:20] or 'nothing'!r}"
    read = addresses.as_read(host)
    try:
        address = ipaddress.ip_address(read.partition("%")[0])
    except ValueError:
        if addresses.ends_in_number(read):
            return f"{host[:80]} ends in a number, and is no address"
        return None if loopback or read != "localhost" else "it is this computer"
    if not (addresses.is_public(read) or (loopback and address.is_loopback)):
        return f"{host[:80]} is no public address"
    return None


def _types(types: tuple[str, ...]) -> list[str]:
    if len(types) > wire.TYPES_MAX:
        raise JobRefused("malformed_body", f"types: {wire.TYPES_MAX} at most", param="types")
    for name in types:
        if name not in EVENTS:
            msg = f"types: there is no event {name[:40]!r}; {hint(name, EVENTS)}"
            raise JobRefused("malformed_body", msg, param="types")
    return list(dict.fromkeys(types))


def new_secret() -> str:
    """A fresh signing secret."""
    return _FORM.format(base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode())
