"""``sky admin``: what an operator who sells does about keys and the ledger (accounts: ``admin_accounts``).

Decides: how a key is shown, once, and with which exit code a ledger ends that does not add up.
Never: keeps a key. Follows: ``KEY=$(sky admin key create acme)`` works, and a script that checks the ledger
needs to look at the exit code only.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from sky.cli import admin_money, admin_upkeep, admin_webhooks, catalogue, output, render
from sky.cli.admin_accounts import Account, app
from sky.cli.admin_budgets import Cap, budget_of, said
from sky.cli.app import DryRun, Output, Yes, below, command
from sky.cli.asking import confirm
from sky.cli.connection import creating, reading
from sky.cli.definition import seconds
from sky.cli.errors import FAILED
from sky.cli.output import Cell
from sky.client import calls_admin as calls
from sky.wire import admin
from sky.wire.jobs import Scope

__all__ = ["admin_money", "admin_upkeep", "admin_webhooks", "app", "catalogue"]

keys = below(
    app,
    "key",
    "Make, list and revoke the keys of an account.",
    "sky admin key create acme",
    "sky admin key list acme",
)
ledger = below(app, "ledger", "Check that all money adds up.", "sky admin ledger verify")


@command(keys, "sky admin key budget KEY --day 5", "sky admin key budget KEY --day none", instead=("cap",))
def budget(
    key: Annotated[str, Parameter(name="KEY", help="Id of the key: `sky admin key list ACCOUNT`.")],
    /,
    *,
    day: Cap = None,
    month: Cap = None,
    output_: Output = "table",
) -> int:
    """Say how much may be spent with a key, within the budget of its account. What is not named, or is none,
    is without one."""
    wanted = budget_of(day, month, admin.Budget())
    with reading() as api:
        told = api.send(calls.change_key(key, admin.KeyPatch(budget=wanted)))
    if output_ == "json":
        output.json(told)
    else:
        output.say(f"{told.id} may spend {said(told.budget)}")
    return 0


@command(
    keys,
    "sky admin key create acme",
    "sky admin key create acme --name ci --scope read --expires 30d",
    "SKY_API_KEY=$(sky admin key create acme)",
    instead=("add", "new", "make"),
)
def create(
    account: Account,
    /,
    *,
    name: Annotated[str, Parameter(help="What it is for.")] = "default",
    scope: Annotated[Scope, Parameter(help="read: only looks; jobs: submits and cancels too.")] = "jobs",
    expires: Annotated[str | None, Parameter(metavar="TIME", help="Good for so long: 12h, 30d.")] = None,
    output_: Output = "table",
) -> int:
    """Make a key and print it. It is shown now and never again."""
    wanted = admin.KeyCreate(
        name=name,
        scopes=(scope,),
        expires_in_seconds=None if expires is None else seconds(expires, "--expires"),
    )
    with creating() as api:
        key = api.send(calls.create_key(account, wanted))
    if output_ == "json":
        output.json(key)
    else:
        output.say(key.key or "")
        output.note(f"this is {key.id}; keep it now, it is never shown again")
    return 0


@command(
    keys, "sky admin key list acme", "sky admin key list acme -o json", name="list", instead=("ls", "get")
)
def list_(account: Account, /, *, output_: Output = "table") -> int:
    """List the keys of an account, oldest first."""
    with reading() as api:
        page = api.send(calls.list_keys(account))
    if output_ == "json":
        output.json(page)
    elif not page.items:
        output.note(f"{account} has no keys; `sky admin key create {account}` makes one")
    else:
        output.table(
            ("ID", "NAME", "KEY", "SCOPES", "AGE", "STATE"), map(_row, page.items), flexible=("NAME",)
        )
    return 0


def _row(key: admin.Key) -> tuple[object, ...]:
    if key.revoked_at is not None:
        state = Cell("revoked", "bad")
    elif key.expires_at is not None:
        state = Cell(f"until {key.expires_at.astimezone():%Y-%m-%d %H:%M}", "busy")
    else:
        state = Cell("good", "good")
    return key.id, key.name, f"{key.hint}…", ", ".join(key.scopes), render.ago(key.created_at), state


@command(
    keys,
    "sky admin key revoke key_01…",
    "sky admin key revoke key_01… --yes",
    instead=("delete", "remove", "rm"),
)
def revoke(
    key: Annotated[str, Parameter(help="Id of the key: `sky admin key list ACCOUNT`.")],
    /,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    output_: Output = "table",
) -> int:
    """Refuse a key from its next request on. Said twice, it is the same."""
    if not yes and not dry_run:
        confirm(f"Revoke {key}? Whoever has it is refused at once; jobs go on.", "nothing was revoked")
    with reading() as api:
        revoked = api.send(calls.revoke_key(key, dry_run=dry_run))
    if output_ == "json":
        output.json(revoked)
    elif dry_run:
        output.say(f"{revoked.id} ({revoked.name}, {revoked.hint}…) would be revoked")
    else:
        output.note(f"{revoked.id} is revoked")
    if dry_run:
        output.note("this was a dry run: nothing was revoked")
    return 0


@command(
    ledger,
    "sky admin ledger verify",
    "sky admin ledger verify -o json",
    instead=("check", "audit"),
)
def verify(*, output_: Output = "table") -> int:
    """Add up the whole ledger; exit code 1, and what is wrong, when something does not add up."""
    with reading() as api:
        audit = api.send(calls.audit_ledger())
    if output_ == "json":
        output.json(audit)
    elif audit.ok:
        output.say(f"{audit.lines} lines add up")
    else:
        rows = ((one.seq or None, one.what) for one in audit.findings)
        output.table(("LINE", "WHAT DOES NOT ADD UP"), rows)
    return 0 if audit.ok else FAILED
