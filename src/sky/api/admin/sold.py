"""The jobs that were bought, of all who buy, for the operator.

Decides: nothing. Never: shows what a job runs, prints or is given: that is its owner's. Follows: an operator
sees what sells, what it brings and what failed, without a customer's key.
"""

from __future__ import annotations

from typing import Annotated

from litestar.response.base import ASGIResponse
from msgspec import Meta

from sky.api.admin.accounts import PageQuery
from sky.api.operation import Ask, operation, reply
from sky.domain.errors import NotFound
from sky.store.views import accounts as views
from sky.wire import admin

TAG = "Jobs"


class SoldQuery(PageQuery, frozen=True):
    """Whose jobs are wanted, or which one, and which part of the list."""

    account: Annotated[str, Meta(max_length=64, description="Id or name of an account.")] | None = None
    job: Annotated[str, Meta(max_length=64, description="Id of a job: that one alone.")] | None = None


@operation("GET", "/admin/v1/jobs", tag=TAG, answers=admin.SoldJobPage, errors=[NotFound])
async def list_sold(ask: Ask, query: SoldQuery) -> ASGIResponse:
    """List jobs that were bought, newest first, with what their machines cost."""
    page = await ask.unit.db.read(
        lambda c: views.sold(c, query.account, query.job, cursor=query.cursor, limit=query.limit)
    )
    return reply(page)


ROUTES = (list_sold,)
