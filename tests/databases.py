"""Which database a test has: SQLite in a file of its own, or, for a whole run, one on a real PostgreSQL.

Decides: what ``SKY_TESTS_DATABASE=postgresql`` means to every test that takes its database from here.
Never: gives two tests one database.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest
from tests.postgresql import Server

from sky.store.migrate import upgrade

ON_POSTGRESQL = os.environ.get("SKY_TESTS_DATABASE") == "postgresql"

IN_A_FILE = pytest.mark.skipif(ON_POSTGRESQL, reason="it reaches into the file of a SQLite")


def fresh(path: Path, *, postgresql: bool = ON_POSTGRESQL) -> str:
    """The URL of a new database of the newest schema: a file at ``path``, or one on the server."""
    if postgresql:
        return server().empty()
    path.write_bytes(_template())
    return f"sqlite:///{path}"


def copy_files(home: Path, to: Path) -> None:
    """Copy a SQLite in use: the file first, then its log, which may know more than it, and never less.

    It could know less if all of it were folded into the file between the two, and it began anew: not as long
    as somebody reads.
    """
    with closing(sqlite3.connect(home / "sky.db", timeout=60, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        for name in ("sky.db", "sky.db-wal"):
            shutil.copy(home / name, to / name)
        reader.execute("ROLLBACK")


@cache
def server() -> Server:
    """The one PostgreSQL of this process."""
    one = Server()
    atexit.register(one.stop)
    return one


@cache
def _template() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        upgrade(f"sqlite:///{path}")
        return path.read_bytes()
