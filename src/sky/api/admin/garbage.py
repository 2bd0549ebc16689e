"""What may be removed because it is over for long or nothing names it, for the operator.

Decides: nothing. Never: removes anything itself: it has the loops look now instead of later. Follows: what
is told is what the loops find, found in the same way.
"""

from __future__ import annotations

from litestar.response.base import ASGIResponse

from sky.api.operation import Ask, operation, reply
from sky.store.views import garbage as views
from sky.wire import admin

TAG = "Upkeep"
PATH = "/admin/v1/garbage"


@operation("GET", PATH, tag=TAG, answers=admin.GarbageReport)
async def get_garbage(ask: Ask) -> ASGIResponse:
    """Show what may be removed now."""
    return reply(admin.GarbageReport(await _found(ask)))


@operation("POST", PATH, tag=TAG, answers=admin.GarbageReport, status=202)
async def collect_garbage(ask: Ask) -> ASGIResponse:
    """Have it removed now rather than at its time; it goes bit by bit."""
    found = await _found(ask)
    keys = [f"collect/{kind}" for kind in views.KINDS]
    await ask.unit.db.write(lambda tx: [tx.touch(key) for key in (*keys, "forget/old")])
    return reply(admin.GarbageReport(found, begun=True), 202)


async def _found(ask: Ask) -> tuple[admin.Garbage, ...]:
    unit = ask.unit
    now_us = unit.clock.now_us()
    rows = await unit.db.read(lambda c: views.found(c, unit.keeping, now_us))
    strays = await unit.blobs.stray_files(now_us)
    size = sum(size for _, size in strays)
    return (*rows, admin.Garbage(kind=views.FILES, count=len(strays), bytes=size))


ROUTES = (get_garbage, collect_garbage)
