"""The first schema, of release 0.1.

Decides: every table and index, spelled out, so that this step stays what it was when the schema moves on.
Never: reads ``store/schema``; a test holds both against each other.
Follows: SQLite and PostgreSQL get the same tables from the same words.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
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


def _computes() -> None:
    op.create_table(
        "computes",
        sa.Column("seq", BIG, nullable=False),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("name", sa.String(64)),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("spec", JSON, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("observed_generation", sa.Integer, nullable=False),
        sa.Column("drift", JSON),
        sa.Column("pending", JSON),
        sa.Column("target_nodes", sa.Integer, nullable=False),
        sa.Column("scaled_us", sa.BigInteger),
        sa.Column("last_error", JSON),
        sa.Column("lease_owner", sa.String(256)),
        sa.Column("lease_expires_us", sa.BigInteger),
        sa.Column("owner", sa.String(80)),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("ready_us", sa.BigInteger),
        sa.Column("deleting_us", sa.BigInteger),
        sa.Column("deleted_us", sa.BigInteger),
        sa.PrimaryKeyConstraint("seq", name="pk_computes"),
        sa.UniqueConstraint("id", name="uq_computes_id"),
    )
    op.create_index("ix_computes_state_seq", "computes", ["state", "seq"])
    _partial("uq_computes_live_name", "computes", ["name"], "deleted_us IS NULL", unique=True)


def _generations() -> None:
    op.create_table(
        "generations",
        sa.Column("compute_id", sa.String(40), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("spec", JSON, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("compute_id", "number", name="pk_generations"),
        sqlite_with_rowid=False,
    )


def _nodes() -> None:
    op.create_table(
        "nodes",
        sa.Column("seq", BIG, nullable=False),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("compute_id", sa.String(40), nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("provider_id", sa.String(40)),
        sa.Column("provider_kind", sa.String(64)),
        sa.Column("offer", JSON),
        sa.Column("passed_over", JSON),
        sa.Column("market", sa.String(16)),
        sa.Column("price_micro", sa.BigInteger, nullable=False),
        sa.Column("billing_unit", sa.String(8)),
        sa.Column("accelerator", sa.String(64)),
        sa.Column("machine", sa.String(256)),
        sa.Column("address", sa.String(256)),
        sa.Column("binding", JSON),
        sa.Column("token", sa.String(64), nullable=False),
        sa.Column("boot", sa.String(64)),
        sa.Column("heard", sa.Integer, nullable=False),
        sa.Column("python", sa.String(16)),
        sa.Column("slots", sa.Integer, nullable=False),
        sa.Column("window", sa.Integer, nullable=False),
        sa.Column("last_error", JSON),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("bound_us", sa.BigInteger),
        sa.Column("launch_deadline_us", sa.BigInteger),
        sa.Column("connect_deadline_us", sa.BigInteger),
        sa.Column("launched_us", sa.BigInteger),
        sa.Column("ready_us", sa.BigInteger),
        sa.Column("last_seen_us", sa.BigInteger),
        sa.Column("worked_us", sa.BigInteger),
        sa.Column("unwanted_us", sa.BigInteger),
        sa.Column("deleting_us", sa.BigInteger),
        sa.Column("fenced_us", sa.BigInteger),
        sa.Column("terminated_us", sa.BigInteger),
        sa.PrimaryKeyConstraint("seq", name="pk_nodes"),
        sa.UniqueConstraint("id", name="uq_nodes_id"),
    )
    op.create_index("ix_nodes_compute", "nodes", ["compute_id", "seq"])
    _partial(
        "uq_nodes_live_rank",
        "nodes",
        ["compute_id", "rank"],
        "(state NOT IN ('lost', 'deleting', 'deleted', 'failed'))",
        unique=True,
    )


def _tasks() -> None:
    op.create_table(
        "tasks",
        sa.Column("seq", BIG, nullable=False),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("compute_id", sa.String(40), nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("function_sha256", sa.String(64), nullable=False),
        sa.Column("args_sha256", sa.String(64), nullable=False),
        sa.Column("dispatch", sa.String(8), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("rank", sa.Integer),
        sa.Column("safe_retries", sa.Integer, nullable=False),
        sa.Column("ambiguous_retries", sa.Integer, nullable=False),
        sa.Column("timeout_seconds", sa.Integer),
        sa.Column("correlation_id", sa.String(256)),
        sa.Column("owner", sa.String(80)),
        sa.Column("result_sha256", sa.String(64)),
        sa.Column("outcome_seq", sa.BigInteger),
        sa.Column("consumed", sa.Integer, nullable=False),
        sa.Column("submitted_us", sa.BigInteger, nullable=False),
        sa.Column("deadline_us", sa.BigInteger),
        sa.Column("cancel_requested_us", sa.BigInteger),
        sa.Column("finished_us", sa.BigInteger),
        sa.PrimaryKeyConstraint("seq", name="pk_tasks"),
        sa.UniqueConstraint("id", name="uq_tasks_id"),
    )
    op.create_index("ix_tasks_compute", "tasks", ["compute_id", "seq"])
    _partial("ix_tasks_correlation", "tasks", ["correlation_id", "outcome_seq"], "correlation_id IS NOT NULL")
    _partial(
        "ix_tasks_deadline",
        "tasks",
        ["compute_id", "deadline_us"],
        "deadline_us IS NOT NULL AND finished_us IS NULL",
    )
    _partial("ix_tasks_finished", "tasks", ["compute_id", "finished_us"], "finished_us IS NOT NULL")


def _executions() -> None:
    op.create_table(
        "executions",
        sa.Column("seq", BIG, nullable=False),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("task_id", sa.String(40), nullable=False),
        sa.Column("compute_id", sa.String(40), nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("place", sa.Integer, nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("wanted_rank", sa.Integer),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("node_id", sa.String(40)),
        sa.Column("retry_of", sa.String(40)),
        sa.Column("retry_kind", sa.String(16)),
        sa.Column("result_sha256", sa.String(64)),
        sa.Column("error", JSON),
        sa.Column("late_report", JSON),
        sa.Column("console_lines", sa.Integer, nullable=False),
        sa.Column("items", sa.Integer, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("assigned_us", sa.BigInteger),
        sa.Column("started_us", sa.BigInteger),
        sa.Column("finished_us", sa.BigInteger),
        sa.Column("cancel_deadline_us", sa.BigInteger),
        sa.PrimaryKeyConstraint("seq", name="pk_executions"),
        sa.UniqueConstraint("id", name="uq_executions_id"),
    )
    _partial(
        "ix_executions_on_node",
        "executions",
        ["node_id"],
        "node_id IS NOT NULL AND finished_us IS NULL",
    )
    op.create_index("ix_executions_task", "executions", ["task_id", "ordinal"])
    _partial(
        "ix_executions_waiting",
        "executions",
        ["compute_id", "seq"],
        "node_id IS NULL AND finished_us IS NULL",
    )


def _items() -> None:
    op.create_table(
        "items",
        sa.Column("execution_id", sa.String(40), nullable=False),
        sa.Column("index", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("value_sha256", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("execution_id", "index", name="pk_items"),
        sqlite_with_rowid=False,
    )


def _functions() -> None:
    op.create_table(
        "functions",
        sa.Column("seq", BIG, nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("codec", sa.String(64), nullable=False),
        sa.Column("name", sa.String(256)),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_functions"),
        sa.UniqueConstraint("sha256", name="uq_functions_sha256"),
    )


def _blobs() -> None:
    op.create_table(
        "blobs",
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("content", sa.LargeBinary),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_blobs"),
    )


def _providers() -> None:
    op.create_table(
        "providers",
        sa.Column("seq", BIG, nullable=False),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("config", JSON, nullable=False),
        sa.Column("credentials", sa.LargeBinary),
        sa.Column("offers_ttl_seconds", sa.Integer, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("offers_fetched_us", sa.BigInteger),
        sa.Column("last_error", JSON),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_providers"),
        sa.UniqueConstraint("id", name="uq_providers_id"),
        sa.UniqueConstraint("name", name="uq_providers_name"),
    )


def _offers() -> None:
    op.create_table(
        "offers",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("provider_id", sa.String(40), nullable=False),
        sa.Column("body", JSON, nullable=False),
        sa.Column("fetched_us", sa.BigInteger, nullable=False),
        sa.Column("expires_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_offers"),
    )
    op.create_index("ix_offers_provider_id", "offers", ["provider_id"])


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("seq", BIG, nullable=False, autoincrement=False),
        sa.Column("at_us", sa.BigInteger, nullable=False),
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("compute_id", sa.String(40)),
        sa.Column("node_id", sa.String(40)),
        sa.Column("task_id", sa.String(40)),
        sa.Column("payload", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_events"),
    )
    op.create_index("ix_events_compute", "events", ["compute_id", "seq"])
    _partial("ix_events_task", "events", ["task_id", "seq"], "task_id IS NOT NULL")


def _counters() -> None:
    op.create_table(
        "counters",
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("value", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_counters"),
        sqlite_with_rowid=False,
    )


def _idempotency() -> None:
    op.create_table(
        "idempotency",
        sa.Column("key", sa.String(320), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("answer", JSON, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_idempotency"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_idempotency_created", "idempotency", ["created_us"])


def _passes() -> None:
    op.create_table(
        "passes",
        sa.Column("key", sa.String(80), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("due_us", sa.BigInteger),
        sa.Column("holder", sa.String(64)),
        sa.Column("held_until_us", sa.BigInteger),
        sa.Column("decision", sa.Text),
        sa.Column("decided_us", sa.BigInteger),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("error", sa.Text),
        sa.PrimaryKeyConstraint("key", name="pk_passes"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_passes_due", "passes", ["due_us"])


def _rendezvous() -> None:
    op.create_table(
        "rendezvous",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("node_id", sa.String(40), nullable=False),
        sa.Column("url", sa.String(256), nullable=False),
        sa.Column("taken", sa.Boolean, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_rendezvous"),
    )
    op.create_index("ix_rendezvous_node_id", "rendezvous", ["node_id"])


_TABLES = {
    "computes": _computes,
    "generations": _generations,
    "nodes": _nodes,
    "tasks": _tasks,
    "executions": _executions,
    "items": _items,
    "functions": _functions,
    "blobs": _blobs,
    "providers": _providers,
    "offers": _offers,
    "events": _events,
    "counters": _counters,
    "idempotency": _idempotency,
    "passes": _passes,
    "rendezvous": _rendezvous,
}
