"""A customer's money: its balance, what its jobs cost, what a job would cost.

Decides: which windows of days may be asked about. Never: holds or moves anything.
Follows: an estimate is refused exactly as a submit of the same body would be, and leaves nothing behind.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

from litestar.response.base import ASGIResponse

from sky.api.jobs.route import PREFIX, JobAsk, reply, route
from sky.api.jobs.submit import ESTIMATE_CODES, may_submit
from sky.api.selling import KeyHolder
from sky.domain.budget import KEY, begun_us
from sky.domain.job_errors import JobRefused
from sky.domain.money import usd_text
from sky.kit.clock import SECOND_US
from sky.store.views import spending as views
from sky.verbs import job_rules
from sky.verbs import jobs as verbs
from sky.wire import jobs, spending

TAG = "money"
DAYS_MAX = 366
DAYS_USUAL = 30
LABEL = "metadata."
_EPOCH = date(1970, 1, 1)


@route("GET", f"{PREFIX}/balance", tag=TAG, answers=spending.Balance, codes=("quota_check_failed",))
async def get_balance(ask: JobAsk) -> ASGIResponse:
    """Show your balance

    What may be spent, what is held for jobs that are not over, and the budgets of the key and its account.
    """
    holder = await ask.customer()
    ask.need_store("balance")
    has = await ask.selling.accounts.balance(holder.customer)
    now_us = ask.unit.clock.now_us()
    budgets = await ask.unit.db.read(lambda c: _budgets(c, holder, now_us))
    return reply(
        spending.Balance(
            object="compute.balance",
            available_usd=usd_text(has.available_micro),
            held_usd=usd_text(has.held_micro),
            budgets=budgets,
        )
    )


@route(
    "GET",
    f"{PREFIX}/usage",
    tag=TAG,
    answers=spending.Usage,
    codes=("invalid_parameter",),
    query=(
        {
            "name": "by",
            "description": "What to add up by: `day`, `sku`, or `metadata.` and a key of metadata.",
            "schema": {"type": "string", "default": "day"},
        },
        {
            "name": "since",
            "description": "The first day, as 2026-01-31. By default, 29 days before the last one.",
            "schema": {"type": "string", "format": "date"},
        },
        {
            "name": "until",
            "description": "The day after the last one. By default tomorrow, in UTC.",
            "schema": {"type": "string", "format": "date"},
        },
    ),
)
async def get_usage(ask: JobAsk) -> ASGIResponse:
    """Add up what your jobs cost

    Of jobs that ended in a window of at most 366 days, by day, sku, or a key of their metadata.
    """
    holder = await ask.customer()
    ask.need_store("usage")
    by = ask.one("by") or "day"
    label = by.removeprefix(LABEL) if by.startswith(LABEL) else None
    if (by not in ("day", "sku") and not label) or any(sign in by for sign in '"\\'):
        msg = f"by is day, sku, or metadata. and a key, such as metadata.team; it is {by[:40]!r}"
        raise JobRefused("invalid_parameter", msg, param="by")
    today = datetime.fromtimestamp(ask.unit.clock.now_us() / SECOND_US, UTC).date()
    until = _day(ask, "until") or today + timedelta(days=1)
    since = _day(ask, "since") or max(_EPOCH, until - timedelta(days=DAYS_USUAL))
    if not 0 < (until - since).days <= DAYS_MAX:
        msg = f"since {since} and until {until} are {(until - since).days} days apart, of 1 to {DAYS_MAX}"
        raise JobRefused("invalid_parameter", msg, param="since")
    owner = holder.customer.owner
    rows, more = await ask.unit.db.read(lambda c: views.usage(c, owner, by, label, _us(since), _us(until)))
    return reply(
        spending.Usage(
            object="compute.usage",
            by=by,
            since=since.isoformat(),
            until=until.isoformat(),
            data=tuple(_line(_shown(row["key"], by), row) for row in rows),
            total=_line(None, _total(rows)),
            truncated=more,
        )
    )


@route(
    "POST",
    f"{PREFIX}/jobs:estimate",
    tag=TAG,
    answers=spending.Estimate,
    body=jobs.SubmitJobRequest,
    codes=ESTIMATE_CODES,
)
async def estimate_job(ask: JobAsk) -> ASGIResponse:
    """Say what a job would cost

    The body is that of a submit, and is checked in the same order, down to account, limits and balance;
    nothing is held and nothing written.
    """
    holder = await ask.customer()
    request: jobs.SubmitJobRequest = await ask.body(jobs.SubmitJobRequest)
    offering = ask.selling.offering()
    found = job_rules.requested(request, offering)
    ask.need_store("estimate")
    wanted = job_rules.launchable(*found, offering)
    platform, now_us = ask.selling.settings.platform, ask.unit.clock.now_us()

    def look(connection: Any) -> None:
        may_submit(connection, holder)
        verbs.check_room(connection, holder.customer, wanted, platform, now_us)

    await ask.unit.db.read(look)
    has = await ask.selling.accounts.balance(holder.customer)
    if has.available_micro < wanted.hold_micro:
        raise verbs.short_of(wanted, has.available_micro)
    return reply(
        spending.Estimate(
            object="compute.estimate",
            sku=wanted.sku.id,
            providers=tuple(dict.fromkeys(place.cloud for place in wanted.places)),
            max_runtime_seconds=wanted.max_runtime_seconds,
            price_usd_per_hour=usd_text(wanted.sku.price_micro),
            hold_usd=usd_text(wanted.hold_micro),
            ceiling_usd=usd_text(wanted.ceiling_micro),
        )
    )


def _budgets(connection: Any, holder: KeyHolder, now_us: int) -> tuple[spending.Budget, ...]:
    found: list[spending.Budget] = []
    customer = holder.customer
    if customer.budgets is None:
        raise JobRefused("quota_check_failed", "your budgets cannot be read; tell your seller")
    for budget in customer.budgets:
        key_id = customer.key_id if budget.of == KEY else None
        spent = views.spent(connection, customer.owner, key_id, begun_us(budget.window, now_us))
        found.append(
            spending.Budget(
                of="key" if budget.of == KEY else "account",
                window="day" if budget.window == "day" else "month",
                limit_usd=usd_text(budget.micro),
                charged_usd=usd_text(spent.charged_micro),
                under_way_usd=usd_text(spent.under_way_micro),
                left_usd=usd_text(max(0, budget.micro - spent.micro)),
            )
        )
    return tuple(found)


def _day(ask: JobAsk, name: str) -> date | None:
    text = ask.one(name)
    if text is None:
        return None
    try:
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            raise ValueError(text)
        return max(_EPOCH, date.fromisoformat(text))
    except ValueError:
        msg = f"{name} is a day, such as 2026-01-31; it is {text[:40]!r}"
        raise JobRefused("invalid_parameter", msg, param=name) from None


def _us(day: date) -> int:
    return (day - _EPOCH).days * views.DAY_US


def _shown(key: str | None, by: str) -> str | None:
    return (_EPOCH + timedelta(days=int(key))).isoformat() if by == "day" and key is not None else key


def _total(rows: list[Any]) -> dict[str, int]:
    return {
        name: sum(int(row[name]) for row in rows)
        for name in ("jobs", "seconds", "gpu_seconds", "charged_micro")
    }


def _line(key: str | None, row: Any) -> spending.UsageLine:
    return spending.UsageLine(
        key=key,
        jobs=int(row["jobs"]),
        seconds=int(row["seconds"]),
        gpu_seconds=int(row["gpu_seconds"]),
        charged_usd=usd_text(int(row["charged_micro"])),
    )


ROUTES = (get_balance, get_usage, estimate_job)
