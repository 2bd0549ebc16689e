"""What the loops last decided, and why.

Decides: nothing. Never: wakes a loop. Follows: what a person is told is what the loop noted.
"""

from __future__ import annotations

from typing import Annotated

from litestar.response.base import ASGIResponse
from msgspec import Meta

from sky.api.operation import Ask, operation, reply
from sky.api.reading import Query
from sky.store.views import loops as views
from sky.wire import v1

TAG = "Loops"


class LoopFilter(Query, frozen=True):
    """Which notes are wanted."""

    key: (
        Annotated[str, Meta(min_length=1, max_length=80, description="An id, or the beginning of a key.")]
        | None
    ) = None


@operation("GET", "/v1/loops", tag=TAG, answers=v1.DecisionPage)
async def list_decisions(ask: Ask, query: LoopFilter) -> ASGIResponse:
    """Read what the loops last decided, the latest first.

    Without a key every loop is among them: one that has nothing to do says why.
    """
    return reply(await ask.unit.db.read(lambda c: views.page(c, query.key, ask.unit.loops)))


ROUTES = (list_decisions,)
