"""Which daemons serve from a database, for whoever is about to copy it.

Decides: whose clock says who is there: the database's, which its daemons go by too. Never: asks a daemon
anything. Follows: a daemon that was killed counts as there for as long as ``rows/daemons`` says.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from sky.kit.clock import SystemClock
from sky.store.agreement import ask
from sky.store.installation import reading
from sky.store.rows import daemons
from sky.store.schema import daemons as table


def served(url: str) -> tuple[str, ...]:
    """Where the daemons answer that serve from the database at ``url``; one that is not there has none.

    Raises UnusableDatabaseError.
    """
    if url.startswith("sqlite") and not Path(url.removeprefix("sqlite:///")).is_file():
        return ()
    with reading(url) as connection:
        if not sa.inspect(connection).has_table(table.name):
            return ()
        is_file = connection.dialect.name == "sqlite"
        return daemons.addresses(connection, SystemClock().now_us() if is_file else ask(connection))
