"""What is in order is in one order on every database, whichever country's one was made to sort for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from tests.databases import fresh
from tests.databases import server as the_server
from tests.store.support import cluster_row, job_row

from sky.store import passes, schema, schema_jobs, schema_requests
from sky.store.engine import make_engine
from sky.store.migrate import upgrade
from sky.store.rows import artifacts, daemons, storages, users
from sky.store.views import spending

NAMES = (*"bBaZzäéß12_/", "\U0001f600", "a-b", "ab", "a b", "a_b", "AB", "ss", "10")
IN_ORDER = sorted(NAMES)
"""By code point, which is also by the bytes of UTF-8."""
OWNER = "account:acc_1"


@pytest.fixture(scope="module", params=["sqlite", "plain", "de-DE", "en-US"])
def full(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sa.Engine]:
    """A database with rows of all those names, sorted as bytes are or as in some country."""
    if request.param in ("sqlite", "plain"):
        path = tmp_path_factory.mktemp("order") / "sky.db"
        url = fresh(path, postgresql=request.param == "plain")
    else:
        name = f"sorts_{request.param[:2]}_{the_server().port}"
        how = f"LOCALE_PROVIDER icu ICU_LOCALE '{request.param}' LOCALE 'C'"
        the_server().do(f"CREATE DATABASE {name} TEMPLATE template0 {how}")
        url = the_server().url(name)
        upgrade(url)
    writer = make_engine(url, writer=True)
    with writer.begin() as connection:
        _fill(connection)
    writer.dispose()
    reader = make_engine(url, writer=False)
    yield reader
    reader.dispose()


def _fill(connection: sa.Connection) -> None:
    file = {"job_id": "job_1", "size_bytes": 1, "sha256": "s", "allowed_us": 1}
    kept = {"owner": "ann", "sha256": "s", "size_bytes": 1, "created_us": 1, "used_us": 1}
    there = {"release": "1", "deployment": "d", "seen_us": 1}
    ended = {"owner": OWNER, "started_us": 1, "ended_us": 2, "finished_us": 2, "settled_micro": 5}
    rows: dict[sa.Table, list[dict[str, Any]]] = {
        schema_requests.clusters: [cluster_row(f"clu_{n}", name=name) for n, name in enumerate(NAMES)],
        schema_requests.storages: [{**kept, "name": name} for name in NAMES],
        schema_jobs.artifacts: [
            {**file, "path": f"{kind}{name}", "stored_us": at}
            for name in NAMES
            for kind, at in (("", 1), ("to come ", None))
        ],
        schema_jobs.jobs: [
            job_row(f"job_{n}", labels={} if name is None else {"who": name}, **ended)
            for n, name in enumerate((*NAMES, None))
        ],
        schema.daemons: [{**there, "name": name, "url": name} for name in NAMES],
        schema.passes: [{"key": name, "version": 1, "failures": 0} for name in NAMES],
    }
    for table, some in rows.items():
        connection.execute(sa.insert(table), some)


PAGES: dict[str, Callable[[sa.Connection, int], list[Any]]] = {
    "files of a job": lambda c, n: [row["path"] for row in artifacts.stored(c, "job_1", n)],
    "files to come": lambda c, n: [
        file.path.removeprefix("to come ") for file in artifacts.awaited(c, "job_1", n)
    ],
    "storages": lambda c, n: [row["name"] for row in storages.of(c, None)][:n],
    "clusters of a user": lambda c, n: users.clusters_of(c, "ann", n),
    "addresses of daemons": lambda c, n: list(daemons.addresses(c, 2))[:n],
    "notes of loops": lambda c, n: [row.key for row in passes.rows(c, limit=n)],
}


@pytest.mark.parametrize("many", [len(NAMES), 7])
@pytest.mark.parametrize("what", PAGES)
def test_a_page_is_the_same_whatever_the_database_sorts_by(full: sa.Engine, what: str, many: int) -> None:
    with full.connect() as connection, connection.begin():
        assert PAGES[what](connection, many) == IN_ORDER[:many]


def test_groups_of_a_label_are_in_that_order_after_those_without_it(full: sa.Engine) -> None:
    with full.connect() as connection, connection.begin():
        groups, more = spending.usage(connection, OWNER, "label", "who", 0, 10)
    assert [row["key"] for row in groups] == [None, *IN_ORDER]
    assert not more
