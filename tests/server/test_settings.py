"""Settings: where they come from, and what is refused before anything is opened."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests import forked

from sky.server.settings import SettingsError, load

START_S = 120


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com", "127.0.0.2"])
def test_no_address_is_served_that_others_can_reach(tmp_path: Path, host: str) -> None:
    with pytest.raises(SettingsError, match=r"host: .* is not a loopback address"):
        load({"home": str(tmp_path), "host": host}, {})


def test_a_daemon_that_would_be_reachable_does_not_start(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sky.server.main", "--home", str(tmp_path), "--host", "0.0.0.0"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=START_S)
    assert ended.returncode == 2
    assert "is not a loopback address" in ended.stderr
    assert not (tmp_path / "sky.db").exists()


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("postgresql", "the database postgresql+psycopg://me:***@127.0.0.1:1/sky cannot be used: connection"),
        ("mysql", "a database of the kind 'mysql' cannot be used"),
        ("nonsense", "a database of the kind 'nonsense' cannot be used"),
    ],
)
def test_a_database_that_cannot_be_spoken_to_is_named_without_its_password(
    tmp_path: Path, kind: str, told: str
) -> None:
    url = f"{kind}://me:hidden-word@127.0.0.1:1/sky"
    words = ("--home", str(tmp_path), "--port", "0", "--database", url)
    ended = forked.run("sky.server.main", *words, environment=os.environ, timeout=START_S)
    assert ended.returncode == 3
    assert ended.stderr.startswith(f"error: {told}")
    assert "Traceback" not in ended.stderr
    assert "hidden-word" not in ended.stderr


def test_the_command_line_wins_over_the_environment_and_that_over_the_default(tmp_path: Path) -> None:
    environment = {
        "SKY_HOME": str(tmp_path),
        "SKY_PORT": "1234",
        "SKY_STOP_SECONDS": "7",
        "SKY_LOG_LEVEL": "",
    }
    settings = load({"port": "4321"}, environment)
    assert (settings.home, settings.port, settings.stop_seconds) == (tmp_path, 4321, 7.0)
    assert settings.log_level == "info", "what is empty is not set"


@pytest.mark.parametrize(
    ("name", "value"),
    [("port", "70000"), ("stop_seconds", "-1"), ("full_sync", "perhaps"), ("events_kept_seconds", "0")],
)
def test_a_wrong_value_is_refused_and_named(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        load({"home": str(tmp_path), name: value}, {})


def test_a_setting_comes_from_a_file_that_a_variable_names(tmp_path: Path) -> None:
    file = tmp_path / "database"
    file.write_text("postgresql://sky:word@db.example/sky\n", encoding="utf-8")
    given = {"SKY_HOME": str(tmp_path), "SKY_DATABASE_FILE": str(file)}
    assert load({}, given).database == "postgresql://sky:word@db.example/sky"
    assert load({"database": "other.db"}, given).database == "other.db"
    with pytest.raises(SettingsError, match=r"SKY_DATABASE and SKY_DATABASE_FILE are both set"):
        load({}, given | {"SKY_DATABASE": "other.db"})


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read: No such file"),
        (b"\n", "is empty"),
        (b"\xff\xfe", "is not text in UTF-8"),
        (b"w" * 70_000, "has more than 65536 characters"),
    ],
)
def test_a_file_that_holds_no_setting_is_refused_without_its_words(
    tmp_path: Path, content: bytes | None, told: str
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError, match=told) as refused:
        load({}, {"SKY_HOME": str(tmp_path), "SKY_METRICS_TOKEN_FILE": str(file)})
    assert "SKY_METRICS_TOKEN_FILE" in str(refused.value)
    assert "www" not in str(refused.value)
