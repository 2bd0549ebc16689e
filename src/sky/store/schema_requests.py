"""The tables of requests: requests and what they said, clusters, their jobs, and storages.

Decides: columns, keys and indexes. Never: what a state means (``domain``). Conventions are those of
``schema``. Follows: a name means one live cluster; a job's number counts from 1 within its cluster.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from sky.store.schema import BIG, JSON, metadata
from sky.store.sql import Number


def _seq() -> sa.Column[int]:
    return sa.Column("seq", BIG, primary_key=True, autoincrement=True)


def _us(name: str, *, required: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=not required)


requests = sa.Table(
    "requests",
    metadata,
    _seq(),
    sa.Column("id", sa.String(40), nullable=False, unique=True),
    sa.Column("name", sa.String(40), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("version", sa.Integer, nullable=False, default=1),
    sa.Column("owner", sa.String(64), nullable=False),
    sa.Column("cluster_name", sa.String(64)),
    sa.Column("cluster_id", sa.String(40)),
    sa.Column("job_number", sa.Integer),
    sa.Column("body", JSON, nullable=False),
    sa.Column("result", JSON),
    sa.Column("error", JSON),
    sa.Column("tries", sa.Integer, nullable=False, default=0),
    _us("created_us", required=True),
    _us("started_us"),
    _us("again_us"),
    _us("finished_us"),
)
_open = requests.c.finished_us.is_(None)
sa.Index("ix_requests_open", requests.c.seq, sqlite_where=_open, postgresql_where=_open)
sa.Index("ix_requests_of_cluster", requests.c.cluster_id, sqlite_where=_open, postgresql_where=_open)
sa.Index("ix_requests_of_name", requests.c.cluster_name, sqlite_where=_open, postgresql_where=_open)
sa.Index("ix_requests_owner", requests.c.owner, requests.c.seq)
_ended = requests.c.finished_us.is_not(None)
sa.Index("ix_requests_ended", requests.c.finished_us, sqlite_where=_ended, postgresql_where=_ended)

request_lines = sa.Table(
    "request_lines",
    metadata,
    sa.Column("request_id", sa.String(40), primary_key=True),
    sa.Column("index", Number, primary_key=True, autoincrement=False),
    sa.Column("text", sa.Text, nullable=False),
    _us("at_us", required=True),
    sqlite_with_rowid=False,
)

clusters = sa.Table(
    "clusters",
    metadata,
    _seq(),
    sa.Column("id", sa.String(40), nullable=False, unique=True),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("version", sa.Integer, nullable=False, default=1),
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
    _us("created_us", required=True),
    _us("launched_us", required=True),
    _us("busy_us", required=True),
    _us("up_us"),
    _us("removed_us"),
    sa.Column("autostop_wait", sa.String(16)),
    _us("autostop_us"),
    _us("session_us"),
)
_live = clusters.c.removed_us.is_(None)
sa.Index("uq_clusters_live_name", clusters.c.name, unique=True, sqlite_where=_live, postgresql_where=_live)
_removed = clusters.c.removed_us.is_not(None)
sa.Index("ix_clusters_removed", clusters.c.removed_us, sqlite_where=_removed, postgresql_where=_removed)

cluster_jobs = sa.Table(
    "cluster_jobs",
    metadata,
    _seq(),
    sa.Column("id", sa.String(40), nullable=False, unique=True),
    sa.Column("cluster_id", sa.String(40), nullable=False),
    sa.Column("number", Number, nullable=False),
    sa.Column("name", sa.String(256)),
    sa.Column("owner", sa.String(64), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("version", sa.Integer, nullable=False, default=1),
    sa.Column("body", JSON, nullable=False),
    sa.Column("num_nodes", sa.Integer, nullable=False),
    sa.Column("gpus", sa.Integer, nullable=False, default=0),
    sa.Column("setup_tasks", JSON),
    sa.Column("run_tasks", JSON),
    sa.Column("exit_codes", JSON),
    sa.Column("error", JSON),
    sa.Column("stop_error", JSON),
    _us("submitted_us", required=True),
    _us("started_us"),
    _us("stop_us"),
    _us("ended_us"),
    sa.UniqueConstraint("cluster_id", "number"),
)
_under_way = cluster_jobs.c.ended_us.is_(None)
sa.Index(
    "ix_cluster_jobs_open",
    cluster_jobs.c.cluster_id,
    cluster_jobs.c.number,
    sqlite_where=_under_way,
    postgresql_where=_under_way,
)
sa.Index(
    "ix_cluster_jobs_state",
    cluster_jobs.c.cluster_id,
    cluster_jobs.c.state,
    cluster_jobs.c.number,
    sqlite_where=_under_way,
    postgresql_where=_under_way,
)
sa.Index("ix_cluster_jobs_ended", cluster_jobs.c.cluster_id, cluster_jobs.c.ended_us)

storages = sa.Table(
    "storages",
    metadata,
    _seq(),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("owner", sa.String(64), nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("cluster_id", sa.String(40)),
    _us("created_us", required=True),
    _us("used_us", required=True),
    sa.UniqueConstraint("owner", "name"),
)
"""``cluster_id``: the cluster with which it goes; None: it stays."""
_goes = storages.c.cluster_id.is_not(None)
sa.Index("ix_storages_cluster", storages.c.cluster_id, sqlite_where=_goes, postgresql_where=_goes)

archives = sa.Table(
    "archives",
    metadata,
    sa.Column("owner", sa.String(64), primary_key=True),
    sa.Column("sha256", sa.String(64), primary_key=True),
    _us("created_us", required=True),
    sqlite_with_rowid=False,
)
"""Who has brought which content: knowing a hash is not having what it is of."""
