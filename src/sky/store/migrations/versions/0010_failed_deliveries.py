"""Messages to webhooks that failed are counted, and found, without reading those that were delivered.

Decides: the index, spelled out. Never: reads ``store`` itself; a test holds both against each other.
Follows: what a look at a webhook costs does not grow with what was sent to it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_FAILED = "state = 'failed'"


def upgrade() -> None:
    """Have them in an index."""
    text = sa.text(_FAILED)
    op.create_index(
        "ix_deliveries_failed",
        "deliveries",
        ["webhook_id", "event_seq"],
        sqlite_where=text,
        postgresql_where=text,
    )


def downgrade() -> None:
    """Have the index gone."""
    op.drop_index("ix_deliveries_failed", "deliveries")
