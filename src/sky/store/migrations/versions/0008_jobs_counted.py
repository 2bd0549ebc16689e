"""What an owner has under way is counted without reading the jobs.

Decides: the index, spelled out. Never: reads ``store`` itself; a test holds both against each other.
Follows: a submit costs about the same however many jobs its owner has under way.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_LIVE = "state IN ('queued', 'provisioning', 'running')"


def upgrade() -> None:
    """Have all that is counted in the index."""
    op.drop_index("ix_jobs_live", "jobs")
    _partial("ix_jobs_in_use", ["owner", "tier", "state", "gpu_count"])


def downgrade() -> None:
    """Have the index as it was."""
    op.drop_index("ix_jobs_in_use", "jobs")
    _partial("ix_jobs_live", ["owner", "tier"])


def _partial(name: str, columns: list[str]) -> None:
    text = sa.text(_LIVE)
    op.create_index(name, "jobs", columns, sqlite_where=text, postgresql_where=text)
