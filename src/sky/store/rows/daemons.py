"""The daemons that serve from one database, as rows.

Decides: who counts as there: whoever was seen within ``THERE_US``. Never: asks a daemon anything.
Follows: a daemon that ends takes its row away; one that was killed is passed over after that time.
"""

from __future__ import annotations

import sqlalchemy as sa

from sky.kit.clock import SECOND_US
from sky.store.prepared import Prepared, prepared
from sky.store.schema import daemons
from sky.store.sql import ByBytes, upsert
from sky.store.tx import Tx

THERE_US = 10 * SECOND_US
_NAMES = [column.name for column in daemons.columns]


def note(tx: Tx, name: str, url: str, release: str, deployment: str) -> None:
    """A daemon is there, at ``url``."""
    row = {"name": name, "url": url, "release": release, "deployment": deployment, "seen_us": tx.now_us}
    _NOTE.run(tx.connection, row)


def leave(tx: Tx, name: str) -> None:
    """A daemon ends."""
    tx.connection.execute(sa.delete(daemons).where(daemons.c.name == name))


def addresses(connection: sa.Connection, now_us: int) -> tuple[str, ...]:
    """Where the daemons are that are there, those that were seen last first."""
    rows = _THERE.all(connection, {"b_since": now_us - THERE_US})
    return tuple(dict.fromkeys(row["url"] for row in rows))


def deployments(connection: sa.Connection, now_us: int, but: str) -> set[str]:
    """To which deployments the daemons that are there belong, the one with the name ``but`` aside."""
    rows = _THERE.all(connection, {"b_since": now_us - THERE_US})
    return {row["deployment"] for row in rows if row["name"] != but}


_NOTE = Prepared(lambda dialect, _: upsert(dialect, daemons, ["name"], _NAMES))
_THERE = prepared(
    sa.select(daemons.c.name, daemons.c.url, daemons.c.deployment)
    .where(daemons.c.seen_us > sa.bindparam("b_since", type_=sa.BigInteger))
    .order_by(daemons.c.seen_us.desc(), ByBytes(daemons.c.name))
)
