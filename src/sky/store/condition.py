"""Looks whether a database is whole, for ``sky doctor``, beside a daemon that may be serving from it.

Decides: what is looked at: the schema's number, the pages and indexes of a SQLite file, and that the lines of
each entry of the ledger sum to zero. Never: writes, makes a database, or brings one up to date.
Follows: what cannot be read raises with the reason in one line.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from sky.store import schema_jobs
from sky.store.engine import make_engine
from sky.store.migrate import HEAD, current

BUSY_MS = 2_000
FINDINGS_MAX = 3


class UnreadableError(Exception):
    """The database cannot be looked at; the message says why."""


@dataclass(frozen=True, slots=True)
class Condition:
    """``schema``: what it has, None: it is empty; ``head``: what this release knows. ``damage``: what SQLite
    finds wrong with its file; ``unbalanced``: how many entries of the ledger do not sum to zero."""

    schema: str | None
    head: str
    damage: tuple[str, ...] = ()
    unbalanced: int = 0


def look(url: str) -> Condition:
    """How a database is. Raises UnreadableError."""
    try:
        engine = make_engine(url, writer=False, busy_timeout_ms=BUSY_MS)
        try:
            schema = current(engine)
            if schema is None or schema != HEAD:
                return Condition(schema, HEAD)
            with engine.connect() as connection, connection.begin():
                return Condition(schema, HEAD, _damage(connection), _unbalanced(connection))
        finally:
            engine.dispose()
    except (SQLAlchemyError, ModuleNotFoundError) as error:
        reason = getattr(error, "orig", None) or error
        raise UnreadableError(" ".join(str(reason).split())) from error


def _damage(connection: sa.Connection) -> tuple[str, ...]:
    if connection.dialect.name != "sqlite":
        return ()
    told = connection.execute(sa.text(f"PRAGMA quick_check({FINDINGS_MAX})")).scalars().all()
    return tuple(str(one) for one in told if one != "ok")


def _unbalanced(connection: sa.Connection) -> int:
    ledger = schema_jobs.ledger
    uneven = (
        sa.select(ledger.c.reference)
        .group_by(ledger.c.reference)
        .having(sa.func.sum(ledger.c.amount_micro) != 0)
        .subquery()
    )
    return connection.execute(sa.select(sa.func.count()).select_from(uneven)).scalar_one()
