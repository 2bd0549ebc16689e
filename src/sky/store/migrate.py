"""Brings a database to the newest schema.

Decides: which steps are needed. Never: changes a row's meaning silently; each step is a file of its own.
Follows: a database that is up to date costs one query; one from a newer release is refused, not touched.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from sky.store.engine import explain, make_engine

HEAD = "0002"
FOLDER = Path(__file__).with_name("migrations")


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
    except DBAPIError as error:
        known = explain(error)
        shown = sa.make_url(url).render_as_string(hide_password=True)
        raise UnusableDatabaseError(
            f"the database {shown} cannot be used: {error.orig if known is None else known.message}"
        ) from error


def _upgrade(url: str) -> bool:
    engine = make_engine(url, writer=True)
    try:
        have = current(engine)
        if have == HEAD:
            return False
        if have is not None and have > HEAD:
            msg = f"the database has schema {have}, this release knows {HEAD}: written by a newer release"
            raise NewerDatabaseError(msg)
        # Alembic takes half a second to import: only a database that needs it pays.
        from alembic import command
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", str(FOLDER))
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
        return True
    finally:
        engine.dispose()
