"""Computes that a ``sky.toml`` names: what the table says, what is said in its place, and who finds them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sky
from sky.client.blueprint import drawn
from sky.client.resources import Image, Local, Provider, Spec
from sky.wire import v1

TABLES = """
[compute.small]
nodes = 2
cpus = 1
ttl = "5m"
worker = { executor = "thread", concurrency = 3 }
image = { env = { DEPTH = "3" }, includes = ["data/", "notes.txt"] }

[compute.several]
provider = ["local", "far"]
accelerator = "A100:4"
nodes = "0:8"
plugins = ["joblib"]
delete_on_exit = true

[compute.wrong]
nodes = "many"

[compute.odd]
colour = "red"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "sky.toml").write_text(TABLES)
    below = tmp_path / "src" / "deep"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    return tmp_path


def test_a_table_says_what_a_compute_is(folder: Path) -> None:
    name, blueprint = drawn(None, {"provider": "small"}, {})
    assert name == "small"
    spec = blueprint.spec()
    assert spec.nodes == v1.NodeBounds(desired=2)
    assert (spec.ttl, spec.worker.executor, spec.worker.concurrency) == (300, "thread", 3)
    assert spec.specs[0].cpus == 1
    assert spec.image.env == {"DEPTH": "3"}
    assert blueprint.image.includes == (f"{folder}/data/", f"{folder}/notes.txt"), "from where the file is"
    assert not spec.delete_on_exit, "it has a name, so it stays"


def test_alternatives_and_ranges_are_read(folder: Path) -> None:
    name, blueprint = drawn("several", {}, {"memory_gb": 8})
    spec = blueprint.spec()
    assert name == "several"
    assert [(one.provider.kind, one.accelerator, one.accelerator_count) for one in spec.specs] == [
        ("local", "A100", 4),
        ("far", "A100", 4),
    ]
    assert {one.memory_gb for one in spec.specs} == {8}
    assert (spec.nodes.min, spec.nodes.max, spec.delete_on_exit) == (0, 8, True)
    assert spec.plugins == (v1.PluginRef(kind="joblib"),)


def test_what_is_said_in_python_comes_first(folder: Path) -> None:
    image = Image(env={"DEPTH": "4"})
    said = {"provider": Spec(Local(), cpus=2), "nodes": 1, "image": image, "delete_on_exit": True}
    _, blueprint = drawn("small", said, {})
    spec = blueprint.spec()
    assert (spec.nodes.desired, spec.specs[0].cpus, spec.image.env) == (1, 2, {"DEPTH": "4"})
    assert spec.delete_on_exit
    assert spec.ttl == 300


def test_a_name_without_a_table_is_a_provider_or_a_plain_name(folder: Path) -> None:
    assert drawn(None, {"provider": "far"}, {})[1].provider == "far"
    name, blueprint = drawn("other", {"provider": Provider("far")}, {})
    assert (name, blueprint.nodes) == ("other", 1)


@pytest.mark.parametrize(("name", "said"), [("wrong", "nodes 'many' is not a number"), ("odd", "colour")])
def test_a_mistake_names_file_and_table(folder: Path, name: str, said: str) -> None:
    with pytest.raises(
        sky.InvalidRequest, match=rf"sky\.toml: \[compute\.{name}\]: .*{said}.*config validate"
    ):
        sky.Compute(name)


def test_a_file_that_is_no_toml_says_where(folder: Path) -> None:
    (folder / "sky.toml").write_text("[compute.dev\n")
    with pytest.raises(sky.InvalidRequest, match=r"sky\.toml: cannot be read: .*line 1"):
        sky.Compute("dev")


@pytest.mark.real
@pytest.mark.timeout(300)
def test_a_script_leaves_it_and_the_next_and_the_commands_find_it(daemon: Any, tmp_path: Path) -> None:
    (tmp_path / "sky.toml").write_text(
        '[compute.kept-dev]\ncpus = 1\n[compute.kept-dev.image.env]\nMARK = "7"\n'
    )
    script = """
        import os, sys, sky

        @sky.function
        def mark():
            return os.environ["MARK"], sky.instance_info().node

        with sky.Compute("kept-dev", quiet=True) as compute:
            print(*mark() >> compute)
    """
    (tmp_path / "use.py").write_text("\n".join(line[8:] for line in script.splitlines()))
    environment = {**os.environ, "SKY_URL": daemon.url}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    command = ("-m", "sky.cli.main")
    try:
        first = run("use.py")
        assert first.startswith("7 ")
        assert run("use.py") == first, "the same node answers"
        (tmp_path / "say.py").write_text("def say(number: int): return number\n")
        assert run(*command, "run", "--compute", "kept-dev", "say.py", "--number", "4") == "4\n"
        told = json.loads(run(*command, "compute", "get", "kept-dev", "--output", "json"))
        assert told["spec"]["image"]["env"] == {"MARK": "7"}
    finally:
        run(*command, "compute", "delete", "kept-dev", "--yes")
