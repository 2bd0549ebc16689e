"""``sky doctor``: what it finds, beside a daemon and without one, and that it mends and starts nothing."""

from __future__ import annotations

import socket
import sqlite3
from typing import Any

from tests.databases import IN_A_FILE

NO_ENGINE = "/nowhere"
"""A PATH on which there is no container engine to be asked, which takes a while."""


def found(sky: Any, code: int, **more: str) -> dict[str, dict[str, Any]]:
    """What it says of each thing, by the thing's name; the worst where there are several."""
    told = sky("doctor", "-o", "json", **more).check(code).json()
    assert told["healthy"] == (code == 0)
    worst = sorted(told["findings"], key=lambda one: ["ok", "warn", "bad"].index(one["state"]))
    assert all(one["mend"] for one in worst if one["state"] != "ok")
    return {one["check"]: one for one in worst}


def test_without_a_daemon_it_starts_none_and_makes_nothing(sky: Any) -> None:
    told = found(sky, 0)
    assert told["daemon"]["state"] == "ok"
    assert {"python", "sky.toml", "settings", "home", "disk", "limits", "extras", "database"} <= set(told)
    assert told["containers"]["state"] in ("ok", "warn")
    assert not sky.home.exists()


@IN_A_FILE
def test_a_daemon_that_works_is_told_to_be_well(live: Any) -> None:
    page = live("doctor", PATH=NO_ENGINE).check().out
    for name in ("daemon", "ready", "token", "database", "ledger"):
        assert f"ok    {name} " in page
    assert "warn  containers " in page
    assert "\x1b" not in page


def test_what_is_broken_is_told_with_what_mends_it(sky: Any) -> None:
    sky.home.mkdir(mode=0o755)
    (sky.home / "secret").write_text("x" * 40)
    (sky.home / "secret").chmod(0o644)
    (sky.home / "sky.db").write_bytes(b"this is no database, and never was one" * 200)
    (sky.home / "sky.db").chmod(0o600)
    (sky.home / "daemon.json").write_text('{"url": "http://127.0.0.1:9", "pid": 999999999, "release": "0"}')
    (sky.folder / "sky.toml").write_text("[compute.dev]\nnodse = 2\n")
    told = found(sky, 1, PATH=NO_ENGINE)
    assert told["secrets"]["mend"] == f"chmod 600 {sky.home / 'secret'}"
    assert told["home"]["mend"] == f"chmod 700 {sky.home}"
    assert told["database"]["state"] == "bad"
    assert "not a database" in told["database"]["said"]
    assert told["daemon"]["state"] == "warn"
    assert "nodse" in told["sky.toml"]["said"]


def test_a_newer_database_and_a_server_that_never_answers(sky: Any) -> None:
    sky.home.mkdir(mode=0o700)
    with sqlite3.connect(sky.home / "sky.db") as database:
        database.execute("CREATE TABLE alembic_version (version_num TEXT)")
        database.execute("INSERT INTO alembic_version VALUES ('9999')")
    database.close()
    (sky.home / "sky.db").chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        told = found(sky, 1, SKY_URL=url, PATH=NO_ENGINE)
    assert told["daemon"]["state"] == "bad"
    assert told["daemon"]["mend"].startswith("unset SKY_URL")
    assert told["database"]["state"] == "bad"
    assert "9999" in told["database"]["said"]


def test_a_folder_that_may_not_be_looked_at_is_told_and_the_rest_is_looked_at(sky: Any) -> None:
    told = found(sky, 1, SKY_SHARED_FOLDER=f"/{'x' * 300}", PATH=NO_ENGINE)
    assert told["home"]["state"] == told["disk"]["state"] == "bad"
    assert "cannot be looked at: File name too long" in told["home"]["said"]
    assert told["limits"]["state"] != "bad"
    assert told["database"]["state"] == "ok"


def test_a_setting_that_cannot_be_used(sky: Any) -> None:
    told = found(sky, 1, SKY_HOST="0.0.0.0")
    assert told["settings"]["state"] == "bad"
    assert "tls" in told["settings"]["said"]
