"""What jobs cost: of a window, and by day, SKU or a key of their metadata.

Decides: which jobs count: those that ended in a window, with what they were charged. Never: another owner's.
Follows: sums are made by the database over rows that are final, so that the same window says the same later.
"""

from __future__ import annotations

import sqlalchemy as sa
from msgspec import Struct

from sky.store.schema_jobs import JOB_IS_LIVE, jobs
from sky.store.sql import ByBytes, Row, many, total

DAY_US = 86_400 * 1_000_000
GROUPS_MAX = 1_000
_RAN_US = sa.func.coalesce(jobs.c.ended_us - jobs.c.started_us, 0)
_SECONDS = (sa.func.coalesce(jobs.c.used_us, 0) + _RAN_US + 999_999) // 1_000_000
_CEILING = (jobs.c.price_micro * jobs.c.max_runtime_seconds + 3_599) // 3_600


class Spent(Struct, frozen=True):
    """What was charged in a window, and what jobs under way may still cost, in micro-dollars."""

    charged_micro: int
    under_way_micro: int

    @property
    def micro(self) -> int:
        """All that counts."""
        return self.charged_micro + self.under_way_micro


def spent(connection: sa.Connection, owner: str, key_id: str | None, since_us: int) -> Spent:
    """What of an owner (or of one of its keys) counts in a window that goes on."""
    whose = jobs.c.owner == owner
    if key_id is not None:
        whose = sa.and_(whose, jobs.c.key_id == key_id)
    charged = sa.select(total(jobs.c.settled_micro)).where(whose, jobs.c.finished_us >= since_us)
    under_way = sa.select(total(_CEILING)).where(whose, JOB_IS_LIVE)
    return Spent(int(connection.scalar(charged) or 0), int(connection.scalar(under_way) or 0))


def usage(
    connection: sa.Connection, owner: str, by: str, label: str | None, since_us: int, until_us: int
) -> tuple[list[Row], bool]:
    """Sums over an owner's jobs that ended in a window, by ``day``, ``sku`` or the value of a ``label``, and
    whether there are more groups than are given."""
    if label is not None:
        group: sa.ColumnElement[str] = jobs.c.labels[label].as_string()
    elif by == "sku":
        group = jobs.c.sku
    else:
        group = sa.cast(jobs.c.finished_us // DAY_US, sa.String)
    ended = (
        sa.select(
            group.label("key"),
            _SECONDS.label("seconds"),
            (_SECONDS * jobs.c.gpu_count).label("gpu_seconds"),
            jobs.c.settled_micro,
        )
        .where(jobs.c.owner == owner, jobs.c.finished_us >= since_us, jobs.c.finished_us < until_us)
        .subquery()
    )
    query = (
        sa.select(
            ended.c.key,
            sa.func.count().label("jobs"),
            sa.func.coalesce(total(ended.c.seconds), 0).label("seconds"),
            sa.func.coalesce(total(ended.c.gpu_seconds), 0).label("gpu_seconds"),
            sa.func.coalesce(total(ended.c.settled_micro), 0).label("charged_micro"),
        )
        .group_by(ended.c.key)
        .order_by(ByBytes(ended.c.key).nulls_first())
        .limit(GROUPS_MAX + 1)
    )
    rows = many(connection, query)
    return rows[:GROUPS_MAX], len(rows) > GROUPS_MAX
