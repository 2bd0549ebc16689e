"""``sky admin account``: the accounts of customers: make one, limit, suspend, close (money: ``admin_money``).

Decides: how limits are written on a command line. Never: does sums; the daemon keeps the ledger.
Follows: each command may be repeated: an account is made once per key, a payment counts once per id, and the
rest says what should be.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from sky.cli import output, render
from sky.cli.app import DryRun, Many, Output, below, command, noun
from sky.cli.computes import LIST_ITEMS, check_limit, tell_more
from sky.cli.connection import PAGE_ITEMS, Api, creating, reading
from sky.cli.customer import dollars
from sky.cli.errors import usage
from sky.client import calls_admin as calls
from sky.wire import admin

app = noun("admin", "sky admin account create acme", "sky admin key create acme", "sky admin ledger verify")
accounts = below(
    app,
    "account",
    "Make accounts, pay in, limit, suspend and close them.",
    "sky admin account create acme",
    "sky admin account topup acme 25 --payment inv-1",
)

Account = Annotated[str, Parameter(name="ACCOUNT", help="Name or id of the account.")]
AMOUNT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
TIERS = ("hyperscaler", "neocloud", "marketplace")
STATES = {"active": "good", "suspended": "busy", "closed": "dim"}


@command(
    accounts,
    "sky admin account create acme",
    "sky admin account create acme --disabled",
    "sky admin account create acme --idempotency-key sign-up-17 -o json",
    instead=("add", "new", "make"),
)
def create(
    name: Annotated[str, Parameter(help="Its name.")],
    /,
    *,
    disabled: Annotated[
        bool, Parameter(negative=(), help="It submits no jobs before `sky admin account enable`.")
    ] = False,
    idempotency_key: Annotated[
        str | None, Parameter(metavar="KEY", help="Said again, it is the same account.")
    ] = None,
    output_: Output = "table",
) -> int:
    """Make an account and print its id."""
    with creating() as api:
        wanted = admin.AccountCreate(name=name, enabled=not disabled)
        account = api.send(calls.create_account(wanted, idempotency_key))
    if output_ == "json":
        output.json(account)
    else:
        output.say(account.id)
    return 0


@command(
    accounts, "sky admin account list", "sky admin account list -o json", name="list", instead=("ls", "ps")
)
def list_(
    *,
    limit: Annotated[int, Parameter(help="How many at most.")] = LIST_ITEMS,
    output_: Output = "table",
) -> int:
    """List accounts with their balances, newest first."""
    check_limit(limit)
    with reading() as api:
        found = list(itertools.islice(_accounts(api), limit + 1))
    shown = tuple(found[:limit])
    if output_ == "json":
        output.json(admin.AccountPage(items=shown))
    elif not shown:
        output.note("no accounts; `sky admin account create` makes one")
    else:
        output.table(HEADINGS, map(_row, shown), flexible=("NAME", "ID"))
    tell_more(len(found) > limit, limit)
    return 0


HEADINGS = ("ID", "NAME", "STATE", "AVAILABLE", "HELD", "AGE")


def _accounts(api: Api) -> Iterator[admin.Account]:
    cursor = None
    while True:
        page = api.send(calls.list_accounts(cursor=cursor, limit=PAGE_ITEMS))
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return


def _state(account: admin.Account) -> output.Cell:
    if account.state == "active" and not account.enabled:
        return output.Cell("disabled", "busy")
    return output.Cell(account.state, STATES[account.state])


def _row(account: admin.Account) -> tuple[object, ...]:
    return (
        account.id,
        account.name,
        _state(account),
        dollars(account.available_usd),
        dollars(account.held_usd),
        render.ago(account.created_at),
    )


@command(
    accounts,
    "sky admin account get acme",
    "sky admin account get acme -o json",
    instead=("show", "describe", "balance"),
)
def get(account: Account, /, *, output_: Output = "table") -> int:
    """Show an account: its state, its balance, its limits."""
    with reading() as api:
        _show(api.send(calls.get_account(account)), output_)
    return 0


def _show(account: admin.Account, output_: str) -> None:
    if output_ == "json":
        output.json(account)
        return
    output.pairs(
        [
            ("id", account.id),
            ("name", account.name),
            ("state", _state(account)),
            ("available", dollars(account.available_usd)),
            ("held", dollars(account.held_usd)),
            *((f"limit {name}", _limit_text(value)) for name, value in account.limits.items()),
            *((f"budget a {window}", dollars(usd)) for window, usd in _budgets(account) if usd is not None),
            ("created", render.when(account.created_at)),
        ]
    )


def _budgets(account: admin.Account) -> tuple[tuple[str, str | None], ...]:
    return ("day", account.budget.day_usd), ("month", account.budget.month_usd)


def _limit_text(value: Mapping[Any, int | None] | int | None) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{tier} {'none' if n is None else n}" for tier, n in value.items())
    return "none" if value is None else str(value)


@command(accounts, "sky admin account enable acme")
def enable(account: Account, /, *, output_: Output = "table") -> int:
    """Let an account submit jobs."""
    return _change(account, "enable", output_)


@command(accounts, "sky admin account disable acme")
def disable(account: Account, /, *, output_: Output = "table") -> int:
    """Let an account submit no jobs; those it has go on."""
    return _change(account, "disable", output_)


@command(accounts, "sky admin account suspend acme", instead=("stop", "block"))
def suspend(account: Account, /, *, output_: Output = "table") -> int:
    """Stop an account from submitting, for now; what runs goes on."""
    return _change(account, "suspend", output_)


@command(accounts, "sky admin account resume acme", instead=("unsuspend", "unblock"))
def resume(account: Account, /, *, output_: Output = "table") -> int:
    """Let a suspended account submit again."""
    return _change(account, "resume", output_)


@command(accounts, "sky admin account close acme --yes", instead=("delete", "remove", "rm"))
def close(
    account: Account,
    /,
    *,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative=(), help="You mean it.")] = False,
    dry_run: DryRun = False,
    output_: Output = "table",
) -> int:
    """End an account for ever: it submits nothing, gets no keys and takes no money."""
    if dry_run:
        with reading() as api:
            there = api.send(calls.get_account(account))
        _show(there, output_)
        would = (
            "is closed already, and stays so" if there.state == "closed" else "would be closed, and was not"
        )
        output.note(f"this was a dry run: this account {would}")
        return 0
    if not yes:
        raise usage(f"closing {account} is final", "add --yes, or use `sky admin account suspend`")
    return _change(account, "close", output_)


def _change(account: str, change: admin.AccountChange, output_: str) -> int:
    with reading() as api:
        _show(api.send(calls.change_account(account, admin.AccountPatch(change=change))), output_)
    return 0


Count = Annotated[str | None, Parameter(metavar="N", help="`none`: no limit; `default`: the deployment's.")]


@command(
    accounts,
    "sky admin account limit acme --jobs 5 --gpus hyperscaler=4",
    "sky admin account limit acme --jobs none --queued default",
    instead=("limits", "quota"),
)
def limit(
    account: Account,
    /,
    *,
    jobs: Annotated[Count, Parameter(help="Jobs under way: N, none, or default.")] = None,
    queued: Annotated[Count, Parameter(help="Jobs that wait: N, none, or default.")] = None,
    gpus: Annotated[
        tuple[str, ...], Many, Parameter(metavar="TIER=N", help="GPUs of a tier: N, none, or default.")
    ] = (),
    output_: Output = "table",
) -> int:
    """Limit what an account may have under way. What is not named stays as it is."""
    if jobs is None and queued is None and not gpus:
        raise usage("no limit was given", "name one: --jobs 5, --queued 10, --gpus hyperscaler=4")
    with reading() as api:
        limits: dict[str, Any] = msgspec.to_builtins(api.send(calls.get_account(account)).limits)
        _set(limits, "max_active_jobs", jobs, "--jobs")
        _set(limits, "max_queued_jobs", queued, "--queued")
        by_tier = _by_tier(limits)
        for text in gpus:
            tier, _, count = text.partition("=")
            if tier not in TIERS:
                raise usage(f"--gpus {text!r} names no tier", f"write TIER=N; tiers are {', '.join(TIERS)}")
            _set(by_tier, tier, count, "--gpus")
        if gpus:
            limits["max_gpus"] = by_tier
        patch = admin.AccountPatch(limits=msgspec.convert(limits, admin.Limits))
        _show(api.send(calls.change_account(account, patch)), output_)
    return 0


def _by_tier(limits: dict[str, Any]) -> dict[str, Any]:
    """The limits of GPUs that there are, each tier's own."""
    if "max_gpus" not in limits:
        return {}
    all_tiers: Any = limits["max_gpus"]
    return {**all_tiers} if isinstance(all_tiers, dict) else dict.fromkeys(TIERS, all_tiers)


def _set(limits: dict[str, Any], name: str, text: str | None, option: str) -> None:
    match text:
        case None:
            return
        case "default":
            limits.pop(name, None)
        case "none":
            limits[name] = None
        case _ if text.isascii() and text.isdigit() and int(text) <= admin.LIMIT_MAX:
            limits[name] = int(text)
        case _:
            hint = f"give a number up to {admin.LIMIT_MAX}, none, or default"
            raise usage(f"{option} {text!r} is no limit", hint)


@command(
    accounts,
    "sky admin account statement acme",
    "sky admin account statement acme --limit 500 -o json",
    instead=("entries", "history", "ledger"),
)
def statement(
    account: Account,
    /,
    *,
    limit: Annotated[int, Parameter(help="How many lines at most.")] = LIST_ITEMS,
    output_: Output = "table",
) -> int:
    """List what was booked on an account, oldest first."""
    check_limit(limit)
    with reading() as api:
        found = list(itertools.islice(_entries(api, account), limit + 1))
    shown = tuple(found[:limit])
    if output_ == "json":
        output.json(admin.Statement(items=shown))
    elif not shown:
        output.note(f"nothing was booked on {account}")
    else:
        headings = ("LINE", "AT", "WHAT", "ON", "USD", "THEN", "FOR")
        output.table(headings, map(_entry_row, shown), flexible=("FOR",))
    tell_more(len(found) > limit, limit)
    return 0


def _entries(api: Api, account: str) -> Iterator[admin.Entry]:
    cursor = None
    while True:
        page = api.send(calls.list_entries(account, cursor=cursor, limit=PAGE_ITEMS))
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return


def _entry_row(entry: admin.Entry) -> tuple[object, ...]:
    style = "good" if not entry.amount_usd.startswith("-") else ""
    return (
        entry.seq,
        f"{entry.at.astimezone():%m-%d %H:%M:%S}",
        entry.kind,
        entry.account,
        output.Cell(entry.amount_usd, style),
        entry.balance_usd,
        entry.job or entry.note or entry.reference.partition(":")[2],
    )
