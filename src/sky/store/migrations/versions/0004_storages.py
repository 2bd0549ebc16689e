"""Storages: sets of files that are kept under a name; disks that outlive machines; what clusters ask beyond
a spec; users; which paid jobs run after others, and are begun again.

Decides: the tables, their indexes and the columns, spelled out. Never: reads ``store`` itself; a test holds
both against each other. Follows: a database of before gets empty tables, and computes that ask for no more.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    """Make the tables, their indexes and the columns."""
    op.add_column("computes", sa.Column("narrow", JSON))
    op.add_column("computes", sa.Column("disks", sa.Integer))
    op.create_index(
        "ix_computes_owner",
        "computes",
        ["owner"],
        sqlite_where=sa.text("owner IS NOT NULL"),
        postgresql_where=sa.text("owner IS NOT NULL"),
    )
    op.add_column("clusters", sa.Column("autostop_wait", sa.String(16)))
    op.add_column("clusters", sa.Column("autostop_us", sa.BigInteger))
    op.add_column("clusters", sa.Column("session_us", sa.BigInteger))
    for column in ("after", "retry", "past"):
        op.add_column("jobs", sa.Column(column, JSON))
    op.add_column("jobs", sa.Column("used_us", sa.BigInteger))
    _requests()
    _job_after()
    _disks()
    _storages()
    _archives()
    _users()
    _user_tokens()
    _daemons()


def downgrade() -> None:
    """Remove what was made, newest first."""
    op.drop_table("daemons")
    op.drop_table("user_tokens")
    op.drop_table("users")
    op.drop_table("archives")
    op.drop_table("storages")
    op.drop_table("disks")
    op.drop_table("job_after")
    op.drop_index("ix_cluster_jobs_ended", "cluster_jobs")
    op.drop_index("ix_cluster_jobs_open", "cluster_jobs")
    _partial("ix_cluster_jobs_open", "cluster_jobs", ["cluster_id"], "ended_us IS NULL")
    op.drop_index("ix_requests_ended", "requests")
    op.drop_index("ix_requests_of_cluster", "requests")
    for column in ("used_us", "past", "retry", "after"):
        op.drop_column("jobs", column)
    for column in ("session_us", "autostop_us", "autostop_wait"):
        op.drop_column("clusters", column)
    op.drop_index("ix_computes_owner", "computes")
    op.drop_column("computes", "disks")
    op.drop_column("computes", "narrow")


def _partial(name: str, table: str, columns: list[str], where: str) -> None:
    text = sa.text(where)
    op.create_index(name, table, columns, sqlite_where=text, postgresql_where=text)


def _requests() -> None:
    """What is looked for among all that ever was is found without reading all of it."""
    _partial("ix_requests_of_cluster", "requests", ["cluster_id"], "finished_us IS NULL")
    _partial("ix_requests_ended", "requests", ["finished_us"], "finished_us IS NOT NULL")
    op.drop_index("ix_cluster_jobs_open", "cluster_jobs")
    _partial("ix_cluster_jobs_open", "cluster_jobs", ["cluster_id", "number"], "ended_us IS NULL")
    op.create_index("ix_cluster_jobs_ended", "cluster_jobs", ["cluster_id", "ended_us"])


def _job_after() -> None:
    op.create_table(
        "job_after",
        sa.Column("after_id", sa.String(40), nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.PrimaryKeyConstraint("after_id", "job_id", name="pk_job_after"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_job_after_job", "job_after", ["job_id"])


def _disks() -> None:
    op.create_table(
        "disks",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("compute_id", sa.String(40), nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("provider_id", sa.String(40), nullable=False),
        sa.Column("instance_type", sa.String(64), nullable=False),
        sa.Column("region", sa.String(64)),
        sa.Column("node_id", sa.String(40), nullable=False),
        sa.Column("used", sa.Boolean, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_disks"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_disks_compute", "disks", ["compute_id"])


def _storages() -> None:
    op.create_table(
        "storages",
        sa.Column("seq", BIG, nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("cluster_id", sa.String(40)),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("used_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_storages"),
        sa.UniqueConstraint("owner", "name", name="uq_storages_owner_name"),
    )
    op.create_index(
        "ix_storages_cluster",
        "storages",
        ["cluster_id"],
        sqlite_where=sa.text("cluster_id IS NOT NULL"),
        postgresql_where=sa.text("cluster_id IS NOT NULL"),
    )


def _archives() -> None:
    op.create_table(
        "archives",
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("owner", "sha256", name="pk_archives"),
        sqlite_with_rowid=False,
    )


def _users() -> None:
    op.create_table(
        "users",
        sa.Column("seq", BIG, nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_users"),
        sa.UniqueConstraint("name", name="uq_users_name"),
    )


def _user_tokens() -> None:
    op.create_table(
        "user_tokens",
        sa.Column("seq", BIG, nullable=False),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("user_name", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("role", sa.String(16)),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("hint", sa.String(16), nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("expires_us", sa.BigInteger),
        sa.Column("rotated_us", sa.BigInteger),
        sa.Column("revoked_us", sa.BigInteger),
        sa.Column("used_us", sa.BigInteger),
        sa.PrimaryKeyConstraint("seq", name="pk_user_tokens"),
        sa.UniqueConstraint("id", name="uq_user_tokens_id"),
        sa.UniqueConstraint("sha256", name="uq_user_tokens_sha256"),
    )
    op.create_index("ix_user_tokens_user_name", "user_tokens", ["user_name"])


def _daemons() -> None:
    op.create_table(
        "daemons",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("url", sa.String(256), nullable=False),
        sa.Column("release", sa.String(32), nullable=False),
        sa.Column("deployment", sa.String(64), nullable=False),
        sa.Column("seen_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_daemons"),
        sqlite_with_rowid=False,
    )
