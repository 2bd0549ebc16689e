"""Paid jobs: accounts, keys, the ledger, jobs with their events and files, webhooks.

Decides: their tables and indexes, spelled out. Never: reads ``store`` itself; a test holds both against
each other. Follows: a database without paid jobs gets empty tables, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
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


def _partial(name: str, table: str, columns: Sequence[str], where: str) -> None:
    """An index of the rows that meet a condition."""
    op.create_index(name, table, list(columns), sqlite_where=sa.text(where), postgresql_where=sa.text(where))


def _accounts() -> None:
    op.create_table(
        "accounts",
        sa.Column("seq", BIG, nullable=False),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("limits", JSON),
        sa.Column("caps", JSON),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_accounts"),
        sa.UniqueConstraint("id", name="uq_accounts_id"),
        sa.UniqueConstraint("name", name="uq_accounts_name"),
    )


def _api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("seq", BIG, nullable=False),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("account_id", sa.String(40), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("hint", sa.String(16), nullable=False),
        sa.Column("scopes", JSON, nullable=False),
        sa.Column("caps", JSON),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("expires_us", sa.BigInteger),
        sa.Column("revoked_us", sa.BigInteger),
        sa.PrimaryKeyConstraint("seq", name="pk_api_keys"),
        sa.UniqueConstraint("id", name="uq_api_keys_id"),
        sa.UniqueConstraint("sha256", name="uq_api_keys_sha256"),
    )
    op.create_index("ix_api_keys_account_id", "api_keys", ["account_id"])


def _ledger() -> None:
    op.create_table(
        "ledger",
        sa.Column("seq", BIG, nullable=False),
        sa.Column("reference", sa.String(200), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("account", sa.String(64), nullable=False),
        sa.Column("amount_micro", sa.BigInteger, nullable=False),
        sa.Column("ordinal", sa.Integer),
        sa.Column("balance_micro", sa.BigInteger),
        sa.Column("job_id", sa.String(40)),
        sa.Column("note", sa.String(256)),
        sa.Column("at_us", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_ledger"),
        sa.UniqueConstraint("reference", "account", name="uq_ledger_reference_account"),
        sa.UniqueConstraint("account", "ordinal", name="uq_ledger_account_ordinal"),
        sa.CheckConstraint("balance_micro IS NULL OR balance_micro >= 0", name="ck_ledger_not_below_zero"),
    )
    _partial("ix_ledger_job", "ledger", ["job_id"], "job_id IS NOT NULL")


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("seq", BIG, nullable=False),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("owner", sa.String(80), nullable=False),
        sa.Column("key_id", sa.String(40), nullable=False),
        sa.Column("backend", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("sku", sa.String(64), nullable=False),
        sa.Column("tier", sa.String(16), nullable=False),
        sa.Column("gpu_count", sa.Integer, nullable=False),
        sa.Column("interruptible", sa.Boolean, nullable=False),
        sa.Column("price_micro", sa.BigInteger, nullable=False),
        sa.Column("machines", JSON, nullable=False),
        sa.Column("spec", JSON, nullable=False),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("max_runtime_seconds", sa.Integer, nullable=False),
        sa.Column("holds", sa.Integer, nullable=False),
        sa.Column("compute_id", sa.String(40)),
        sa.Column("prepare_task", sa.String(40)),
        sa.Column("run_task", sa.String(40)),
        sa.Column("upload_task", sa.String(40)),
        sa.Column("placement", JSON),
        sa.Column("stop_error", JSON),
        sa.Column("error", JSON),
        sa.Column("exit_code", sa.Integer),
        sa.Column("settled_micro", sa.BigInteger),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("started_us", sa.BigInteger),
        sa.Column("ended_us", sa.BigInteger),
        sa.Column("exhausted_us", sa.BigInteger),
        sa.Column("finished_us", sa.BigInteger),
        sa.Column("settled_us", sa.BigInteger),
        sa.Column("manifest_us", sa.BigInteger),
        sa.Column("truncated", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_jobs"),
        sa.UniqueConstraint("id", name="uq_jobs_id"),
    )
    _partial("ix_jobs_live", "jobs", ["owner", "tier"], "state IN ('queued', 'provisioning', 'running')")
    op.create_index("ix_jobs_owner", "jobs", ["owner", "seq"])
    op.create_index("ix_jobs_finished", "jobs", ["owner", "finished_us"])


def _console_orders() -> None:
    op.create_table(
        "console_orders",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("owner", sa.String(80), nullable=False),
        sa.Column("amount_micro", sa.BigInteger, nullable=False),
        sa.Column("leaving", sa.Boolean, nullable=False),
        sa.Column("noted_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("job_id", name="pk_console_orders"),
        sqlite_with_rowid=False,
    )


def _job_events() -> None:
    op.create_table(
        "job_events",
        sa.Column("seq", BIG, nullable=False),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("owner", sa.String(80), nullable=False),
        sa.Column("type", sa.String(40), nullable=False),
        sa.Column("data", JSON, nullable=False),
        sa.Column("at_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_job_events"),
        sa.UniqueConstraint("id", name="uq_job_events_id"),
    )
    op.create_index("ix_job_events_job", "job_events", ["job_id", "seq"])
    op.create_index("ix_job_events_owner", "job_events", ["owner", "seq"])


def _artifacts() -> None:
    op.create_table(
        "artifacts",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("path", sa.String(1024), nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("allowed_us", sa.BigInteger, nullable=False),
        sa.Column("stored_us", sa.BigInteger),
        sa.PrimaryKeyConstraint("job_id", "path", name="pk_artifacts"),
        sqlite_with_rowid=False,
    )


def _webhooks() -> None:
    op.create_table(
        "webhooks",
        sa.Column("seq", BIG, nullable=False),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("owner", sa.String(80), nullable=False),
        sa.Column("url", sa.String(2048), nullable=False),
        sa.Column("secrets", sa.LargeBinary, nullable=False),
        sa.Column("types", JSON),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("disabled_reason", sa.String(256)),
        sa.Column("after_seq", sa.BigInteger, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("deleted_us", sa.BigInteger),
        sa.PrimaryKeyConstraint("seq", name="pk_webhooks"),
        sa.UniqueConstraint("id", name="uq_webhooks_id"),
    )
    op.create_index("ix_webhooks_owner", "webhooks", ["owner"])


def _deliveries() -> None:
    op.create_table(
        "deliveries",
        sa.Column("seq", BIG, nullable=False),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("webhook_id", sa.String(40), nullable=False),
        sa.Column("event_seq", sa.BigInteger, nullable=False),
        sa.Column("event_id", sa.String(40), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("last_status", sa.Integer),
        sa.Column("last_error", sa.String(256)),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("due_us", sa.BigInteger),
        sa.Column("tried_us", sa.BigInteger),
        sa.PrimaryKeyConstraint("seq", name="pk_deliveries"),
        sa.UniqueConstraint("webhook_id", "event_seq", name="uq_deliveries_webhook_id_event_seq"),
        sa.UniqueConstraint("id", name="uq_deliveries_id"),
    )


_TABLES = {
    "accounts": _accounts,
    "api_keys": _api_keys,
    "ledger": _ledger,
    "jobs": _jobs,
    "console_orders": _console_orders,
    "job_events": _job_events,
    "artifacts": _artifacts,
    "webhooks": _webhooks,
    "deliveries": _deliveries,
}
