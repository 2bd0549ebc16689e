"""``sky admin account budget``: how much an account may spend in a day and in a month.

Decides: how a budget is written on a command line. Never: looks at what was spent; each submit does.
Follows: said twice, it is the same; a budget is for what is submitted from then on.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from sky.cli import output
from sky.cli.admin_accounts import AMOUNT, Account, accounts
from sky.cli.app import Output, command
from sky.cli.connection import reading
from sky.cli.customer import dollars
from sky.cli.errors import usage
from sky.client import calls_admin as calls
from sky.wire import admin

NONE = "none"
Cap = Annotated[str | None, Parameter(metavar="USD", help="US dollars (UTC days and months), or none.")]


@command(
    accounts,
    "sky admin account budget acme --day 20 --month 300",
    "sky admin account budget acme --day none",
    instead=("budgets", "cap"),
)
def budget(account: Account, /, *, day: Cap = None, month: Cap = None, output_: Output = "table") -> int:
    """Say how much an account may spend. What is not named stays as it is."""
    with reading() as api:
        wanted = budget_of(day, month, api.send(calls.get_account(account)).budget)
        told = api.send(calls.change_account(account, admin.AccountPatch(budget=wanted)))
    if output_ == "json":
        output.json(told)
    else:
        output.say(f"{told.name} may spend {said(told.budget)}")
    return 0


def budget_of(day: str | None, month: str | None, before: admin.Budget) -> admin.Budget:
    """The budget that a command line asks for."""
    if day is None and month is None:
        raise usage("no budget was given", "name one: --day 20, --month 300, --day none")
    return admin.Budget(
        day_usd=_amount(day, before.day_usd, "--day"), month_usd=_amount(month, before.month_usd, "--month")
    )


def said(budget: admin.Budget) -> str:
    """A budget in words."""
    parts = (("day", budget.day_usd), ("month", budget.month_usd))
    told = [f"{dollars(usd)} a {window}" for window, usd in parts if usd is not None]
    return " and ".join(told) or "whatever its balance allows"


def _amount(text: str | None, before: str | None, option: str) -> str | None:
    if text is None:
        return before
    if text == NONE:
        return None
    amount = text.removeprefix("$")
    if not AMOUNT.fullmatch(amount):
        raise usage(f"{option} {text!r} is no amount in US dollars", "write it like 25 or 12.50, or none")
    return amount
