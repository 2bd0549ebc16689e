"""The first schema: everything in ``store/schema`` as of release 0.1."""

from __future__ import annotations

from alembic import op

from sky.store.schema import metadata

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make every table and index."""
    metadata.create_all(op.get_bind(), checkfirst=True)


def downgrade() -> None:
    """Remove every table and index."""
    metadata.drop_all(op.get_bind())
