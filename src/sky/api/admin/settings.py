"""The daemon's settings, for the operator to read.

Decides: nothing; what is shown of each is worked out when the daemon starts. Never: changes one: a daemon is
started anew for that. Follows: what lets in is not shown.
"""

from __future__ import annotations

from litestar.response.base import ASGIResponse

from sky.api.operation import Ask, operation, reply
from sky.wire import admin

TAG = "Upkeep"


@operation("GET", "/admin/v1/settings", tag=TAG, answers=admin.SettingList)
async def list_settings(ask: Ask) -> ASGIResponse:
    """Show which settings hold."""
    return reply(admin.SettingList(items=ask.unit.settings.told))


ROUTES = (list_settings,)
