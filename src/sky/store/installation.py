"""Which installation a database is: a name of its own, by which it owns what is kept outside of it.

Decides: when a name is new: at the first start, after a restore or a move, and where the database turns out
to be a copy (another file, or another database of PostgreSQL than the one that the name was given to).
Never: says what may be removed where (``tenure``). Follows: all daemons of one database have one name; a
database that a copy was begun into and not ended is named so, and nothing is served from it.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
import structlog
from sqlalchemy.exc import DBAPIError

from sky.kit import faults, ids
from sky.kit.births import born_ns
from sky.kit.clock import SystemClock
from sky.store.engine import make_engine
from sky.store.migrate import FAILURES, UnusableDatabaseError, unusable
from sky.store.schema import passes
from sky.store.schema_users import installation

FIRST, RESTORED, MOVED, COPIED = "first", "restored", "moved", "copied"
"""Where a name comes from: a first start, a restore, a move, or that the database was copied by hand."""
UNNAMED = "without a name"
BORN, OF = " born ", " of "
COPY_LOCK = 7_590_759_076
"""The advisory lock of PostgreSQL that a copy into a database holds until it has ended."""

_log = structlog.get_logger(__name__)


class HalfCopiedError(UnusableDatabaseError):
    """A copy into the database was begun and has not ended; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Installation:
    """The name of an installation, where that comes from, and when it got it."""

    identity: str
    origin: str
    named_us: int = 0

    @property
    def is_first(self) -> bool:
        """Whether it has always been this one, so that what carries no mark yet can be its own."""
        return self.origin == FIRST


def new_identity() -> str:
    """A name that no other installation has."""
    return ids.new("installation")


def who(connection: sa.Connection, now_us: int) -> Installation:
    """Which installation the database of a writing transaction is: a new one, where it has no name yet or is
    a copy of the one that the name was given to. Raises HalfCopiedError."""
    row = connection.execute(sa.select(installation)).first()
    here = _mark_of(connection)
    if row is None:
        return _write(connection, Installation(new_identity(), FIRST, now_us), here, now_us)
    if not row.whole:
        msg = (
            "a copy into this database was begun, by `sky admin restore` or `sky admin migrate`, and did not "
            "end; run that again, which begins anew"
        )
        raise HalfCopiedError(msg)
    if not _same(row.database_mark, here):
        copy = _write(connection, Installation(new_identity(), COPIED, now_us), here, now_us)
        told = {"before": row.identity, "was": row.database_mark, "here": here}
        _log.warning("installation.copied", identity=copy.identity, **told)
        return copy
    if len(here) > len(row.database_mark):  # who asks now may see more of it
        connection.execute(sa.update(installation).values(database_mark=here))
    return Installation(row.identity, row.origin, row.made_us)


def begin(url: str) -> Installation:
    """The same for the database at ``url``, which has the newest schema."""
    with closing(_Writing(url)) as it:
        try:
            with it.engine.begin() as connection:
                return who(connection, SystemClock().now_us())
        except DBAPIError as error:
            raise _unusable(it.engine, error) from error


def look(url: str) -> tuple[str, bool] | None:
    """The name that a database has and whether it is whole; None: none yet, or there is no such file.

    Raises UnusableDatabaseError.
    """
    if url.startswith("sqlite") and not Path(url.removeprefix("sqlite:///")).is_file():
        return None
    with reading(url) as connection:
        return named(connection)


@contextmanager
def reading(url: str) -> Generator[sa.Connection]:
    """A snapshot of a database, as long as the block runs. Raises UnusableDatabaseError."""
    try:
        engine = make_engine(url, writer=False)
        try:
            with engine.connect() as connection, connection.begin():
                yield connection
        finally:
            engine.dispose()
    except FAILURES as error:
        raise unusable(url, error) from error


def shown_url(url: str) -> str:
    """A database as people may be shown it."""
    return sa.make_url(url).render_as_string(hide_password=True)


def _unusable(engine: sa.Engine, error: DBAPIError) -> UnusableDatabaseError:
    shown = engine.url.render_as_string(hide_password=True)
    return UnusableDatabaseError(f"the database {shown} cannot be used: {str(error.orig).strip()}")


def peek(url: str) -> Installation | None:
    """Which installation the database at ``url`` is, and nothing is written; None: it has no name yet, or is
    none. A copy that no daemon has served from yet has a name of that sort. Raises UnusableDatabaseError."""
    if look(url) is None:
        return None
    with reading(url) as connection:
        row = connection.execute(sa.select(installation)).first()
        if row is None:
            return None
        if not row.whole or not _same(row.database_mark, _mark_of(connection)):
            return Installation(UNNAMED, COPIED)
        return Installation(row.identity, row.origin, row.made_us)


def is_older(url: str) -> bool:
    """Whether the database at ``url`` is of a release that gave it no name. Raises UnusableDatabaseError."""
    if url.startswith("sqlite") and not Path(url.removeprefix("sqlite:///")).is_file():
        return False
    with reading(url) as connection:
        there = sa.inspect(connection)
        return there.has_table(passes.name) and not there.has_table(installation.name)


def named(connection: sa.Connection) -> tuple[str, bool] | None:
    """The same, over a connection."""
    if not sa.inspect(connection).has_table(installation.name):
        return None
    row = connection.execute(sa.select(installation)).first()
    return None if row is None else (row.identity, row.whole)


# ── copies ──────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def copying_alone(url: str) -> Generator[bool]:
    """Whether no other process copies into the database at ``url`` as long as the block runs. Files of SQLite
    are guarded by the lock of their state folder. Raises UnusableDatabaseError."""
    if url.startswith("sqlite"):
        yield True
        return
    with reading(url) as connection:
        connection.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        yield bool(connection.execute(sa.select(sa.func.pg_try_advisory_xact_lock(COPY_LOCK))).scalar())


def is_half(connection: sa.Connection) -> bool:
    """Whether a copy into that database was begun and has not ended."""
    found = named(connection)
    return found is not None and not found[1]


def copy_begins(connection: sa.Connection, identity: str) -> None:
    """From now on the database is none to serve from."""
    _write(connection, Installation(identity, COPIED), "", 0, whole=False)


def copy_ends(url: str, origin: str, identity: str) -> None:
    """The copy of that name is whole, and an installation of its own. What is written is on the disk.

    The keys of the loops are held by nobody: who held them were the original's daemons, and none is here.
    Raises UnusableDatabaseError.
    """
    with closing(_Writing(url)) as it:
        try:
            with it.engine.begin() as connection:
                if named(connection) != (identity, False):
                    raise UnusableDatabaseError(
                        f"what was copied into {shown_url(url)} was removed, or ended, by something else "
                        "meanwhile; see that nothing else copies into it, and begin anew"
                    )
                now_us = SystemClock().now_us()
                _write(connection, Installation(identity, origin), _mark_of(connection), now_us)
                connection.execute(sa.update(passes).values(holder=None, held_until_us=None))
                faults.point("copy is not whole yet")
            faults.point("copy is whole")
        except DBAPIError as error:
            raise _unusable(it.engine, error) from error


class _Writing:
    def __init__(self, url: str) -> None:
        self.engine = make_engine(url, writer=True, full_sync=True)

    def close(self) -> None:
        self.engine.dispose()


def _write(
    connection: sa.Connection, it: Installation, here: str, now_us: int, *, whole: bool = True
) -> Installation:
    connection.execute(sa.delete(installation))
    row = {"identity": it.identity, "origin": it.origin, "database_mark": here, "whole": whole}
    connection.execute(sa.insert(installation), {**row, "made_us": now_us})
    return it


def _same(before: str, here: str) -> bool:
    """Whether two marks are one database's. When it was made, and in which cluster it is, counts where both
    tell it: a system that begins to tell it makes no copy, and neither does a role that may not ask."""
    more = OF if here.startswith("database") else BORN
    (was, _, one), (now, _, other) = before.partition(more), here.partition(more)
    return was == now and (one == other or not (one and other))


def _mark_of(connection: sa.Connection) -> str:
    """What a copy of a database has otherwise: a file its number, the folder's, and when it was made where
    that can be told; a database of PostgreSQL its own number, and its cluster's where that may be asked."""
    if connection.dialect.name == "sqlite":
        file = connection.exec_driver_sql("PRAGMA database_list").all()[0][2]
        if not file:
            return "memory"
        born = born_ns(Path(file))
        since = "" if born is None else f"{BORN}{born}"
        return f"file {Path(file).stat().st_ino} in {Path(file).parent.stat().st_ino}{since}"
    own = connection.execute(sa.text("SELECT oid FROM pg_database WHERE datname = current_database()"))
    number = own.scalar_one()
    allowed = sa.text("SELECT has_function_privilege('pg_control_system()', 'execute')")
    if not connection.execute(allowed).scalar():
        return f"database {number}"  # of which cluster, this role may not ask
    cluster = connection.execute(sa.text("SELECT system_identifier FROM pg_control_system()")).scalar_one()
    return f"database {number}{OF}{cluster}"
