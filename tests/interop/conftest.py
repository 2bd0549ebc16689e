"""Published clients in an environment of their own, and programs that run there against our daemon.

Decides: how that environment is made (from the lock, with Python 3.12), and how a program or a command of the
library is run: as a process, whose output is all that a test sees. Never: imports the library here.
Follows: no Python 3.12 on this computer: these tests are skipped, and say so. No package index: they fail.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uv
from tests.cli import warm

HERE = Path(__file__).parent
LOCK = HERE.parents[1] / "requirements" / "interop.txt"
PYTHON = "3.12"
BUILD_S = 100.0
RUN_S = 100.0
READY_S = 100.0
LOADS = {
    "sky": "import anyio.to_thread, httpcore, skyward\nfrom skyward.cli import app as main",
    "http": "from httpie.__main__ import main",
    "python": """
import anyio.to_thread, cloudpickle, httpcore, skyward
def main():
    del sys.argv[0]
    with open(sys.argv[0], encoding="utf-8") as program:
        code = compile(program.read(), sys.argv[0], "exec")
    sys.path[0], globals()["__file__"] = os.path.dirname(sys.argv[0]), sys.argv[0]
    exec(code, globals())
""",
}
"""The commands, and Python itself, each with what it loads before it is forked, and then calls."""
COMMANDS = ("sky", "http")
PASSED = ("PATH", "LANG", "TMPDIR")


@dataclass(frozen=True)
class Ran:
    """A process that ended."""

    code: int
    out: str
    err: str

    @property
    def told(self) -> Any:
        """What the last line of its output says, as JSON."""
        assert self.code == 0, self.err[-3000:]
        return json.loads(self.out.splitlines()[-1])

    @property
    def json(self) -> Any:
        """Its whole output as JSON."""
        assert self.code == 0, (self.out + self.err)[-3000:]
        return json.loads(self.out)


@dataclass
class Library:
    """The library's environment in ``folder``, pointed at the daemon at ``url``."""

    folder: Path
    url: str
    home: Path

    def line(self, *command: str) -> tuple[str, ...]:
        """A command, or a program of ours by its name, as it is executed."""
        first, *rest = command
        words = (first, *rest) if first in COMMANDS else ("python", str(HERE / "programs" / first), *rest)
        return (str(self.folder / "bin" / words[0]), *words[1:])

    @property
    def environment(self) -> dict[str, str]:
        """What they see of ours, and where the daemon is."""
        passed = {name: os.environ[name] for name in PASSED if name in os.environ}
        return passed | {"HOME": str(self.home), "SKYWARD_URL": self.url, "PYTHONUNBUFFERED": "1"}

    def start(self, *command: str, **options: Any) -> subprocess.Popen[str]:
        """A process of that environment."""
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        return subprocess.Popen(
            self.line(*command), text=True, env=self.environment, cwd=self.home, **options
        )

    def run(self, *command: str, given: str = "") -> Ran:
        """Run it to its end, with what it is given on standard input."""
        words = self.line(*command)
        first, python = Path(words[0]), self.folder / "bin" / "python"
        loaded = warm.loaded(first, python, LOADS[first.name])
        return Ran(*loaded.run(words[1:], given, self.environment, self.home, RUN_S))

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """The daemon itself, without the library."""
        data = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        request = urllib.request.Request(self.url + path, data, sent, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            content = answer.read()
        return json.loads(content) if content else None

    def wait(self, compute: str, *states: str) -> Any:
        """The compute once it is in one of these states."""
        deadline_s = time.monotonic() + READY_S
        while True:
            seen = self.ask("GET", f"/v1/computes/{compute}")
            if seen["status"]["state"] in states:
                return seen
            assert time.monotonic() < deadline_s, seen["status"]
            time.sleep(0.1)


def _environment() -> dict[str, str]:
    """Ours without stand-ins for interpreters, which name versions that they then refuse to run."""
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    kept = os.pathsep.join(entry for entry in path if Path(entry).name != "shims")
    return {**os.environ, "PATH": kept, "UV_PYTHON_DOWNLOADS": "never"}


def _uv(*arguments: str) -> subprocess.CompletedProcess[str]:
    command, environment = [uv.find_uv_bin(), *arguments], _environment()
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False
    )


def find_python() -> str | None:
    """An interpreter of that version, where uv finds one or pyenv keeps one."""
    found = _uv("python", "find", PYTHON)
    if found.returncode == 0:
        return found.stdout.strip()
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    kept = [path for path in root.glob(f"versions/{PYTHON}*/bin/python") if path.exists()]
    return str(max(kept)) if kept else None


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clients as the lock has them. Two seconds with a near index, ten with a far one."""
    python = find_python()
    if python is None:
        pytest.skip(f"the published client library needs Python {PYTHON}, and there is none on this computer")
    folder = tmp_path_factory.mktemp("interop") / "environment"
    for step in (
        ["venv", "--python", python, str(folder)],
        ["pip", "sync", "--require-hashes", "--python", str(folder / "bin" / "python"), str(LOCK)],
    ):
        done = _uv(*step)
        assert done.returncode == 0, f"uv {step[0]}: {done.stderr[-3000:]}"
    return folder


@pytest.fixture(scope="session")
def library(environment: Path, daemon: Any, tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The library, pointed at the daemon of this session."""
    return Library(environment, daemon.url, tmp_path_factory.mktemp("user"))


@pytest.fixture(scope="session")
def stays(library: Library) -> Iterator[str]:
    """The name of a compute with two nodes of Python 3.12 that have the library; nobody holds it."""
    image = {"python": PYTHON, "pip": [pinned("skyward")], "env": {"PLACE": "a node"}}
    specs = [{"provider": {"kind": "local"}}]
    spec = {"specs": specs, "nodes": {"desired": 2}, "image": image, "worker": {"executor": "process"}}
    name = f"stays-{os.getpid()}"
    library.ask("POST", "/v1/computes", {"name": name, "spec": spec})
    library.wait(name, "ready")
    yield name
    library.ask("DELETE", f"/v1/computes/{name}", headers={"If-Match": "*"})


@pytest.fixture(scope="session")
def own_compute(library: Library) -> Iterator[str]:
    """The id of a compute with one node, in the Python that runs here."""
    spec = {"specs": [{"provider": {"kind": "local"}}], "nodes": {"desired": 1}}
    compute = library.ask("POST", "/v1/computes", {"spec": spec})["id"]
    library.wait(compute, "ready")
    yield compute
    library.ask("DELETE", f"/v1/computes/{compute}", headers={"If-Match": "*"})


@pytest.fixture
def folder(library: Library) -> Iterator[Path]:
    """A folder that a program here and a call on a node of this computer both see."""
    made = library.home / f"seen-{time.monotonic_ns()}"
    made.mkdir()
    yield made
    shutil.rmtree(made)


def pinned(name: str) -> str:
    """A requirement of the lock."""
    [line] = [line for line in LOCK.read_text().splitlines() if line.startswith(f"{name}==")]
    return line.removesuffix(" \\")
