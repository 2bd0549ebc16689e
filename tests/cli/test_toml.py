"""``sky.toml``: what is found, what is refused and on which line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

GOOD = """
[compute.dev]
provider = "local"
nodes = "1:4"
cpus = 1
pip = ["numpy"]
ttl = "10m"

[compute.big]
specs = [{ provider = "local", cpus = 2 }, { provider = "cloud", accelerator = "A100:8" }]
nodes = [0, 2]
image = { pip = ["torch"], python = "3.11" }
plugins = ["torch"]
"""

WRONG = [
    ("[compute.dev]\nnodez = 2\n", 2, "compute.dev.nodez: there is no such field", "did you mean `nodes`?"),
    ("[compute.dev]\ncpus = 0\n", 2, "compute.dev.cpus: expected `int` >= 1, got 0", ""),
    ("\n[compute.dev]\n\nnodes = -2\n", 4, "compute.dev.nodes.desired: expected `int` >= 0, got -2", ""),
    ('[compute.dev]\nttl = "soon"\n', 2, "ttl 'soon' is not a time", "10m"),
    ("[compute.dev.image]\npips = []\n", 2, "compute.dev.image.pips: there is no such field", "`pip`"),
    ("[compute.dev]\npip = 3\n", 2, "compute.dev.pip: expected `array`, got 3", ""),
    ('[compute."a b"]\nnodes = 1\n', 1, "is not a name a compute can have", ""),
    ("[computes.dev]\nnodes = 1\n", 1, "computes: there is no such table", "[compute.NAME]"),
    ("[compute]\ndev = 1\n", 2, "compute.dev: is not a table", ""),
    ("[compute.dev\nnodes = 1\n", 1, "", ""),
    ('[compute.dev]\nname = "x\n', 2, "", ""),
    ("[compute.dev]\nnodes = 1\nnodes = 2\n", 3, "", ""),
    ('[compute.dev]\nallocation = "sport"\n', 2, "compute.dev.allocation: invalid enum value", ""),
    ("[compute.dev]\nnodes = { desired = 1, min = 3, max = 2 }\n", 2, "min 3 is above max 2", ""),
]


def write(sky: Any, text: str) -> Path:
    path = sky.folder / "sky.toml"
    path.write_text(text)
    return path


def test_a_right_file_is_right(sky: Any) -> None:
    path = write(sky, GOOD)
    assert f"{path}: 2 computes, no mistakes" in sky("config", "validate").check().out
    told = sky("config", "validate", "-o", "json").check().json()
    assert told == {"file": str(path), "problems": [], "daemon": "not running"}


@pytest.mark.parametrize(("text", "line", "said", "hint"), WRONG, ids=[case[0] for case in WRONG])
def test_a_mistake_is_told_with_its_line(sky: Any, text: str, line: int, said: str, hint: str) -> None:
    path = write(sky, text)
    ended, in_json = sky.together([["config", "validate"], ["config", "validate", "-o", "json"]])
    first = ended.check(2).out.splitlines()[0]
    assert first.startswith(f"{path}:{line}: ")
    assert said.lower() in first.lower()
    assert hint in first
    assert ended.err.startswith(f"error: invalid_config: {path} has 1 mistake")
    problems = in_json.check(2).json()["problems"]
    assert [problem["line"] for problem in problems] == [line]


def test_every_mistake_is_told_at_once(sky: Any) -> None:
    write(sky, "[compute.a]\nnodez = 1\n[compute.b]\ncpu = 1\n[other]\n")
    out = sky("config", "validate").check(2).out
    assert len(out.splitlines()) == 3


def test_create_uses_the_table_and_refuses_its_mistakes(sky: Any) -> None:
    path = write(sky, "[compute.dev]\nnodes = -1\n")
    ended = sky("compute", "create", "dev").check(2)
    assert f"{path}:2: compute.dev.nodes.desired" in ended.err
    assert not sky.home.exists()


def test_the_nearest_file_counts(sky: Any) -> None:
    path = write(sky, GOOD)
    inner = sky.folder / "a" / "b"
    inner.mkdir(parents=True)
    sky.folder = inner
    assert sky("config", "show", "-o", "json").check().json()["file"] == str(path)
    (inner.parent / "sky.toml").write_text("[compute.near]\nnodes = 1\n")
    assert list(sky("config", "show", "-o", "json").check().json()["computes"]) == ["near"]


def test_settings_and_where_each_came_from(sky: Any) -> None:
    told = sky("config", "show", "-o", "json", SKY_TOKEN="very-secret-token").check()
    settings = {one["name"]: one for one in told.json()["settings"]}
    assert settings["home"] == {"name": "home", "value": str(sky.home), "from": "SKY_HOME"}
    assert settings["token"]["from"] == "SKY_TOKEN"
    assert "very-secret-token" not in told.out
    table = sky("config", "show").check().out
    assert "no sky.toml here or in a parent folder" in table


def test_settings_are_shown_beside_a_file_that_cannot_be_read(sky: Any) -> None:
    (sky.folder / "sky.toml").write_text("[compute.dev]\nnodes =\n")
    shown = sky("config", "show").check(2)
    assert "SKY_HOME" in shown.out
    assert "sky.toml:2" in shown.err


SPECS = [
    ("[]", "is not a JSON object"),
    ("{", "is not JSON"),
    ('{"spec": {"nodes": {"desired": 1}}}', "lacks specs"),
    (
        '{"specs": [{"provider": {"kind": "local"}}], "nodes": {"desired": 1}, "imag": {}}',
        "imag: there is no",
    ),
    ('{"specs": [{"provider": {"kind": "local"}, "cpus": -1}], "nodes": {"desired": 1}}', "specs.0.cpus"),
    ('{"spec": {}, "labels": {}}', "labels: there is no such field"),
]


@pytest.mark.parametrize(("text", "said"), SPECS, ids=[case[0] for case in SPECS])
def test_a_definition_in_a_file_is_checked(sky: Any, text: str, said: str) -> None:
    (sky.folder / "spec.json").write_text(text)
    ended = sky("compute", "create", "--spec", "spec.json").check(2)
    assert said in ended.err
    if said != "lacks specs":  # an option says what a file leaves out
        with_options = sky("compute", "create", "--spec", "spec.json", "--pip", "numpy").check(2)
        assert said in with_options.err


def test_a_credential_is_found_before_the_daemon_refuses_it(sky: Any) -> None:
    text = '[compute.one]\nenv = { OK = "1", API_TOKEN = "abcd1234efgh" }\n[compute.two.env]\nDB = "pg://me:pw1234@h/x"\n'
    (sky.folder / "sky.toml").write_text(text)
    ended = sky("config", "validate", "-o", "json").check(2)
    found = [(p["line"], p["field"]) for p in ended.json()["problems"]]
    assert found == [(2, "compute.one.env.API_TOKEN"), (4, "compute.two.env.DB")]
    assert "abcd1234efgh" not in ended.out + ended.err
    assert "pw1234" not in ended.out + ended.err
