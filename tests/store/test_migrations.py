"""Databases of every age: empty, up to date, and from a newer release."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from sky.store import migrate, schema_requests
from sky.store.engine import make_engine
from sky.store.migrate import FOLDER, HEAD, NewerDatabaseError, upgrade

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
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


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
