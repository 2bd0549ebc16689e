"""Clusters, their jobs and their costs as they are now, for whoever looks again and again.

Decides: nothing; the views of the requests ``status``, ``queue`` and ``cost_report`` do. Never: writes
anything down: a page that stays open for a day leaves no request behind. Follows: whoever wants an answer
that is kept under an id asks the request of that name.
"""

from __future__ import annotations

from typing import Annotated

from litestar.response.base import ASGIResponse
from msgspec import Meta

from sky.api.operation import Ask, operation, reply
from sky.api.reading import Query
from sky.api.requests.logs import cluster_of
from sky.api.requests.versions import user_of
from sky.domain.errors import Forbidden, NotFound
from sky.store.views import cluster_costs
from sky.store.views import clusters as views
from sky.wire.request_answers import Looked
from sky.wire.requests import Named

TAG = "Requests"


class ClustersQuery(Query, frozen=True):
    """Which clusters; none named: all of the caller's, or with ``all_users`` of everybody."""

    name: Named | None = None
    all_users: bool = False


@operation("GET", "/api/clusters", tag=TAG, answers=Looked)
async def look_at_clusters(ask: Ask, query: ClustersQuery) -> ASGIResponse:
    """Show clusters as the request `status` does, and keep nothing.

    For programs that look again and again. A name that there is not leaves the list empty.
    """
    unit = ask.unit
    owner = None if query.all_users else user_of(ask)
    names = None if query.name is None else (query.name,)
    now_us = unit.clock.now_us()
    return reply(Looked(items=tuple(await unit.db.read(lambda c: views.status(c, owner, names, now_us)))))


class JobsQuery(Query, frozen=True):
    """``all_users``: whoever's cluster it is."""

    all_users: bool = False


@operation("GET", "/api/clusters/{name}/jobs", tag=TAG, answers=Looked, errors=[Forbidden, NotFound])
async def look_at_jobs(ask: Ask, name: str, query: JobsQuery) -> ASGIResponse:
    """Show the jobs of a cluster as the request `queue` does, and keep nothing."""
    user = user_of(ask)
    found = await ask.unit.db.read(
        lambda c: views.queue(
            c, cluster_of(c, name[:64], user, all_users=query.all_users), skip_finished=False
        )
    )
    return reply(Looked(items=tuple(found)))


class CostsQuery(Query, frozen=True):
    """Clusters of the last so many days."""

    days: Annotated[int, Meta(ge=1, le=3_650)] = cluster_costs.DAYS


@operation("GET", "/api/costs", tag=TAG, answers=Looked)
async def look_at_costs(ask: Ask, query: CostsQuery) -> ASGIResponse:
    """Show what clusters have cost as the request `cost_report` does, and keep nothing.

    To admins those of everybody, to others their own.
    """
    unit = ask.unit
    owner = None if ask.caller.admin else user_of(ask)
    now_us = unit.clock.now_us()
    found = await unit.db.read(lambda c: cluster_costs.report(c, owner, query.days, now_us))
    return reply(Looked(items=tuple(found)))


ROUTES = (look_at_clusters, look_at_jobs, look_at_costs)
