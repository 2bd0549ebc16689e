"""Providers as they are added, changed and removed.

Decides: what an ask writes. Never: asks the provider itself; its offers are fetched by a loop.
Follows: credentials are sealed before they reach a row, and no read selects them.
"""

from __future__ import annotations

from typing import Any

from sky.domain.errors import (
    InvalidRequest,
    NameTaken,
    ProviderInUse,
    SecretInDefinition,
    UnsupportedProvider,
)
from sky.domain.nearby import hint
from sky.domain.provider import KindInfo, Rules
from sky.kit import ids, secrets
from sky.store.rows import computes, disks, nodes, providers
from sky.store.tx import Tx
from sky.verbs import lookup
from sky.verbs.spec_rules import add_provider, invalid
from sky.wire import v1


def create(tx: Tx, body: v1.ProviderCreate, rules: Rules) -> str:
    """Add a provider; returns its id."""
    info = _check(body, rules)
    _check_name(tx, body.name)
    sealed = rules.seal(body.credentials) if body.credentials else None
    return add_provider(tx, body.name, body.kind, body.config, sealed, info.offers_ttl_seconds)


def replace(tx: Tx, ref: str, body: v1.ProviderCreate, rules: Rules) -> str:
    """Change a provider in place; returns its id. Without credentials, it keeps those it has."""
    row = lookup.provider(tx, ref)
    info = _check(body, rules)
    if body.kind != row["kind"]:
        raise invalid(
            "kind", body.kind, f"{row['kind']!r}: the kind of a provider does not change; add another"
        )
    if body.name != row["name"]:
        _check_name(tx, body.name)
    values: dict[str, Any] = {
        "name": body.name,
        "config": body.config,
        "offers_ttl_seconds": info.offers_ttl_seconds,
        "last_error": None,
    }
    if body.credentials:
        values["credentials"] = rules.seal(body.credentials)
    providers.change(tx, row["id"], values)
    return row["id"]


def delete(tx: Tx, ref: str) -> None:
    """Remove a provider that nothing needs any more."""
    row = lookup.provider(tx, ref)
    machines = nodes.machines_of(tx.connection, row["id"])
    names = {row["id"], row["name"]}
    if providers.count_of_kind(tx.connection, row["kind"], without=row["id"]) == 0:
        names.add(row["kind"])
    live = computes.live_specs(tx.connection)
    users = [x["id"] for x in live if names & {s["provider"]["kind"] for s in x["spec"].get("specs", ())}]
    kept = disks.count_of(tx.connection, row["id"])
    if machines or users or kept:
        msg = (
            f"provider {row['name']!r} is in use by {machines} machines, {kept} disks and {len(users)} "
            "computes; delete those first"
        )
        raise ProviderInUse(msg, details={"machines": machines, "computes": users[:20]})
    providers.remove(tx, row["id"])


def _check(body: v1.ProviderCreate, rules: Rules) -> KindInfo:
    info = rules.kinds.get(body.kind)
    if info is None:
        msg = f"kind: no kind of provider {body.kind!r}; {hint(body.kind, rules.kinds)}"
        raise UnsupportedProvider(msg, details={"kind": body.kind, "known": sorted(rules.kinds)})
    for field, why in secrets.find(body.config, "config"):
        msg = f"{field}: {why}, and a configuration is served back; put it into credentials"
        raise SecretInDefinition(msg, details={"field": field})
    unknown = sorted(set(body.credentials) - set(info.credential_fields))
    if unknown:
        takes = ", ".join(info.credential_fields) or "none"
        raise invalid("credentials", unknown, f"fields that kind {body.kind!r} takes: {takes}")
    wrong = info.check_config(body.config)
    if wrong is not None:
        raise InvalidRequest(wrong, details={"field": "config", "value": body.config})
    return info


def _check_name(tx: Tx, name: str) -> None:
    if ids.is_id(name):
        raise invalid("name", name, "a name that does not look like an id")
    taken = providers.named(tx.connection, name)
    if taken is not None:
        msg = f"the name {name!r} is taken by provider {taken}; change it with PUT, or choose another name"
        raise NameTaken(msg, details={"name": name, "provider": taken})
