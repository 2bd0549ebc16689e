"""Nodes that are not over are counted, and found by their provider, without reading those that are.

Decides: the index, spelled out. Never: reads ``store`` itself; a test holds both against each other.
Follows: what a scrape of the metrics costs does not grow with the nodes that there were.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_NOT_OVER = "(state NOT IN ('deleted', 'failed'))"


def upgrade() -> None:
    """Have them in an index."""
    text = sa.text(_NOT_OVER)
    op.create_index(
        "ix_nodes_not_over", "nodes", ["provider_id", "state"], sqlite_where=text, postgresql_where=text
    )


def downgrade() -> None:
    """Have the index gone."""
    op.drop_index("ix_nodes_not_over", "nodes")
