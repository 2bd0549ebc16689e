"""The tables: one per noun, each with a state and a version, beside an event log and the loops' notes.

Decides: columns, keys and indexes. Never: what a state means (``domain``).
Moments are integer microseconds since 1970 in UTC (``_us``); prices integer micro-dollars an hour
(``_micro``). ``version`` guards a row against two writers; ``revision`` is what clients compare, and only
an intent moves it. Rows are ordered by ``seq``, never by id or time.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from sky.store.sql import Number

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
BIG = sa.BigInteger().with_variant(sa.Integer, "sqlite")
JSON = sa.JSON(none_as_null=True)


def _seq() -> sa.Column[int]:
    return sa.Column("seq", BIG, primary_key=True, autoincrement=True)


def _id() -> sa.Column[str]:
    return sa.Column("id", sa.String(40), nullable=False, unique=True)


def _version(name: str = "version") -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False, default=1)


def _us(name: str, *, required: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=not required)


def _partial(name: str, which: sa.ColumnElement[bool], *columns: sa.Column[Any]) -> None:
    """An index over the rows of which that holds."""
    sa.Index(name, *columns, sqlite_where=which, postgresql_where=which)


computes = sa.Table(
    "computes",
    metadata,
    _seq(),
    _id(),
    sa.Column("name", sa.String(64)),
    sa.Column("state", sa.String(16), nullable=False),
    _version(),
    _version("revision"),
    sa.Column("spec", JSON, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False, default=1),
    sa.Column("observed_generation", sa.Integer, nullable=False, default=0),
    sa.Column("drift", JSON),
    sa.Column("pending", JSON),
    sa.Column("target_nodes", sa.Integer, nullable=False),
    _us("scaled_us"),
    sa.Column("last_error", JSON),
    sa.Column("lease_owner", sa.String(256)),
    _us("lease_expires_us"),
    sa.Column("owner", sa.String(80)),
    _us("created_us", required=True),
    _us("ready_us"),
    _us("deleting_us"),
    _us("deleted_us"),
    sa.Column("narrow", JSON),
    sa.Column("disks", sa.Integer),
)
sa.Index(
    "uq_computes_live_name",
    computes.c.name,
    unique=True,
    sqlite_where=computes.c.deleted_us.is_(None),
    postgresql_where=computes.c.deleted_us.is_(None),
)
sa.Index("ix_computes_state_seq", computes.c.state, computes.c.seq)
_owned = computes.c.owner.is_not(None)
sa.Index("ix_computes_owner", computes.c.owner, sqlite_where=_owned, postgresql_where=_owned)
_deleted = computes.c.deleted_us.is_not(None)
sa.Index("ix_computes_deleted", computes.c.deleted_us, sqlite_where=_deleted, postgresql_where=_deleted)

generations = sa.Table(
    "generations",
    metadata,
    sa.Column("compute_id", sa.String(40), primary_key=True),
    sa.Column("number", Number, primary_key=True),
    sa.Column("spec", JSON, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
    _us("created_us", required=True),
    sqlite_with_rowid=False,
)

nodes = sa.Table(
    "nodes",
    metadata,
    _seq(),
    _id(),
    sa.Column("compute_id", sa.String(40), nullable=False),
    sa.Column("rank", Number, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    _version(),
    _version("revision"),
    sa.Column("provider_id", sa.String(40)),
    sa.Column("provider_kind", sa.String(64)),
    sa.Column("offer", JSON),
    sa.Column("passed_over", JSON),
    sa.Column("market", sa.String(16)),
    sa.Column("price_micro", sa.BigInteger, nullable=False, default=0),
    sa.Column("billing_unit", sa.String(8)),
    sa.Column("accelerator", sa.String(64)),
    sa.Column("machine", sa.String(256)),
    sa.Column("address", sa.String(256)),
    sa.Column("binding", JSON),
    sa.Column("token", sa.String(64), nullable=False),
    sa.Column("boot", sa.String(64)),
    sa.Column("heard", sa.Integer, nullable=False, default=0),
    sa.Column("python", sa.String(16)),
    sa.Column("slots", sa.Integer, nullable=False, default=0),
    sa.Column("window", sa.Integer, nullable=False, default=0),
    sa.Column("last_error", JSON),
    _us("created_us", required=True),
    _us("bound_us"),
    _us("launch_deadline_us"),
    _us("connect_deadline_us"),
    _us("launched_us"),
    _us("ready_us"),
    _us("last_seen_us"),
    _us("worked_us"),
    _us("unwanted_us"),
    _us("deleting_us"),
    _us("fenced_us"),
    _us("terminated_us"),
)
sa.Index("ix_nodes_compute", nodes.c.compute_id, nodes.c.seq)
_holds_rank = nodes.c.state.not_in(("lost", "deleting", "deleted", "failed"))
sa.Index(
    "uq_nodes_live_rank",
    nodes.c.compute_id,
    nodes.c.rank,
    unique=True,
    sqlite_where=_holds_rank,
    postgresql_where=_holds_rank,
)
_open = nodes.c.state.not_in(("deleted", "failed"))
sa.Index("ix_nodes_not_over", nodes.c.provider_id, nodes.c.state, sqlite_where=_open, postgresql_where=_open)
sa.Index("ix_nodes_terminated", nodes.c.terminated_us)

disks = sa.Table(
    "disks",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("compute_id", sa.String(40), nullable=False),
    sa.Column("rank", Number, nullable=False),
    sa.Column("provider_id", sa.String(40), nullable=False),
    sa.Column("instance_type", sa.String(64), nullable=False),
    sa.Column("region", sa.String(64)),
    sa.Column("node_id", sa.String(40), nullable=False),
    sa.Column("used", sa.Boolean, nullable=False),
    _us("created_us", required=True),
    sqlite_with_rowid=False,
)
sa.Index("ix_disks_compute", disks.c.compute_id)

tasks = sa.Table(
    "tasks",
    metadata,
    _seq(),
    _id(),
    sa.Column("compute_id", sa.String(40), nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("function_sha256", sa.String(64), nullable=False),
    sa.Column("args_sha256", sa.String(64), nullable=False),
    sa.Column("dispatch", sa.String(8), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    _version(),
    sa.Column("rank", Number),
    sa.Column("safe_retries", sa.Integer, nullable=False),
    sa.Column("ambiguous_retries", sa.Integer, nullable=False),
    sa.Column("timeout_seconds", sa.Integer),
    sa.Column("correlation_id", sa.String(256)),
    sa.Column("owner", sa.String(80)),
    sa.Column("result_sha256", sa.String(64)),
    sa.Column("outcome_seq", sa.BigInteger),
    sa.Column("consumed", sa.Integer, nullable=False, default=0),
    _us("submitted_us", required=True),
    _us("deadline_us"),
    _us("cancel_requested_us"),
    _us("finished_us"),
)
sa.Index("ix_tasks_compute", tasks.c.compute_id, tasks.c.seq)
_partial(
    "ix_tasks_correlation", tasks.c.correlation_id.is_not(None), tasks.c.correlation_id, tasks.c.outcome_seq
)
TASK_IS_UNDONE = tasks.c.finished_us.is_(None)
TASK_HAS_NO_RESULT = sa.and_(tasks.c.finished_us.is_not(None), tasks.c.result_sha256.is_(None))
"""Of one that is over: whatever has not succeeded is among these."""
_has_deadline = sa.and_(tasks.c.deadline_us.is_not(None), TASK_IS_UNDONE)
_partial("ix_tasks_deadline", _has_deadline, tasks.c.compute_id, tasks.c.deadline_us)
_partial("ix_tasks_finished", tasks.c.finished_us.is_not(None), tasks.c.compute_id, tasks.c.finished_us)
_partial("ix_tasks_undone", TASK_IS_UNDONE, tasks.c.seq)
_partial("ix_tasks_no_result", TASK_HAS_NO_RESULT, tasks.c.seq)


executions = sa.Table(
    "executions",
    metadata,
    _seq(),
    _id(),
    sa.Column("task_id", sa.String(40), nullable=False),
    sa.Column("compute_id", sa.String(40), nullable=False),
    sa.Column("ordinal", Number, nullable=False),
    sa.Column("place", sa.Integer, nullable=False, default=0),
    sa.Column("rank", Number, nullable=False, default=0),
    sa.Column("wanted_rank", sa.Integer),
    sa.Column("state", sa.String(20), nullable=False),
    _version(),
    sa.Column("node_id", sa.String(40)),
    sa.Column("retry_of", sa.String(40)),
    sa.Column("retry_kind", sa.String(16)),
    sa.Column("result_sha256", sa.String(64)),
    sa.Column("error", JSON),
    sa.Column("late_report", JSON),
    sa.Column("console_lines", sa.Integer, nullable=False, default=0),
    sa.Column("items", sa.Integer, nullable=False, default=0),
    _us("created_us", required=True),
    _us("assigned_us"),
    _us("started_us"),
    _us("finished_us"),
    _us("cancel_deadline_us"),
)
sa.Index("ix_executions_task", executions.c.task_id, executions.c.ordinal)
# Literals, not parameters: a database uses a partial index only where it can see its condition in the query.
# And by columns that change at assignment and at the end only: an index whose condition names a column is
# written whenever that column is, and the state changes at every step in between.
_is_open = executions.c.finished_us.is_(None)
IS_WAITING = sa.and_(executions.c.node_id.is_(None), _is_open)
"""In no node's hands, and not over: the state ``created``."""
IS_ON_NODE = sa.and_(executions.c.node_id.is_not(None), _is_open)
"""In a node's mailbox or hands, and not over."""
sa.Index(
    "ix_executions_waiting",
    executions.c.compute_id,
    executions.c.seq,
    sqlite_where=IS_WAITING,
    postgresql_where=IS_WAITING,
)
sa.Index(
    "ix_executions_on_node",
    executions.c.node_id,
    sqlite_where=IS_ON_NODE,
    postgresql_where=IS_ON_NODE,
)

items = sa.Table(
    "items",
    metadata,
    sa.Column("execution_id", sa.String(40), primary_key=True),
    sa.Column("index", Number, primary_key=True, autoincrement=False),
    sa.Column("value_sha256", sa.String(64), nullable=False),
    sqlite_with_rowid=False,
)

functions = sa.Table(
    "functions",
    metadata,
    _seq(),
    sa.Column("sha256", sa.String(64), nullable=False, unique=True),
    sa.Column("codec", sa.String(64), nullable=False),
    sa.Column("name", sa.String(256)),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    _us("created_us", required=True),
    _us("used_us"),
)

# Small content sits in the row; large content in a file of the blob folder, named by its hash. It was
# brought, or is about to be named, at ``created_us``.
blobs = sa.Table(
    "blobs",
    metadata,
    sa.Column("sha256", sa.String(64), primary_key=True),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("content", sa.LargeBinary),
    _us("created_us", required=True),
    sa.Column("place", sa.String(128)),
)

providers = sa.Table(
    "providers",
    metadata,
    _seq(),
    _id(),
    sa.Column("name", sa.String(64), nullable=False, unique=True),
    sa.Column("kind", sa.String(64), nullable=False),
    sa.Column("config", JSON, nullable=False),
    sa.Column("credentials", sa.LargeBinary),
    sa.Column("offers_ttl_seconds", sa.Integer, nullable=False),
    _version(),
    _us("offers_fetched_us"),
    sa.Column("last_error", JSON),
    _us("created_us", required=True),
)

offers = sa.Table(
    "offers",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("provider_id", sa.String(40), nullable=False, index=True),
    sa.Column("body", JSON, nullable=False),
    _us("fetched_us", required=True),
    _us("expires_us", required=True),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("seq", BIG, primary_key=True, autoincrement=False),
    _us("at_us", required=True),
    sa.Column("name", sa.String(40), nullable=False),
    sa.Column("compute_id", sa.String(40)),
    sa.Column("node_id", sa.String(40)),
    sa.Column("task_id", sa.String(40)),
    sa.Column("payload", sa.Text, nullable=False),
)
sa.Index("ix_events_compute", events.c.compute_id, events.c.seq)
_of_task = events.c.task_id.is_not(None)
sa.Index("ix_events_task", events.c.task_id, events.c.seq, sqlite_where=_of_task, postgresql_where=_of_task)

# Named counters. Adding to one locks its row until the commit, so that the order of its values is the
# order of commits on every database: an event cursor can never skip.
counters = sa.Table(
    "counters",
    metadata,
    sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("value", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

idempotency = sa.Table(
    "idempotency",
    metadata,
    sa.Column("key", sa.String(320), primary_key=True),
    sa.Column("fingerprint", sa.String(64), nullable=False),
    sa.Column("answer", JSON, nullable=False),
    _us("created_us", required=True),
    sqlite_with_rowid=False,
)
sa.Index("ix_idempotency_created", idempotency.c.created_us)

# What each loop knows of each of its keys: when it is due, who is at it, and what it last decided.
passes = sa.Table(
    "passes",
    metadata,
    sa.Column("key", sa.String(80), primary_key=True),
    _version(),
    _us("due_us"),
    sa.Column("holder", sa.String(64)),
    _us("held_until_us"),
    sa.Column("decision", sa.Text),
    _us("decided_us"),
    sa.Column("failures", sa.Integer, nullable=False, default=0),
    sa.Column("error", sa.Text),
    sqlite_with_rowid=False,
)
sa.Index("ix_passes_due", passes.c.due_us)

rendezvous = sa.Table(
    "rendezvous",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("node_id", sa.String(40), nullable=False, index=True),
    sa.Column("url", sa.String(256), nullable=False),
    sa.Column("taken", sa.Boolean, nullable=False, default=False),
    _us("created_us", required=True),
)

# Daemons that serve from this database, and when each was last there.
daemons = sa.Table(
    "daemons",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("url", sa.String(256), nullable=False),
    sa.Column("release", sa.String(32), nullable=False),
    sa.Column("deployment", sa.String(64), nullable=False),
    _us("seen_us", required=True),
    sqlite_with_rowid=False,
)
