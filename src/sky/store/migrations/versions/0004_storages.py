"""Storages: sets of files that are kept under a name; what clusters ask of machines beyond a spec; users.

Decides: the tables, their indexes and the column, spelled out. Never: reads ``store`` itself; a test holds
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
    """Make the tables, their indexes and the column."""
    op.add_column("computes", sa.Column("narrow", JSON))
    _storages()
    _users()
    _user_tokens()


def downgrade() -> None:
    """Remove what was made, newest first."""
    op.drop_table("user_tokens")
    op.drop_table("users")
    op.drop_table("storages")
    op.drop_column("computes", "narrow")


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
