"""Requests and jobs that wait are found without reading those beside them.

Decides: the indexes, spelled out. Never: reads ``store`` itself; a test holds both against each other; drops
a column that daemons of the schema before name, which may run beside ours. Follows: a launch costs the same
however many others wait, and so does a look at a cluster.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the indexes."""
    _partial("ix_requests_of_name", "requests", ["cluster_name"], "finished_us IS NULL")
    _partial("ix_cluster_jobs_state", "cluster_jobs", ["cluster_id", "state", "number"], "ended_us IS NULL")


def downgrade() -> None:
    """Drop them."""
    op.drop_index("ix_cluster_jobs_state", "cluster_jobs")
    op.drop_index("ix_requests_of_name", "requests")


def _partial(name: str, table: str, columns: list[str], where: str) -> None:
    text = sa.text(where)
    op.create_index(name, table, columns, sqlite_where=text, postgresql_where=text)
