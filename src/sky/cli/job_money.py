"""``sky job estimate``, ``balance`` and ``usage``: what jobs cost, as a customer asks for it.

Decides: how amounts and budgets are laid out. Never: does sums; the seller does.
Follows: an estimate is refused as the submit would be, with the same exit code, and changes nothing.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import Parameter

from sky.cli import output
from sky.cli.app import Many, Output, command, noun
from sky.cli.customer import KeyFile, buying, dollars
from sky.cli.errors import usage
from sky.cli.job_request import OPTIONS, Options, Words, outputs_of, wanted
from sky.wire import spending

app = noun("job")

OutputOrFolder = Annotated[
    tuple[str, ...],
    Many,
    Parameter(
        name=["--output", "-o"],
        metavar="DIR|FORMAT",
        help="Folder of the job whose files are kept; or how to print: table, json.",
    ),
]


@command(
    app,
    "sky job estimate --sku cpu-1x --image debian --max-runtime 1h -- uname -a",
    "sky job estimate --template embed --input https://example.com/a.txt:/in",
    instead=("price", "cost"),
)
def estimate(
    *words: Words, options: Options = OPTIONS, key_file: KeyFile = None, output_: OutputOrFolder = ()
) -> int:
    """Say what a job would hold and cost at most. Takes what `sky job submit` takes; submits nothing."""
    outputs, shown = outputs_of(output_)
    with buying(key_file) as jobs:
        told = jobs.estimate(**wanted(words, options, outputs))
    return show_estimate(told, shown)


def show_estimate(told: spending.Estimate, format_: str) -> int:
    """What a job would hold, and cost at most."""
    if format_ == "json":
        output.json(told)
        return 0
    output.pairs(
        [
            ("sku", told.sku),
            ("on", ", ".join(told.providers)),
            ("price", f"{dollars(told.price_usd_per_hour)} an hour"),
            ("longest runtime", f"{told.max_runtime_seconds} s"),
            ("held at submit", dollars(told.hold_usd)),
            ("costs at most", dollars(told.ceiling_usd)),
        ]
    )
    return 0


@command(app, "sky job balance", "sky job balance -o json", instead=("budget", "money", "funds"))
def balance(*, key_file: KeyFile = None, output_: Output = "table") -> int:
    """Show what you may spend, what is held for jobs, and what is left of budgets."""
    with buying(key_file) as jobs:
        told = jobs.balance()
    if output_ == "json":
        output.json(told)
        return 0
    output.pairs(
        [
            ("available", dollars(told.available_usd)),
            ("held", dollars(told.held_usd)),
            *((f"{one.of}'s {one.window}", _budget(one)) for one in told.budgets),
        ]
    )
    return 0


def _budget(one: spending.Budget) -> str:
    spent = f"{dollars(one.charged_usd)} charged, {dollars(one.under_way_usd)} under way"
    return f"{dollars(one.left_usd)} left of {dollars(one.limit_usd)} ({spent})"


@command(
    app,
    "sky job usage",
    "sky job usage --by sku --since 2026-01-01 --until 2026-02-01",
    "sky job usage --by metadata.team -o json",
    name="usage",
    instead=("bill", "spending", "costs"),
)
def usage_(
    *,
    by: Annotated[str, Parameter(metavar="WHAT", help="day, sku, or metadata.KEY.")] = "day",
    since: Annotated[str | None, Parameter(metavar="DAY", help="First day, as 2026-01-31 (UTC).")] = None,
    until: Annotated[str | None, Parameter(metavar="DAY", help="Day after the last one.")] = None,
    key_file: KeyFile = None,
    output_: Output = "table",
) -> int:
    """Add up what your jobs cost that ended in a window: the last 30 days, unless it is said."""
    if not by:
        raise usage("--by names nothing", "write --by day, --by sku or --by metadata.KEY")
    with buying(key_file) as jobs:
        told = jobs.usage(by, since, until)
    if output_ == "json":
        output.json(told)
        return 0
    if told.data:
        output.table((by.upper(), "JOBS", "SECONDS", "USD"), map(_line, (*told.data, _total(told))))
    else:
        output.note(f"no job ended from {told.since} to before {told.until}")
    if told.truncated:
        output.note("there are more groups than are shown; ask for fewer days")
    return 0


def _total(told: spending.Usage) -> spending.UsageLine:
    return msgspec.structs.replace(told.total, key="all")


def _line(line: spending.UsageLine) -> tuple[object, ...]:
    return line.key or "", line.jobs, line.seconds, dollars(line.charged_usd)
