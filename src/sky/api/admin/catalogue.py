"""How it stands with the file of what is sold, for the operator.

Decides: nothing. Never: reads the file; ``server/listing`` does. Follows: a mistake in a new version is
shown here until it is mended, while the version before it holds.
"""

from __future__ import annotations

from litestar.response.base import ASGIResponse

from sky.api.operation import Ask, operation, reply
from sky.wire import admin

TAG = "Catalogue"


@operation("GET", "/admin/v1/catalogue", tag=TAG, answers=admin.CatalogueStatus)
async def get_catalogue(ask: Ask) -> ASGIResponse:
    """Show which file is sold from, and whether its newest version holds."""
    selling = ask.unit.selling
    state, catalogue = selling.catalogue_state(), selling.offering().catalogue
    return reply(
        admin.CatalogueStatus(
            file=state.file,
            read_at=state.read_at,
            skus=tuple(catalogue.skus),
            templates=tuple(catalogue.templates),
            warnings=state.warnings,
            error=state.error,
        )
    )


ROUTES = (get_catalogue,)
