"""Databases of every age: empty, up to date, and from a newer release."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from tests.store.support import compute_row

from sky.store import migrate, schema, schema_requests
from sky.store.engine import make_engine
from sky.store.migrate import FOLDER, HEAD, NewerDatabaseError, upgrade
from sky.store.rows import cluster_plans, clusters, nodes, requests, webhooks
from sky.store.views import summary, tasks
from sky.store.views import webhooks as sent_views
from sky.store.views.standing import standing

RELEASED = "0004"
"""From this schema on, a step lets the daemons of the schema before it work on."""
STEPS = sorted((FOLDER / "versions").glob("[0-9]*.py"))


def statements(path: Path, *, of_steps: bool = False) -> dict[str, str]:
    """What made each table and index, with the spelling that does not matter taken out; ``of_steps``: also of
    the table that says which steps were taken."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT name, sql FROM sqlite_master").fetchall()
    rows = [row for row in rows if of_steps or "alembic" not in row[0]]
    return {name: re.sub(r'[\s"]+', "", sql or "") for name, sql in rows}


def shape(engine: sa.Engine) -> dict[str, list[tuple[str, str]]]:
    """The columns of every table, and the release that the database says it is of."""
    seen = sa.inspect(engine)
    with engine.connect() as connection:
        release = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    told = {t: [(c["name"], str(c["type"])) for c in seen.get_columns(t)] for t in seen.get_table_names()}
    return {**told, "release": [("", str(release))]}


def test_an_empty_database_is_brought_to_the_newest_schema(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'sky.db'}"
    engine = make_engine(url, writer=True)
    assert migrate.current(engine) is None
    assert upgrade(url) is True
    assert migrate.current(engine) == HEAD
    assert upgrade(url) is False, "up to date, it is not touched"
    engine.dispose()


def test_the_steps_make_what_an_empty_database_is_given_at_once(tmp_path: Path) -> None:
    engine = make_engine(f"sqlite:///{tmp_path / 'steps.db'}", writer=True)
    with engine.begin() as connection:
        migrate.step_up(connection)
    assert migrate.current(engine) == HEAD
    engine.dispose()
    upgrade(f"sqlite:///{tmp_path / 'made.db'}")
    by_steps, made = (statements(tmp_path / name, of_steps=True) for name in ("steps.db", "made.db"))
    assert by_steps == made


def test_an_empty_database_is_made_without_the_time_that_steps_take(tmp_path: Path) -> None:
    code = (
        "import sys; from sky.store.migrate import upgrade;"
        f"assert upgrade('sqlite:///{tmp_path / 'sky.db'}'); assert 'alembic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_alembic_sees_no_difference(database_url: str) -> None:
    engine = sa.create_engine(database_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, schema_requests.metadata) == []
    engine.dispose()


def test_a_database_of_a_newer_release_is_refused_and_not_touched(database_url: str) -> None:
    engine = sa.create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    before = shape(engine)
    with pytest.raises(NewerDatabaseError, match="9999"):
        upgrade(database_url)
    assert shape(engine) == before
    engine.dispose()


def test_the_steps_are_one_chain_that_ends_at_the_head() -> None:
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    chain = [step.revision for step in ScriptDirectory.from_config(config).walk_revisions()]
    assert chain[0] == HEAD
    assert sorted(chain, reverse=True) == chain
    assert [path.name[:4] for path in STEPS] == sorted(chain)


@pytest.mark.parametrize("path", STEPS, ids=lambda path: path.stem)
def test_a_step_says_itself_what_it_does(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "sky.store.schema" not in text, "a step stays what it was when the schema moves on"
    assert "metadata" not in text


@pytest.mark.parametrize(
    ("before", "after"), [pair for pair in pairwise(path.name[:4] for path in STEPS) if pair[0] >= RELEASED]
)
def test_daemons_of_the_schema_before_go_on_beside_ours(tmp_path: Path, before: str, after: str) -> None:
    engine = make_engine(f"sqlite:///{tmp_path / 'sky.db'}", writer=True)
    step_to(engine, before)
    old = {table: {one["name"]: one for one in columns} for table, columns in described(engine).items()}
    unique = uniques(engine)
    step_to(engine, after)
    for table, columns in described(engine).items():
        there = {one["name"]: one for one in columns}
        for name, known in old.get(table, {}).items():
            assert name in there, f"{table}.{name} is read and written by {before}"
            assert str(there[name]["type"]) == str(known["type"]), f"{table}.{name}"
            assert there[name]["nullable"] or not known["nullable"], f"{table}.{name}"
        for name in there.keys() - old.get(table, there).keys():
            new = there[name]
            assert new["nullable"] or new["default"] is not None, f"{table}.{name}: {before} leaves it out"
    assert old.keys() <= described(engine).keys()
    assert {one for one in uniques(engine) - unique if one[0] in old} == set(), "refuses what was good before"
    engine.dispose()


def step_to(engine: sa.Engine, release: str) -> None:
    """Take the steps up to that one."""
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, release)


def described(engine: sa.Engine) -> dict[str, list[Any]]:
    """The columns of every table."""
    seen = sa.inspect(engine)
    return {table: list(seen.get_columns(table)) for table in seen.get_table_names()}


def uniques(engine: sa.Engine) -> set[tuple[str, tuple[str | None, ...]]]:
    """What may be there once only: tables, with columns."""
    seen = sa.inspect(engine)
    return {
        (table, tuple(one["column_names"]))
        for table in seen.get_table_names()
        for one in seen.get_indexes(table)
        if one["unique"]
    }


def test_clusters_and_requests_of_the_last_release_are_there_after_the_step(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'sky.db'}"
    engine = make_engine(url, writer=True)
    step_to(engine, "0003")
    with engine.begin() as connection:
        _insert(connection, "computes", compute_row())
        _insert(connection, "clusters", _cluster())
        for row in _jobs():
            _insert(connection, "cluster_jobs", row)
        for row in _requests():
            _insert(connection, "requests", row)
    engine.dispose()

    assert upgrade(url) is True
    with sa.create_engine(url).connect() as connection:
        found = cluster_plans.view(connection, "clu_1")
        assert found is not None
        row, view = found
        assert (row["name"], row["autostop_wait"], row["session_us"]) == ("dev", None, None)
        assert [job.number for job in view.jobs] == [2]
        assert view.idling.wait == "jobs_and_ssh"
        assert requests.open_of(connection, "clu_1") == ["req2"]
        assert [one["id"] for one in requests.matching(connection, "req")] == ["req1", "req2"]
        told = connection.execute(sa.select(schema.computes.c.narrow, schema.computes.c.disks)).one()
        assert tuple(told) == (None, None)


def _insert(connection: sa.Connection, table: str, row: dict[str, Any]) -> None:
    """Add a row as a release wrote it that knew fewer columns."""
    there = {column["name"] for column in sa.inspect(connection).get_columns(table)}
    packed = {
        name: json.dumps(value) if isinstance(value, dict | list) else value
        for name, value in row.items()
        if name in there
    }
    places = ", ".join(f":{name}" for name in packed)
    connection.execute(sa.text(f"INSERT INTO {table} ({', '.join(packed)}) VALUES ({places})"), packed)


def _cluster() -> dict[str, Any]:
    return {
        "id": "clu_1",
        "name": "dev",
        "state": "UP",
        "version": 3,
        "owner": "ann",
        "compute_id": "cmp_1",
        "num_nodes": 1,
        "resources": {"machines": [{}]},
        "specs": [{"provider": {"kind": "local"}}],
        "autostop_minutes": 5,
        "autostop_down": False,
        "next_job": 3,
        "created_us": 1,
        "launched_us": 1,
        "busy_us": 1,
    }


def _jobs() -> list[dict[str, Any]]:
    job = {"cluster_id": "clu_1", "owner": "ann", "version": 1, "num_nodes": 1, "gpus": 0, "submitted_us": 1}
    job |= {"body": {"run": "true", "secrets": {"T": "x"}}}
    return [
        {**job, "id": "cjb_1", "number": 1, "state": "SUCCEEDED", "ended_us": 2},
        {**job, "id": "cjb_2", "number": 2, "state": "PENDING"},
    ]


def _requests() -> list[dict[str, Any]]:
    asked = {"name": "exec", "version": 1, "owner": "ann", "cluster_id": "clu_1", "tries": 0, "created_us": 1}
    asked |= {"body": {"task": {"run": "true"}, "cluster_name": "dev"}}
    return [
        {**asked, "id": "req1", "state": "SUCCEEDED", "finished_us": 2},
        {**asked, "id": "req2", "state": "RUNNING", "started_us": 1},
    ]


ALONGSIDE = ("MULTI-INDEX OR", "INDEX 1", "INDEX 2", "USE TEMP B-TREE FOR ORDER BY")
"""What a plan does with the few that it has found."""
LOOKED_FOR: dict[str, Callable[[sa.Connection], Any]] = {
    "requests of a cluster": lambda c: requests.open_of(c, "clu_1"),
    "requests by a prefix": lambda c: requests.matching(c, "01m8"),
    "requests of an owner": lambda c: requests.page(c, owner="someone", limit=9, all_status=True),
    "what the machines of a month cost": lambda c: summary.machines(c, None, 5),
    "requests to forget": lambda c: c.execute(requests.ended_before(5, 9)).all(),
    "open jobs of a cluster": lambda c: list(clusters.open_jobs(c, "clu_1")),
    "what is asked of a name": lambda c: requests.unbegun(c, "dev"),
    "a cluster by its name": lambda c: clusters.named(c, "dev"),
    "clusters by their names": lambda c: clusters.live(c, None, ["dev", "prod"], 9),
    "what a cluster's plan reads": lambda c: cluster_plans.view(c, "clu_1"),
}


def _plans(tmp_path: Path, ask: Callable[[sa.Connection], object], *rows: tuple[str, dict[str, Any]]) -> Any:
    """What is asked of a new database with these rows, each with the steps by which it is found."""
    url = f"sqlite:///{tmp_path / 'sky.db'}"
    upgrade(url)
    engine = sa.create_engine(url)
    said: list[str] = []
    with engine.connect() as connection:
        for table, row in rows:
            _insert(connection, table, row)
        driver: Any = connection.connection.dbapi_connection
        driver.set_trace_callback(said.append)
        ask(connection)
        driver.set_trace_callback(None)
        plans = [(text, connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}").all()) for text in said]
    engine.dispose()
    return plans


@pytest.mark.parametrize("what", LOOKED_FOR)
def test_what_is_open_is_found_without_reading_all_that_ever_was(tmp_path: Path, what: str) -> None:
    rows = [("clusters", _cluster()), *(("cluster_jobs", job) for job in _jobs())]
    plans = [plan for _, plan in _plans(tmp_path, LOOKED_FOR[what], *rows)]
    assert plans
    steps = [step.detail for plan in plans for step in plan if step.detail not in ALONGSIDE]
    assert steps
    assert all(step.startswith("SEARCH") for step in steps), steps
    everything = [step for step in steps if "autoindex" in step and step.endswith("(cluster_id=?)")]
    assert everything == [], "it reads those that ended too"


def test_nodes_that_are_over_are_not_read_to_count_the_others(tmp_path: Path) -> None:
    def ask(connection: sa.Connection) -> None:
        standing(connection, 5)
        nodes.machines_of(connection, "prv_1")

    plans = [plan for text, plan in _plans(tmp_path, ask) if "nodes" in text]
    assert len(plans) == 2
    assert all("ix_nodes_not_over" in plan[0].detail for plan in plans), plans


@pytest.mark.parametrize(
    ("state", "index"),
    [
        ("queued", "ix_tasks_undone"),
        ("running", "ix_tasks_undone"),
        ("failed", "ix_tasks_no_result"),
        ("indeterminate", "ix_tasks_no_result"),
    ],
)
def test_calls_in_a_state_that_few_are_in_are_read_without_the_others(
    tmp_path: Path, state: str, index: str
) -> None:
    [(_, plan)] = _plans(tmp_path, lambda c: tasks.page(c, cursor=None, limit=9, state=state))
    assert [step.detail.partition(" USING ")[2].split()[:2] for step in plan] == [["INDEX", index]]


@pytest.mark.parametrize("state", [None, "failed", "pending"])
def test_a_page_of_what_was_sent_to_a_webhook_is_read_without_the_rest(
    tmp_path: Path, state: str | None
) -> None:
    def ask(connection: sa.Connection) -> None:
        sent_views.sent(connection, "whk_1", state, cursor=None, limit=9)
        sent_views.webhook(connection, "whk_1")
        webhooks.page(connection, "whk_1", 7, 9)

    hook = {"owner": "account:a", "url": "u", "secrets": b"", "enabled": True, "after_seq": 0}
    plans = _plans(tmp_path, ask, ("webhooks", {**hook, "id": "whk_1", "created_us": 0}))
    steps = [
        step.detail for _, plan in plans for step in plan if "deliver" in step.detail or "TREE" in step.detail
    ]
    assert all(step.startswith("SEARCH deliveries USING") for step in steps), steps
    assert len(steps) == 4, "a page, two counts, and the page that its owner sees"
    for step, name in zip(steps[1:3], ("pending", "failed"), strict=True):
        assert f"INDEX ix_deliveries_{name} (webhook_id=?)" in step, "what was delivered is not read to count"


def test_the_first_step_can_be_taken_back(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'sky.db'}"
    upgrade(url)
    engine = make_engine(url, writer=True)
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    engine.dispose()
    assert {name for name in statements(tmp_path / "sky.db") if not name.startswith("sqlite_")} == set()
