"""The tables of paid jobs: accounts, their keys, the ledger's lines, jobs, their events and files, webhooks.

Decides: columns, keys and indexes. Never: what a state means (``domain``).
Conventions are those of ``schema``. A customer's ledger line cannot be written with a balance below zero, and
its place in its account's chain can be taken once: both are the database's word, whoever writes.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from sky.store.schema import BIG, JSON, metadata


def _seq() -> sa.Column[int]:
    return sa.Column("seq", BIG, primary_key=True, autoincrement=True)


def _us(name: str, *, required: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=not required)


accounts = sa.Table(
    "accounts",
    metadata,
    _seq(),
    sa.Column("id", sa.String(40), nullable=False, unique=True),
    sa.Column("name", sa.String(64), nullable=False, unique=True),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("version", sa.Integer, nullable=False, default=1),
    sa.Column("enabled", sa.Boolean, nullable=False, default=False),
    sa.Column("limits", JSON),
    sa.Column("caps", JSON),
    _us("created_us", required=True),
)

api_keys = sa.Table(
    "api_keys",
    metadata,
    _seq(),
    sa.Column("id", sa.String(40), nullable=False, unique=True),
    sa.Column("account_id", sa.String(40), nullable=False, index=True),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False, unique=True),
    sa.Column("hint", sa.String(16), nullable=False),
    sa.Column("scopes", JSON, nullable=False),
    sa.Column("caps", JSON),
    _us("created_us", required=True),
    _us("expires_us"),
    _us("revoked_us"),
)

ledger = sa.Table(
    "ledger",
    metadata,
    _seq(),
    sa.Column("reference", sa.String(200), nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("account", sa.String(64), nullable=False),
    sa.Column("amount_micro", sa.BigInteger, nullable=False),
    sa.Column("ordinal", sa.Integer),
    sa.Column("balance_micro", sa.BigInteger),
    sa.Column("job_id", sa.String(40)),
    sa.Column("note", sa.String(256)),
    _us("at_us", required=True),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.UniqueConstraint("reference", "account"),
    sa.UniqueConstraint("account", "ordinal"),
    sa.CheckConstraint("balance_micro IS NULL OR balance_micro >= 0", name="ck_ledger_not_below_zero"),
)
_of_job = ledger.c.job_id.is_not(None)
sa.Index("ix_ledger_job", ledger.c.job_id, sqlite_where=_of_job, postgresql_where=_of_job)

jobs = sa.Table(
    "jobs",
    metadata,
    _seq(),
    sa.Column("id", sa.String(40), nullable=False, unique=True),
    sa.Column("owner", sa.String(80), nullable=False),
    sa.Column("key_id", sa.String(40), nullable=False),
    sa.Column("backend", sa.String(16), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("version", sa.Integer, nullable=False, default=1),
    sa.Column("sku", sa.String(64), nullable=False),
    sa.Column("tier", sa.String(16), nullable=False),
    sa.Column("gpu_count", sa.Integer, nullable=False),
    sa.Column("interruptible", sa.Boolean, nullable=False),
    sa.Column("price_micro", sa.BigInteger, nullable=False),
    sa.Column("machines", JSON, nullable=False),
    sa.Column("spec", JSON, nullable=False),
    sa.Column("labels", JSON, nullable=False),
    sa.Column("max_runtime_seconds", sa.Integer, nullable=False),
    sa.Column("holds", sa.Integer, nullable=False, default=1),
    sa.Column("compute_id", sa.String(40)),
    sa.Column("prepare_task", sa.String(40)),
    sa.Column("run_task", sa.String(40)),
    sa.Column("upload_task", sa.String(40)),
    sa.Column("placement", JSON),
    sa.Column("stop_error", JSON),
    sa.Column("error", JSON),
    sa.Column("exit_code", sa.Integer),
    sa.Column("settled_micro", sa.BigInteger),
    _us("created_us", required=True),
    _us("started_us"),
    _us("ended_us"),
    _us("exhausted_us"),
    _us("finished_us"),
    _us("settled_us"),
    _us("manifest_us"),
    sa.Column("truncated", sa.Boolean, nullable=False, default=False),
    sa.Column("after", JSON),
    sa.Column("retry", JSON),
    sa.Column("past", JSON),
    _us("used_us"),
)
sa.Index("ix_jobs_owner", jobs.c.owner, jobs.c.seq)
sa.Index("ix_jobs_finished", jobs.c.owner, jobs.c.finished_us)
JOB_IS_LIVE = jobs.c.state.in_([sa.literal_column(f"'{s}'") for s in ("queued", "provisioning", "running")])
# All that is counted of them at a submit: the jobs themselves are large.
sa.Index(
    "ix_jobs_in_use",
    jobs.c.owner,
    jobs.c.tier,
    jobs.c.state,
    jobs.c.gpu_count,
    sqlite_where=JOB_IS_LIVE,
    postgresql_where=JOB_IS_LIVE,
)
JOB_IS_UNSETTLED = jobs.c.settled_us.is_(None)
"""Its hold may stand."""
sa.Index("ix_jobs_unsettled", jobs.c.state, sqlite_where=JOB_IS_UNSETTLED, postgresql_where=JOB_IS_UNSETTLED)

# Which job runs after which; ``jobs.after`` has the same, in the order in which it was said.
job_after = sa.Table(
    "job_after",
    metadata,
    sa.Column("after_id", sa.String(40), primary_key=True),
    sa.Column("job_id", sa.String(40), primary_key=True),
    sqlite_with_rowid=False,
)
sa.Index("ix_job_after_job", job_after.c.job_id)

# Orders to a console of which it is not certain that it has them; ``ordinal`` 1 is the hold at submit.
console_orders = sa.Table(
    "console_orders",
    metadata,
    sa.Column("job_id", sa.String(40), primary_key=True),
    sa.Column("ordinal", sa.Integer, nullable=False),
    sa.Column("owner", sa.String(80), nullable=False),
    sa.Column("amount_micro", sa.BigInteger, nullable=False),
    sa.Column("leaving", sa.Boolean, nullable=False),
    _us("noted_us", required=True),
    sqlite_with_rowid=False,
)

job_events = sa.Table(
    "job_events",
    metadata,
    _seq(),
    sa.Column("id", sa.String(40), nullable=False, unique=True),
    sa.Column("job_id", sa.String(40), nullable=False),
    sa.Column("owner", sa.String(80), nullable=False),
    sa.Column("type", sa.String(40), nullable=False),
    sa.Column("data", JSON, nullable=False),
    _us("at_us", required=True),
)
sa.Index("ix_job_events_job", job_events.c.job_id, job_events.c.seq)
sa.Index("ix_job_events_owner", job_events.c.owner, job_events.c.seq)

# Files that jobs wrote. A row is there once its upload was allowed; ``stored_us`` is when it arrived whole.
artifacts = sa.Table(
    "artifacts",
    metadata,
    sa.Column("job_id", sa.String(40), primary_key=True),
    sa.Column("path", sa.String(1024), primary_key=True),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    _us("allowed_us", required=True),
    _us("stored_us"),
    sqlite_with_rowid=False,
)

webhooks = sa.Table(
    "webhooks",
    metadata,
    _seq(),
    sa.Column("id", sa.String(40), nullable=False, unique=True),
    sa.Column("owner", sa.String(80), nullable=False, index=True),
    sa.Column("url", sa.String(2048), nullable=False),
    sa.Column("secrets", sa.LargeBinary, nullable=False),
    sa.Column("types", JSON),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("disabled_reason", sa.String(256)),
    sa.Column("after_seq", sa.BigInteger, nullable=False),
    _us("created_us", required=True),
    _us("deleted_us"),
)

deliveries = sa.Table(
    "deliveries",
    metadata,
    _seq(),
    sa.Column("id", sa.String(40), nullable=False, unique=True),
    sa.Column("webhook_id", sa.String(40), nullable=False),
    sa.Column("event_seq", sa.BigInteger, nullable=False),
    sa.Column("event_id", sa.String(40), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False, default=0),
    sa.Column("last_status", sa.Integer),
    sa.Column("last_error", sa.String(256)),
    _us("created_us", required=True),
    _us("due_us"),
    _us("tried_us"),
    sa.UniqueConstraint("webhook_id", "event_seq"),
)
IS_PENDING = deliveries.c.state == sa.literal_column("'pending'")
"""A delivery that is still to be made."""
sa.Index(
    "ix_deliveries_pending",
    deliveries.c.webhook_id,
    deliveries.c.due_us,
    sqlite_where=IS_PENDING,
    postgresql_where=IS_PENDING,
)
IS_FAILED = deliveries.c.state == sa.literal_column("'failed'")
"""One that is not tried again by itself."""
sa.Index(
    "ix_deliveries_failed",
    deliveries.c.webhook_id,
    deliveries.c.event_seq,
    sqlite_where=IS_FAILED,
    postgresql_where=IS_FAILED,
)
IS_OVER = deliveries.c.state != sa.literal_column("'pending'")
sa.Index("ix_deliveries_over", deliveries.c.created_us, sqlite_where=IS_OVER, postgresql_where=IS_OVER)
