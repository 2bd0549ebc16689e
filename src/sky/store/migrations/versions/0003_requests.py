"""Requests and what they said, clusters, and their jobs.

Decides: their tables and indexes, spelled out. Never: reads ``store`` itself; a test holds both against
each other. Follows: a database of before gets empty tables, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    """Make every table and index."""
    for make in _TABLES.values():
        make()


def downgrade() -> None:
    """Remove every table, and its indexes with it."""
    for name in reversed(_TABLES):
        op.drop_table(name)


def _partial(name: str, table: str, columns: Sequence[str], where: str, *, unique: bool = False) -> None:
    """An index of the rows that meet a condition."""
    op.create_index(
        name,
        table,
        list(columns),
        unique=unique,
        sqlite_where=sa.text(where),
        postgresql_where=sa.text(where),
    )


def _requests() -> None:
    op.create_table(
        "requests",
        sa.Column("seq", BIG, nullable=False),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("cluster_name", sa.String(64)),
        sa.Column("cluster_id", sa.String(40)),
        sa.Column("job_number", sa.Integer),
        sa.Column("body", JSON, nullable=False),
        sa.Column("result", JSON),
        sa.Column("error", JSON),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("started_us", sa.BigInteger),
        sa.Column("again_us", sa.BigInteger),
        sa.Column("finished_us", sa.BigInteger),
        sa.PrimaryKeyConstraint("seq", name="pk_requests"),
        sa.UniqueConstraint("id", name="uq_requests_id"),
    )
    _partial("ix_requests_open", "requests", ["seq"], "finished_us IS NULL")


def _request_lines() -> None:
    op.create_table(
        "request_lines",
        sa.Column("request_id", sa.String(40), nullable=False),
        sa.Column("index", sa.Integer, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("at_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("request_id", "index", name="pk_request_lines"),
        sqlite_with_rowid=False,
    )


def _clusters() -> None:
    op.create_table(
        "clusters",
        sa.Column("seq", BIG, nullable=False),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("compute_id", sa.String(40), nullable=False),
        sa.Column("num_nodes", sa.Integer, nullable=False),
        sa.Column("resources", JSON, nullable=False),
        sa.Column("specs", JSON, nullable=False),
        sa.Column("autostop_minutes", sa.Integer, nullable=False),
        sa.Column("autostop_down", sa.Boolean, nullable=False),
        sa.Column("next_job", sa.Integer, nullable=False),
        sa.Column("last_use", sa.Text),
        sa.Column("last_error", JSON),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("launched_us", sa.BigInteger, nullable=False),
        sa.Column("busy_us", sa.BigInteger, nullable=False),
        sa.Column("up_us", sa.BigInteger),
        sa.Column("removed_us", sa.BigInteger),
        sa.PrimaryKeyConstraint("seq", name="pk_clusters"),
        sa.UniqueConstraint("id", name="uq_clusters_id"),
    )
    _partial("uq_clusters_live_name", "clusters", ["name"], "removed_us IS NULL", unique=True)


def _cluster_jobs() -> None:
    op.create_table(
        "cluster_jobs",
        sa.Column("seq", BIG, nullable=False),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("cluster_id", sa.String(40), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("name", sa.String(256)),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("body", JSON, nullable=False),
        sa.Column("num_nodes", sa.Integer, nullable=False),
        sa.Column("gpus", sa.Integer, nullable=False),
        sa.Column("setup_tasks", JSON),
        sa.Column("run_tasks", JSON),
        sa.Column("exit_codes", JSON),
        sa.Column("error", JSON),
        sa.Column("stop_error", JSON),
        sa.Column("submitted_us", sa.BigInteger, nullable=False),
        sa.Column("started_us", sa.BigInteger),
        sa.Column("stop_us", sa.BigInteger),
        sa.Column("ended_us", sa.BigInteger),
        sa.PrimaryKeyConstraint("seq", name="pk_cluster_jobs"),
        sa.UniqueConstraint("cluster_id", "number", name="uq_cluster_jobs_cluster_id_number"),
        sa.UniqueConstraint("id", name="uq_cluster_jobs_id"),
    )
    _partial("ix_cluster_jobs_open", "cluster_jobs", ["cluster_id"], "ended_us IS NULL")


_TABLES = {
    "requests": _requests,
    "request_lines": _request_lines,
    "clusters": _clusters,
    "cluster_jobs": _cluster_jobs,
}
