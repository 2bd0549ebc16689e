"""Whether a job fits into the budgets of its key and its account.

Decides: which budget is named when it does not. Never: counts a job that is over at more than it was charged.
Follows: it is asked in the transaction that writes the job, so that of two that race for what is left, one is
refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sky.domain.budget import KEY, Budget, begun_us
from sky.domain.job_errors import JobRefused
from sky.domain.money import usd_text
from sky.store.views import spending


def check(
    connection: Any, budgets: Iterable[Budget], owner: str, key_id: str, ceiling_micro: int, now_us: int
) -> None:
    """Refuse a job whose whole cost does not fit. Raises JobRefused ``budget_exceeded``."""
    for budget in budgets:
        of_key = key_id if budget.of == KEY else None
        spent = spending.spent(connection, owner, of_key, begun_us(budget.window, now_us))
        if spent.micro + ceiling_micro > budget.micro:
            left = max(0, budget.micro - spent.micro)
            msg = (
                f"this {budget.of} may spend {usd_text(budget.micro)} USD a {budget.window}: "
                f"{usd_text(spent.charged_micro)} are charged, {usd_text(spent.under_way_micro)} may be by "
                f"jobs under way, {usd_text(left)} are left, and this job may cost "
                f"{usd_text(ceiling_micro)}. Nothing was held: "
                "choose a shorter max_runtime_seconds or a cheaper sku, or have the budget raised"
            )
            raise JobRefused("budget_exceeded", msg)
