"""A database says which installation it is, so that a copy of it does not take itself for the original.

Decides: the table, spelled out. Never: reads ``store`` itself; a test holds both against each other.
Follows: the daemon that starts next gives it its row; daemons of the release before do not ask for one.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Have the table, empty."""
    op.create_table(
        "installation",
        sa.Column("identity", sa.String(40), nullable=False),
        sa.Column("origin", sa.String(16), nullable=False),
        sa.Column("database_mark", sa.String(200), nullable=False),
        sa.Column("whole", sa.Boolean(), nullable=False),
        sa.Column("made_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("identity", name="pk_installation"),
    )


def downgrade() -> None:
    """Have the table gone."""
    op.drop_table("installation")
