"""Indexes for what is counted and for what is removed: jobs whose money is held, deliveries that wait, and
what is over for long; when a function was last used.

Decides: the indexes and the column, spelled out. Never: reads ``store`` itself; a test holds both against
each other. Follows: counting what is not settled, and finding what is old, cost by how much of it there is.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

INDEXES = (
    ("ix_jobs_unsettled", "jobs", ["state"], "settled_us IS NULL"),
    ("ix_deliveries_pending", "deliveries", ["webhook_id", "due_us"], "state = 'pending'"),
    ("ix_deliveries_over", "deliveries", ["created_us"], "state != 'pending'"),
    ("ix_computes_deleted", "computes", ["deleted_us"], "deleted_us IS NOT NULL"),
    ("ix_clusters_removed", "clusters", ["removed_us"], "removed_us IS NOT NULL"),
)


def upgrade() -> None:
    """Make the column and the indexes."""
    op.add_column("functions", sa.Column("used_us", sa.BigInteger))
    for name, table, columns, which in INDEXES:
        op.create_index(name, table, columns, sqlite_where=sa.text(which), postgresql_where=sa.text(which))


def downgrade() -> None:
    """Drop them."""
    for name, table, _, _ in INDEXES:
        op.drop_index(name, table_name=table)
    op.drop_column("functions", "used_us")
