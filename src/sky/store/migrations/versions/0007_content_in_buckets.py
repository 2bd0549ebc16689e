"""Where content is that is in a bucket.

Decides: the column, spelled out. Never: reads ``store`` itself; a test holds both against each other.
Follows: what is in a row or in a file has none, so that daemons of the schema before find theirs there.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("blobs", sa.Column("place", sa.String(128)))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("blobs", "place")
