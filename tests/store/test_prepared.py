"""Statements built once: on every database, for lists of any length, with failures told as usual."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError, IntegrityError
from tests.store.support import compute_row, task_row

import sky.store
from sky.store import schema
from sky.store.db import Database
from sky.store.prepared import LIST_MAX, Prepared, inserted, places, prepared, say
from sky.store.rows import clusters, requests
from sky.store.sql import insert_ignore, literals, many, one, total, upsert

LISTED = Prepared(
    lambda _, count: (
        sa.select(schema.tasks.c.id)
        .where(schema.tasks.c.id.in_(places("ids", count)))
        .order_by(schema.tasks.c.seq)
    ),
    "ids",
)


def all_prepared() -> Iterator[tuple[str, Prepared]]:
    """Every statement of the store that stands at the top of a module."""
    for info in pkgutil.walk_packages(sky.store.__path__, "sky.store."):
        if ".migrations" in info.name:
            continue
        for name, value in vars(importlib.import_module(info.name)).items():
            found = value if isinstance(value, tuple) else (value,)
            yield from ((f"{info.name}.{name}", x) for x in found if isinstance(x, Prepared))


@pytest.mark.parametrize(("name", "statement"), list(all_prepared()))
def test_every_statement_is_spelled_for_postgresql_too(name: str, statement: Prepared) -> None:
    text = str(statement._make("postgresql", 2).compile(dialect=postgresql.dialect()))
    assert "POSTCOMPILE" not in text, name
    assert text.split(maxsplit=1)[0] in {"SELECT", "INSERT", "UPDATE", "DELETE"}


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 700])
async def test_a_list_finds_each_of_its_values_once(db: Database, count: int) -> None:
    rows = [task_row(f"tsk_{n}") for n in range(count + 3)]
    await db.write(lambda tx: tx.add("tasks", rows))
    wanted = [f"tsk_{n}" for n in range(count)]
    found = await db.read(lambda c: LISTED.all(c, {"ids": [*wanted, "tsk_none"]}))
    assert [row["id"] for row in found] == wanted
    assert len(LISTED._compiled) <= LIST_MAX.bit_length(), "few texts serve lists of every length"


async def test_an_empty_list_finds_nothing_and_a_huge_one_is_refused(db: Database) -> None:
    assert await db.read(lambda c: LISTED.all(c, {"ids": []})) == []
    with pytest.raises(ValueError, match="16385"):
        await db.read(lambda c: LISTED.all(c, {"ids": ["x"] * (LIST_MAX + 1)}))
    assert await db.read(lambda c: LISTED.all(c, {"ids": ["x"] * LIST_MAX})) == []


async def test_json_and_defaults_go_in_and_come_out(db: Database) -> None:
    row = compute_row(spec={"a": [1, None, "é"]})
    del row["revision"], row["observed_generation"]
    names = tuple(row)
    by_id = prepared(sa.select(schema.computes).where(schema.computes.c.id == sa.bindparam("b_id")))

    def write(tx: Any) -> None:
        assert inserted(schema.computes, names).run(tx.connection, row) == 1
        more = [{**row, "id": f"cmp_{n}"} for n in (2, 3)]
        assert inserted(schema.computes, names).run(tx.connection, *more) == 2
        assert inserted(schema.computes, names).run(tx.connection) == 0

    await db.write(write)
    for key in ("cmp_1", "cmp_3"):
        found = await db.read(lambda c, k=key: one(c, by_id, {"b_id": k}))
        assert found is not None
        assert (found["spec"], found["last_error"]) == ({"a": [1, None, "é"]}, None)
        assert (found["revision"], found["observed_generation"]) == (1, 0), "constant defaults"
    assert await db.read(lambda c: one(c, by_id, {"b_id": "none"})) is None
    assert await db.read(lambda c: by_id.scalar(c, {"b_id": "none"})) is None
    assert await db.read(lambda c: len(many(c, sa.select(schema.computes)))) == 3


async def test_insert_or_else(db: Database) -> None:
    names = ("name", "value")
    ignore = Prepared(lambda dialect, _: insert_ignore(dialect, schema.counters, names))
    replace = Prepared(lambda dialect, _: upsert(dialect, schema.counters, ["name"], names))
    added = Prepared(
        lambda dialect, _: upsert(
            dialect,
            schema.counters,
            ["name"],
            names,
            lambda new: {"value": schema.counters.c.value + new.value},
        )
    )
    value = prepared(sa.select(schema.counters.c.value).where(schema.counters.c.name == sa.bindparam("b")))

    def write(tx: Any) -> list[int]:
        seen: list[int] = []
        for statement in (ignore, ignore, replace, added):
            statement.run(tx.connection, {"name": "n", "value": 5 + len(seen)})
            seen.append(value.scalar(tx.connection, {"b": "n"}))
        return seen

    assert await db.write(write) == [5, 5, 7, 15]


async def test_failures_are_told_as_sqlalchemy_tells_them_and_without_values(db: Database) -> None:
    statement = inserted(schema.counters, ("name", "value"))
    secret = {"name": "hunter2", "value": 1}
    with pytest.raises(IntegrityError) as told:
        await db.write(lambda tx: statement.run(tx.connection, secret) + statement.run(tx.connection, secret))
    assert "hunter2" not in str(told.value)
    with pytest.raises(IntegrityError):
        await db.write(lambda tx: statement.run(tx.connection, secret, secret))
    with pytest.raises(DBAPIError, match="syntax"):
        await db.write(lambda tx: say(tx.connection, "THIS IS NO SQL"))
    with pytest.raises(KeyError, match="value"):
        await db.write(lambda tx: statement.run(tx.connection, {"name": "x"}))


def test_a_list_of_fixed_values_has_to_be_spelled_out() -> None:
    column = schema.tasks.c.state
    assert "POSTCOMPILE" in str(sa.select(column).where(column.in_(["a", "b"])))
    assert str(sa.select(column).where(column.in_(literals({"b", "a"})))).endswith("IN ('a', 'b')")


@pytest.mark.parametrize("number", [2**31, 2**63 - 1])
async def test_a_number_that_no_row_can_have_is_not_found(db: Database, number: int) -> None:
    assert await db.read(lambda c: requests.lines(c, "req", number, 9)) == []
    assert await db.read(lambda c: clusters.job(c, "clu", number)) is None
    assert await db.read(lambda c: clusters.job_states(c, "clu", [1, number])) == {}


async def test_a_sum_of_whole_numbers_is_one(db: Database) -> None:
    rows = [{"name": name, "value": 2**40} for name in ("a", "b")]
    await db.write(lambda tx: inserted(schema.counters, ("name", "value")).run(tx.connection, *rows))
    mine = sa.select(total(schema.counters.c.value)).where(schema.counters.c.name.in_(literals(["a", "b"])))
    for statement in (mine, prepared(mine)):
        [row] = await db.read(partial(many, statement=statement))
        [found] = row.values()
        assert (found, type(found)) == (2**41, int)


async def test_json_with_a_nul_is_kept_and_its_parts_can_be_asked_for(db: Database) -> None:
    spec = {"nul": "a\0b", "said": "a\\u0000b", "beside": "c"}
    await db.write(lambda tx: tx.connection.execute(sa.insert(schema.computes), compute_row(spec=spec)))
    column = schema.computes.c.spec
    asked = sa.select(column, column["beside"].as_string().label("beside"))
    for statement in (asked, prepared(asked)):
        [row] = await db.read(partial(many, statement=statement))
        assert (row["spec"], row["beside"]) == (spec, "c")
