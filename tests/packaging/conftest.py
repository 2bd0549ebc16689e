"""What is given to people: the package, the image's steps, and what judges the files of packaging/.

Decides: how environments are made: by uv, from the locks. Never: lets an environment import anything of this
project's own; only what that has compiled of the same files is taken along, which saves ten seconds.
Follows: two seconds with a near package index; none at all: these tests fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import uv

ROOT = Path(__file__).parents[2]
BUILD_S = 110.0


@dataclass(frozen=True)
class Dist:
    """The two files of a release."""

    wheel: Path
    sdist: Path


def clean(**more: str) -> dict[str, str]:
    """This process's environment, without what would steer the product, pip or uv."""
    foreign = ("SKY_", "PIP_USER", "UV_PROJECT", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)} | more


def run(*command: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    given: dict[str, object] = {"env": clean(), "timeout": BUILD_S, **options}
    return subprocess.run(command, capture_output=True, text=True, check=False, **given)


def environment_of(folder: Path, lock: str, *more: Path) -> Path:
    """A virtual environment with what a lock names, and ``more`` as it is; returns its commands' folder."""
    python = folder / "bin" / "python"
    steps: list[list[str | Path]] = [
        ["venv", "--python", sys.executable, folder],
        ["pip", "sync", "--require-hashes", "--python", python, ROOT / "requirements" / lock],
    ]
    if more:
        steps.append(["pip", "install", "--no-deps", "--python", python, *more])
    for step in steps:
        done = run(uv.find_uv_bin(), "--quiet", *step)
        assert done.returncode == 0, done.stderr[-3000:]
    return folder / "bin"


def take_compiled(source: Path, target: Path) -> None:
    """Copy what was compiled of files in ``source`` to the same files in ``target``."""
    for place, folders, names in os.walk(target):
        known = source / Path(place).relative_to(target)
        if "__pycache__" in folders or not (known / "__pycache__").is_dir():
            continue
        for name in filter(lambda name: name.endswith(".py"), names):
            here, there = Path(place, name), known / name
            if there.is_file() and not here.samefile(there) and here.read_bytes() == there.read_bytes():
                moment = there.stat().st_mtime_ns
                os.utime(here, ns=(moment, moment))
        compiled = Path(place, "__pycache__")
        compiled.mkdir()
        # Others compile meanwhile: what one has not finished has another name, which goes.
        for file in (known / "__pycache__").glob("*.pyc"):
            shutil.copy2(file, compiled)


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Dist:
    """The wheel and the sources, built as a release is, and as docs/install.md says."""
    folder = tmp_path_factory.mktemp("dist")
    done = run(uv.find_uv_bin(), "--quiet", "build", "--out-dir", folder, ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Dist(wheel, sdist)


@pytest.fixture(scope="session")
def installed(dist: Dist, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment that has the wheel and what it needs, and nothing else."""
    commands = environment_of(tmp_path_factory.mktemp("bare") / "environment", "run.txt", dist.wheel)
    [packages] = commands.parent.glob("lib/python*/site-packages")
    take_compiled(Path(uv.__file__).parents[1], packages)
    take_compiled(ROOT / "src" / "sky", packages / "sky")
    return commands


@pytest.fixture(scope="session")
def judges(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment that has what judges Dockerfiles, Compose files and charts."""
    return environment_of(tmp_path_factory.mktemp("judges") / "environment", "packaging.txt")
