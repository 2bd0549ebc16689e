"""What only a PostgreSQL does: it ends, cuts connections, stands by for another, and is set up by others."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import psycopg
import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs
from tests.conftest import free_port
from tests.databases import server as the_server
from tests.postgresql import Server
from tests.store.support import task_row, wakes
from tests.waiting import until

from sky.domain.errors import Busy
from sky.kit.clock import SystemClock
from sky.store import engine, schema
from sky.store.commits import Committed
from sky.store.db import Database
from sky.store.migrate import UnusableDatabaseError, upgrade
from sky.store.neighbours import CHANNEL, Neighbours
from sky.store.transfer import TABLES, transfer
from sky.store.tx import Tx

T = TypeVar("T")
COUNT = sa.select(sa.func.count()).select_from(schema.tasks)
TRIES_MAX = 10
"""Of one question: each of a daemon's connections is found to be gone once."""
SOON_S = 30.0


def add(number: int) -> Callable[[Tx], int]:
    """A verb that adds one task with its event."""

    def verb(tx: Tx) -> int:
        tx.add("tasks", [task_row(f"tsk_{number}")], event="task.queued")
        return number

    return verb


def opened(url: str, name: str = "one") -> Database:
    """The database at ``url`` as a daemon has it that shares it with others."""
    db = Database(url, SystemClock(), wakes, neighbours=Neighbours(url, name))
    db.start()
    return db


async def count(db: Database) -> int:
    return await db.read(lambda c: c.execute(COUNT).scalar_one())


async def again(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask as a client does: again, where it was told to."""
    told: list[float | None] = []
    while len(told) < TRIES_MAX:
        try:
            return await ask()
        except Busy as error:
            told.append(error.after_s)
    raise AssertionError(f"still busy after {TRIES_MAX} tries, and told to come again after {told} s")


def name_of(url: str) -> str:
    return str(sa.make_url(url).database)


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """A server that a test may end."""
    one = Server()
    yield one
    one.stop()


@pytest.mark.real
async def test_all_goes_on_when_the_server_was_away(own: Server) -> None:
    db = opened(own.empty())
    assert await db.write(add(1)) == 1
    assert await asyncio.gather(*(count(db) for _ in range(4))) == [1] * 4
    own.end()
    for _ in range(3):
        with pytest.raises(Busy) as refused:
            await db.write(add(2))
        assert refused.value.after_s
        with pytest.raises(Busy) as refused:
            await count(db)
        assert refused.value.after_s
    own.begin()
    assert await again(lambda: db.write(add(2))) == 2
    for _ in range(3):
        assert await again(lambda: asyncio.gather(*(count(db) for _ in range(4)))) == [2] * 4
    db.close()


@pytest.mark.real
async def test_what_others_commit_is_heard_after_every_connection_was_cut(own: Server) -> None:
    url = own.empty()
    speaks, hears = opened(url, "speaks"), opened(url, "hears")
    heard: dict[str, asyncio.Event] = {"tsk_1": asyncio.Event(), "tsk_2": asyncio.Event()}

    def note(committed: Committed) -> None:
        for event in committed.events:
            heard[str(event.task_id)].set()

    hears.listen(note)
    await speaks.write(add(1))
    await asyncio.wait_for(heard["tsk_1"].wait(), SOON_S)
    own.cut()
    await again(lambda: speaks.write(add(2)))
    await asyncio.wait_for(heard["tsk_2"].wait(), SOON_S)
    speaks.close()
    hears.close()


@pytest.mark.real
async def test_what_strangers_say_on_our_channel_makes_nobody_deaf() -> None:
    url = the_server().empty()
    speaks, hears = opened(url, "speaks"), opened(url, "hears")
    told, heard = asyncio.Event(), asyncio.Event()

    def note(committed: Committed) -> None:
        (heard if committed.events else told).set()

    hears.listen(note)
    for body in ("nothing of ours", "[1]", ""):
        the_server().do(f"NOTIFY {CHANNEL}, '{body}'", name_of(url))
        await asyncio.wait_for(told.wait(), SOON_S)
        told.clear()
    await speaks.write(add(1))
    await asyncio.wait_for(heard.wait(), SOON_S)
    speaks.close()
    hears.close()


async def test_one_that_stops_in_the_middle_of_a_write_keeps_others_for_so_long_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "WRITER_IDLE_MS", 700)
    url = the_server().empty()
    stops, goes = opened(url, "stops"), opened(url, "goes")
    inside, go = threading.Event(), threading.Event()

    def verb(tx: Tx) -> int:
        add(1)(tx)
        tx.flush()
        inside.set()
        assert go.wait(SOON_S)
        return add(2)(tx)

    stopped = asyncio.create_task(stops.write(verb))
    assert await asyncio.to_thread(inside.wait, SOON_S)
    assert await asyncio.wait_for(goes.write(add(3)), SOON_S) == 3
    go.set()
    with pytest.raises(Busy) as refused:
        await stopped
    assert refused.value.after_s
    assert await count(goes) == 1, "of what was not finished in time nothing is there"
    assert await stops.write(add(4)) == 4
    stops.close()
    goes.close()


@pytest.mark.parametrize("at_once", [1, 3])
async def test_one_that_takes_no_writes_is_left_for_one_that_does(at_once: int) -> None:
    url = the_server().empty()
    name = name_of(url)
    the_server().do(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    db = opened(url)
    for _ in range(2):
        refused = await asyncio.gather(*(db.write(add(n)) for n in range(at_once)), return_exceptions=True)
        assert all(isinstance(one, Busy) and one.after_s and "no writes" in str(one) for one in refused)
        assert await count(db) == 0, "it is read from all the same"
    the_server().do(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    assert await asyncio.gather(*(db.write(add(n)) for n in range(at_once))) == list(range(at_once))
    db.close()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_two_write_one_after_the_other_whatever_the_database_usually_does(level: str) -> None:
    url = the_server().empty()
    the_server().do(f"ALTER DATABASE {name_of(url)} SET default_transaction_isolation = '{level}'")
    one, two = opened(url, "one"), opened(url, "two")
    made = [db.write(add(n)) for n in range(0, 60, 2) for db, n in ((one, n), (two, n + 1))]
    assert await asyncio.gather(*made) == list(range(60))
    assert await count(one) == 60
    one.close()
    two.close()


async def test_a_question_that_takes_longer_than_is_allowed_there_is_told_to_come_again() -> None:
    url = the_server().empty()
    db = opened(url)
    with pytest.raises(Busy) as refused:
        await db.read(lambda c: [c.execute(sa.text(s)) for s in ("SET statement_timeout = 50", SLEEP)])
    assert refused.value.after_s
    assert await count(db) == 0
    db.close()


SLEEP = "SELECT pg_sleep(30)"


def test_a_new_schema_takes_the_time_that_it_takes() -> None:
    name = f"slow_{the_server().port}"
    the_server().do(f"CREATE DATABASE {name}")
    the_server().do(f"ALTER DATABASE {name} SET statement_timeout = '500ms'")
    url = the_server().url(name)
    with ThreadPoolExecutor(1) as pool:
        with psycopg.connect(**engine.connecting(url)) as held:
            held.execute(f"SELECT pg_advisory_xact_lock({engine.WRITER_LOCK})".encode())
            made = pool.submit(upgrade, url)
            with pytest.raises(TimeoutError):
                made.result(1.5)  # thrice what a statement may take
        assert made.result(SOON_S) is True


@pytest.mark.parametrize("slow", ["source", "target"])
async def test_a_copy_takes_the_time_that_it_takes(slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("WRITER_IDLE_MS", "READER_IDLE_MS"):
        monkeypatch.setattr(engine, limit, 500)
    urls = {"source": the_server().empty(), "target": the_server().empty()}
    db = opened(urls["source"])
    await db.write(add(1))
    db.close()
    for url in urls.values():
        the_server().do(f"ALTER DATABASE {name_of(url)} SET statement_timeout = '500ms'")
    with psycopg.connect(**engine.connecting(urls[slow])) as held, ThreadPoolExecutor(1) as pool:

        def hold(table: str, _rows: int) -> None:
            if table == TABLES[0].name != schema.tasks.name:
                held.execute(b"LOCK TABLE tasks IN ACCESS EXCLUSIVE MODE")

        made = pool.submit(transfer, urls["source"], urls["target"], hold)
        with pytest.raises(TimeoutError):
            made.result(2)  # four times what a statement may take, or either end may wait
        held.rollback()
        assert made.result(SOON_S)[schema.tasks.name] == 1


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_one_that_cannot_have_all_text_is_refused(encoding: str) -> None:
    name = f"narrow_{encoding.lower()}_{the_server().port}"
    the_server().do(f"CREATE DATABASE {name} TEMPLATE template0 LOCALE 'C' ENCODING '{encoding}'")
    with pytest.raises(UnusableDatabaseError, match=f"{encoding}.*UTF8"):
        upgrade(the_server().url(name))
    assert the_server().do("SELECT 1 FROM pg_tables WHERE schemaname = 'public'", name) == []


@pytest.mark.real
async def test_the_one_of_several_addresses_that_takes_writes_is_found_and_listened_to() -> None:
    url = sa.make_url(the_server().empty())
    nobody = f"127.0.0.1:{free_port()}"
    there = {"host": (nobody, f"127.0.0.1:{url.port}"), "target_session_attrs": "read-write"}
    both = url.set(host=None, port=None, query=there).render_as_string(hide_password=False)
    speaks, hears = opened(both, "speaks"), opened(both, "hears")
    heard = asyncio.Event()
    hears.listen(lambda committed: heard.set() if committed.events else None)
    assert await speaks.write(add(1)) == 1
    await asyncio.wait_for(heard.wait(), SOON_S)
    assert await count(hears) == 1
    speaks.close()
    hears.close()


def test_every_address_of_a_url_is_known_to_whoever_listens() -> None:
    url = "postgresql+psycopg://sky:a%20b%2B@/db?host=one:1&host=two:2&connect_timeout=3"
    told = engine.connecting(url)
    assert {name: told[name] for name in ("host", "port", "password", "dbname")} == {
        "host": "one,two",
        "port": "1,2",
        "password": "a b+",
        "dbname": "db",
    }
    assert told["connect_timeout"] == "3", "a URL has the last word"
    assert told["keepalives_idle"] == engine.CONNECT["keepalives_idle"]


@pytest.mark.real
def test_that_nobody_is_heard_is_said_once_for_each_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        hears = Neighbours(f"postgresql+psycopg://sky@127.0.0.1:{port}/sky", "hears")
        with capture_logs() as said:
            hears.listen(lambda keys: None)
            for _ in range(8):  # of which one try may take three
                silent.accept()[0].close()
            assert [one["event"] for one in said] == ["neighbours.not_heard"]
            silent.close()
            until(lambda: len(said) >= 2, "another reason is said", SOON_S)
            hears.close()
    assert said[0]["error"] != said[1]["error"]
