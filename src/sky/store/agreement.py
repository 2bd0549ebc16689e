"""The time that daemons with one database agree on: the database's.

Decides: how it is asked for, and which answers are believed. Never: sets a clock, or asks a SQLite, which has
the clock of this computer.
Follows: however far apart the clocks of their computers are, claims, leases, deadlines and the order of
events mean the same to all daemons; an answer that took long says little, and is left out unless it is the
first.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from sky.kit.clock import AgreedClock
from sky.store.engine import make_engine
from sky.store.migrate import UnusableDatabaseError

ANSWER_S_MAX = 0.5
"""An answer that took longer says too little about when it was given."""


def begin(clock: AgreedClock, url: str) -> None:
    """Go by the database at ``url`` before anything is done by that clock. Raises UnusableDatabaseError."""
    engine = make_engine(url, writer=False)
    try:
        with engine.connect() as connection, connection.begin():
            ask(connection)  # the first question also pays for the connection
            clock.heard(*_asked(clock, connection))
    except DBAPIError as error:
        shown = sa.make_url(url).render_as_string(hide_password=True)
        msg = f"the database {shown} does not tell the time: {str(error.orig).strip()}; see whether it runs"
        raise UnusableDatabaseError(msg) from error
    finally:
        engine.dispose()


def agree(clock: AgreedClock, connection: sa.Connection) -> None:
    """Go by what the database says now, if it says so soon."""
    began_s = clock.monotonic_s()
    told = _asked(clock, connection)
    if clock.monotonic_s() - began_s <= ANSWER_S_MAX:
        clock.heard(*told)


def _asked(clock: AgreedClock, connection: sa.Connection) -> tuple[int, int, int]:
    asked_us = clock.own_us()
    theirs_us = ask(connection)
    return theirs_us, asked_us, clock.own_us()


def ask(connection: sa.Connection) -> int:
    """What time it is there, in microseconds since 1970."""
    return int(connection.execute(_NOW).scalar_one())


_NOW = sa.text("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
