"""Brings a database to the newest schema.

Decides: which steps are needed. Never: changes a row's meaning silently; each step is a file of its own.
Follows: a database that is up to date costs one query; an empty one is made at once, as all the steps would
have made it (a test compares both); one from a newer release is refused, not touched.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError

from sky.store import schema_users
from sky.store.engine import explain, give_time, is_lost, make_engine

HEAD = "0012"
FOLDER = Path(__file__).with_name("migrations")
FAILURES = (ArgumentError, ModuleNotFoundError, DBAPIError)
"""What is raised where a database is not there, or cannot be used: its URL, its driver, or itself."""


class UnusableDatabaseError(Exception):
    """The database cannot be served from; the message says why."""


class NewerDatabaseError(UnusableDatabaseError):
    """The database was written by a newer release."""


def current(engine: sa.Engine) -> str | None:
    """The schema that a database has; None: it is empty."""
    with engine.connect() as connection, connection.begin():
        if not sa.inspect(connection).has_table("alembic_version"):
            return None
        return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()


def upgrade(url: str) -> bool:
    """Bring the database at ``url`` to the newest schema; True when there was something to do.

    Raises UnusableDatabaseError.
    """
    try:
        return _upgrade(url)
    except FAILURES as error:
        raise unusable(url, error) from error


def unusable(url: str, error: Exception) -> UnusableDatabaseError:
    """What one of ``FAILURES`` of the database at ``url`` means to whoever named it."""
    if not isinstance(error, DBAPIError):
        return UnusableDatabaseError(_of_kind(url, error))
    known = explain(error)
    shown = sa.make_url(url).render_as_string(hide_password=True)
    lost = url.startswith("postgresql") and is_lost(error)
    why = str(error.orig).strip() if known is None or lost else known
    return UnusableDatabaseError(f"the database {shown} cannot be used: {why}")


def _of_kind(url: str, error: Exception) -> str:
    """Why a kind of database cannot be used here, and what to do."""
    kind = url.partition(":")[0].partition("+")[0]
    if kind == "postgresql":
        return "PostgreSQL needs a driver: pip install 'skyfleet[postgresql]'"
    why = f"its driver {error.name!r} is not installed" if isinstance(error, ImportError) else "unknown"
    return f"a database of the kind {kind!r} cannot be used ({why}); name a SQLite file, or a PostgreSQL"


def _upgrade(url: str) -> bool:
    engine = make_engine(url, writer=True)
    try:
        if engine.dialect.name == "postgresql":
            give_time(engine)
            _refuse_narrow(engine)
        have = current(engine)
        if have == HEAD:
            return False
        if have is not None and have > HEAD:
            msg = f"the database has schema {have}, this release knows {HEAD}: written by a newer release"
            raise NewerDatabaseError(msg)
        with engine.begin() as connection:  # nobody else writes from here on
            tables = set(sa.inspect(connection).get_table_names())
            if have is None and tables:
                if "counters" in tables:  # another daemon was a moment earlier
                    return False
                shown = ", ".join(sorted(tables)[:5])
                msg = f"the database has tables that are not ours ({shown}); name an empty one"
                raise UnusableDatabaseError(msg)
            if tables:
                step_up(connection)
            else:
                _make(connection)
        return True
    finally:
        engine.dispose()


def _refuse_narrow(engine: sa.Engine) -> None:
    """Refuse a PostgreSQL that cannot keep all text."""
    with engine.connect() as connection, connection.begin():
        encoding = connection.execute(sa.text("SHOW server_encoding")).scalar()
        if encoding != "UTF8":
            msg = f"the database keeps text as {encoding}, which has not every character; make one of UTF8"
            raise UnusableDatabaseError(msg)


def step_up(connection: sa.Connection) -> None:
    """Take every step that the database has not taken yet."""
    # Alembic takes half a second to import: only a database that needs it pays.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _make(connection: sa.Connection) -> None:
    """Give an empty database the newest schema, and say so where Alembic looks."""
    schema_users.metadata.create_all(connection)
    connection.execute(sa.schema.CreateTable(_VERSION))
    connection.execute(sa.insert(_VERSION).values(version_num=HEAD))


_VERSION = sa.Table(
    "alembic_version",
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
