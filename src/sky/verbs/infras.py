"""Which infras this server can use, and of each other one why not and what to do.

Decides: when an infra counts as enabled: its provider has told its offers, and not failed since. Never: asks
a provider (the loop of offers does, before this is read).
Follows: a name that is not known is refused with the nearest one; one that is known and not here is told so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sky.domain import price_list
from sky.domain.provider import KindInfo, Rules
from sky.domain.request_errors import RequestFailure
from sky.kit.clock import SECOND_US
from sky.kit.nearby import hint
from sky.store.rows import providers
from sky.store.sql import Row
from sky.store.tx import Tx
from sky.verbs.spec_rules import ensure_default
from sky.wire.request_answers import InfraRecord


def meant(tx: Tx, infras: Sequence[str] | None, rules: Rules) -> list[str]:
    """The ids of the providers that a question is about. Raises RequestFailure.

    A kind that needs no credentials is a provider from when it is asked about.
    """
    known = {*rules.kinds, *price_list.clouds(), *providers.names(tx.connection)}
    for infra in infras or ():
        if infra.partition("/")[0] not in known:
            msg = f"there is no infra {infra!r}; {hint(infra, known)}"
            raise RequestFailure("InvalidCloudError", msg, infra=infra)
    wanted = None if infras is None else {infra.partition("/")[0] for infra in infras}
    for kind, info in rules.kinds.items():
        if not info.credential_fields and (wanted is None or kind in wanted):
            ensure_default(tx, kind, rules)
    states = providers.states(tx.connection)
    if infras is None:
        return [row["id"] for row in states]
    return list(dict.fromkeys(found for infra in infras for found in _named(tx, states, infra)))


def _named(tx: Tx, states: Sequence[Row], infra: str) -> list[str]:
    """The ids of the providers that KIND, NAME, KIND/NAME or KIND/REGION means. Raises RequestFailure."""
    first, _, behind = infra.partition("/")
    mine = [row for row in states if first in {row["name"], row["kind"]}]
    called = [row["id"] for row in mine if behind == row["name"] and row["kind"] == first]
    if called or not behind or not mine:
        return called or [row["id"] for row in mine]
    place = behind.partition("/")[0]
    offers = {row["id"]: providers.offers_of(tx.connection, row["id"]) for row in mine}
    there = {one.region for known in offers.values() for one in known if one.region}
    if place != "*" and there and place not in there:
        msg = f"{place!r} is neither a region nor a provider of {first!r}"
        raise RequestFailure(
            "InvalidCloudError", f"{msg}; {hint(place, there | {row['name'] for row in mine})}", infra=infra
        )
    return [row["id"] for row in mine]


def checked(tx: Tx, infras: Sequence[str] | None, rules: Rules, *, verbose: bool) -> list[InfraRecord]:
    """How each infra is: those that are named, or all that this build knows."""
    ids = set(meant(tx, infras, rules))
    rows = [row for row in providers.states(tx.connection) if row["id"] in ids]
    found = [_provider(tx, row, verbose=verbose) for row in rows]
    there = {row["kind"] for row in rows} | {row["name"] for row in rows}
    names = sorted({*rules.kinds, *(price_list.clouds() if verbose else ())})
    asked = names if infras is None else dict.fromkeys(one.partition("/")[0] for one in infras)
    return [*found, *(_absent(infra, rules) for infra in asked if infra not in there)]


def enabled(tx: Tx, *, expand: bool) -> list[str]:
    """The infras that can be used now, with ``expand`` each with its regions."""
    found: set[str] = set()
    for row in providers.states(tx.connection):
        record = _provider(tx, row, verbose=True)
        if record.enabled:
            found.update(f"{record.infra}/{region}" for region in record.regions if expand)
            if not expand or not record.regions:
                found.add(record.infra)
    return sorted(found)


def _provider(tx: Tx, row: Row, *, verbose: bool) -> InfraRecord:
    error: Mapping[str, Any] | None = row["last_error"]
    fetched = row["offers_fetched_us"]
    known = providers.offers_of(tx.connection, row["id"])
    reason = told = None
    if error is not None:
        reason = str(error.get("message") or "it failed without a word")
        told = f"put it right, then `sky check {row['kind']}`; `sky provider list` shows how it is configured"
    elif fetched is None:
        reason, told = "it has not told its offers yet", f"ask again: `sky check {row['kind']}`"
    regions = sorted({offer.region for offer in known if offer.region})
    return InfraRecord(
        infra=row["kind"],
        name=row["name"],
        enabled=reason is None,
        reason=reason,
        hint=told,
        offers=len(known),
        regions=tuple(regions) if verbose else (),
        checked_at=None if fetched is None else fetched / SECOND_US,
    )


def how_to_add(info: KindInfo) -> str:
    """The command that adds a provider of a kind, with what it has to be given and what it can."""
    needs = info.check_config({})
    if needs is not None and needs.startswith("config.hosts:"):
        told = "`sky provider add NAME --hosts FILE` adds the machines that a YAML file lists below `hosts:`"
    else:
        told = f"`sky provider add NAME --kind {info.kind}` adds one" + (f" ({needs})" if needs else "")
    if info.credential_fields:
        told += f"; `--credential NAME=VALUE` gives it any of: {', '.join(info.credential_fields)}"
    return told


def _absent(infra: str, rules: Rules) -> InfraRecord:
    info = rules.kinds.get(infra)
    if info is None:
        reason = "this release has no provider of that kind"
        told = f"this server can use {', '.join(sorted(rules.kinds))}"
    else:
        reason = "no provider of that kind was added"
        told = how_to_add(info)
    return InfraRecord(infra=infra, enabled=False, reason=reason, hint=told)
