"""Requests of an owner, calls by their state, and machines of the last days are found without the rest.

Decides: the indexes, spelled out. Never: reads ``store`` itself; a test holds both against each other.
Follows: what a list or the dashboard costs does not grow with what there was.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_UNDONE = "finished_us IS NULL"
_NO_RESULT = "finished_us IS NOT NULL AND result_sha256 IS NULL"


def upgrade() -> None:
    """Have them in indexes."""
    op.create_index("ix_requests_owner", "requests", ["owner", "seq"])
    op.create_index("ix_nodes_terminated", "nodes", ["terminated_us"])
    for name, which in (("ix_tasks_undone", _UNDONE), ("ix_tasks_no_result", _NO_RESULT)):
        text = sa.text(which)
        op.create_index(name, "tasks", ["seq"], sqlite_where=text, postgresql_where=text)


def downgrade() -> None:
    """Have the indexes gone."""
    op.drop_index("ix_tasks_no_result", "tasks")
    op.drop_index("ix_tasks_undone", "tasks")
    op.drop_index("ix_nodes_terminated", "nodes")
    op.drop_index("ix_requests_owner", "requests")
