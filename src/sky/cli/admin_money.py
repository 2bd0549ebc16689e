"""``sky admin account topup|credit|refund``: money onto a customer's balance, and off it again.

Decides: how an amount is written on a command line. Never: does sums; the daemon keeps the ledger.
Follows: each may be repeated: a payment counts once per id, and is taken off again once.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from sky.cli import output
from sky.cli.admin_accounts import AMOUNT, Account, accounts
from sky.cli.app import DryRun, Output, Yes, command
from sky.cli.asking import confirm
from sky.cli.connection import reading
from sky.cli.customer import dollars
from sky.cli.errors import usage
from sky.client import calls_admin as calls
from sky.wire import admin

Amount = Annotated[str, Parameter(metavar="USD", help="US dollars, such as 25 or 12.50.")]
Note = Annotated[str | None, Parameter(metavar="TEXT", help="What to remember with it.")]


@command(
    accounts,
    "sky admin account topup acme 25 --payment inv-1",
    "sky admin account topup acme 12.50 --payment ch_1",
)
def topup(
    account: Account,
    usd: Amount,
    /,
    *,
    payment: Annotated[str, Parameter(metavar="ID", help="Its id where it was paid; it counts once.")],
    note: Note = None,
    output_: Output = "table",
) -> int:
    """Add a payment to an account. Told again under the same id, nothing changes."""
    return _pay_in(account, usd, payment, note, output_, gift=False)


@command(
    accounts,
    "sky admin account credit acme 5 --payment welcome-acme --note welcome",
    instead=("gift", "grant"),
)
def credit(
    account: Account,
    usd: Amount,
    /,
    *,
    payment: Annotated[str, Parameter(metavar="ID", help="An id you choose; it counts once.")],
    note: Note = None,
    output_: Output = "table",
) -> int:
    """Give money to an account that nobody paid. Told again under the same id, nothing changes."""
    return _pay_in(account, usd, payment, note, output_, gift=True)


@command(
    accounts,
    "sky admin account refund acme --payment inv-1 --reason 'paid twice' --yes",
    "sky admin account refund acme --payment inv-1 --amount 5 --reason typo --yes",
    instead=("takeback", "debit", "reverse"),
)
def refund(
    account: Account,
    /,
    *,
    payment: Annotated[str, Parameter(metavar="ID", help="The id under which it was counted.")],
    reason: Annotated[str, Parameter(metavar="TEXT", help="Why, for the account's statement.")],
    amount: Annotated[str | None, Parameter(metavar="USD", help="So much of it; else all.")] = None,
    gift: Annotated[bool, Parameter(negative=(), help="It was a credit, and not a payment.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    output_: Output = "table",
) -> int:
    """Take a payment off a balance again, never more than may be spent. Told again, nothing changes.

    Nothing is sent to where it was paid: pay it back there.
    """
    taken = None if amount is None else _amount(amount)
    if not yes and not dry_run:
        confirm(f"take {payment} off the balance of {account}?", "nothing was taken")
    wanted = admin.RefundCreate(payment=payment, reason=reason, amount_usd=taken, gift=gift)
    with reading() as api:
        told, new = api.send(calls.refund(account, wanted, dry_run=dry_run))
    before = None if new else f"{payment} was taken off before"
    if not dry_run:
        return _told(told, output_, before)
    if output_ == "json":
        output.json(told)
    else:
        output.say(f"{told.name} would have {dollars(told.available_usd)}")
    output.note(f"this was a dry run: nothing was taken{f'; {before}' if before else ''}")
    return 0


def _pay_in(account: str, usd: str, payment: str, note: str | None, output_: str, *, gift: bool) -> int:
    wanted = admin.PaymentCreate(amount_usd=_amount(usd), payment=payment, gift=gift, note=note)
    with reading() as api:
        told, new = api.send(calls.pay_in(account, wanted))
    return _told(told, output_, None if new else f"{payment} was counted before")


def _amount(usd: str) -> str:
    amount = usd.removeprefix("$")
    if not AMOUNT.fullmatch(amount):
        raise usage(f"{usd!r} is no amount in US dollars", "write it like 25 or 12.50, six decimals at most")
    return amount


def _told(account: admin.Account, output_: str, before: str | None) -> int:
    if output_ == "json":
        output.json(account)
    else:
        output.say(f"{account.name} has {dollars(account.available_usd)}")
    if before is not None:
        output.note(f"{before}; nothing changed")
    return 0
