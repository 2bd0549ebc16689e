"""The wheel and the sources: what is in them, and that an environment with nothing else works."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

import pytest
import uv
from tests.packaging.conftest import ROOT, Dist, clean, run

from sky.kit.version import VERSION

READY_S = 100.0
DATA = {
    "sky/py.typed",
    "sky/dashboard/index.html",
    "sky/dashboard/app.js",
    "sky/dashboard/style.css",
    "sky/domain/price_list.csv",
    "sky/server/catalogue.yaml",
    f"skyfleet-{VERSION}.data/data/share/man/man1/sky.1",
}
STRANGE = re.compile(r"(^|/)(tests?|bench|\.venv|__pycache__|\.[a-z_]+_cache)/|\.(pyc|orig|rej|log|db)$")


def tracked(*under: str) -> set[str]:
    done = run("git", "-C", ROOT, "ls-files", "--", *under)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_the_wheel_has_the_package_with_its_data_and_nothing_else(dist: Dist) -> None:
    with zipfile.ZipFile(dist.wheel) as archive:
        names = set(archive.namelist())
        assert archive.testzip() is None
    have = {name.removeprefix("src/") for name in tracked("src/sky") if (ROOT / name).exists()}
    assert {name for name in have if name not in names} == set()
    assert {name for name in DATA if name not in names} == set()
    places = {name.split("/")[0] for name in names}
    assert places == {"sky", f"skyfleet-{VERSION}.data", f"skyfleet-{VERSION}.dist-info"}
    assert [name for name in names if STRANGE.search(name)] == []


def test_the_sources_build_the_same_package(dist: Dist) -> None:
    with tarfile.open(dist.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        "pyproject.toml",
        "README.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "docs/install.md",
        "packaging/man/sky.1",
    }
    assert wanted - names == set()
    with zipfile.ZipFile(dist.wheel) as archive:
        package = {name for name in archive.namelist() if name.startswith("sky/")}
    assert {name.removeprefix("src/") for name in names if name.startswith("src/")} == package
    assert [name for name in names if STRANGE.search(name)] == []


def test_the_metadata_say_what_it_is(dist: Dist) -> None:
    with zipfile.ZipFile(dist.wheel) as archive:
        text = archive.read(f"skyfleet-{VERSION}.dist-info/METADATA").decode()
        entry = archive.read(f"skyfleet-{VERSION}.dist-info/entry_points.txt").decode()
    said = HeaderParser().parsestr(text)
    assert (said["Name"], said["Version"]) == ("skyfleet", VERSION)
    assert "sky = sky.cli.main:main" in entry
    assert said["Description-Content-Type"] == "text/markdown"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(said.get_all("Provides-Extra", [])) == set(extras)
    [everything] = extras["all"]
    assert everything == f"skyfleet[{','.join(sorted(set(extras) - {'all'}))}]"


def test_the_wheel_runs_a_command_once_without_being_installed(dist: Dist, tmp_path: Path) -> None:
    tools = clean(UV_TOOL_DIR=str(tmp_path / "tools"), UV_PYTHON=sys.executable)
    done = run(uv.find_uv_bin(), "tool", "run", "--from", dist.wheel, "sky", "--version", env=tools)
    assert (done.returncode, done.stdout) == (0, f"sky {VERSION}\n"), done.stderr


def test_every_extra_that_is_named_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named: set[str] = set()
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]:
        for found in re.findall(r"skyfleet\[([a-z0-9,]+)\]", path.read_text(encoding="utf-8")):
            named |= set(found.split(","))
    assert named, "what is missing should be named with its extra"
    assert named - set(extras) == set()


@dataclass
class Served:
    """A daemon of the environment that was installed, begun as a service manager begins it."""

    bin: Path
    home: Path
    log: Path
    manager: socket.socket
    process: subprocess.Popen[bytes]

    def sky(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command beside it."""
        return run(self.bin / "sky", *words, env=self.environment(), cwd=self.home)

    def environment(self) -> dict[str, str]:
        """What its commands see."""
        return clean(SKY_HOME=str(self.home / "state"), HOME=str(self.home))


@pytest.fixture(scope="module")
def served(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("served")
    # A name that only the kernel keeps, which is what systemd uses inside containers.
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(f"\0skyfleet-test-{os.getpid()}")
    manager.settimeout(READY_S)
    log = home / "log"
    with log.open("wb") as out, manager:
        found = os.fstat(out.fileno())
        more = {
            "SKY_HOME": str(home / "state"),
            "HOME": str(home),
            "SKY_PORT": "0",
            "NOTIFY_SOCKET": f"@skyfleet-test-{os.getpid()}",
            "JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}",
        }
        words = [installed / "sky", "server", "start", "--foreground"]
        process = subprocess.Popen(words, env=clean(**more), stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            yield Served(installed, home, log, manager, process)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(READY_S)


CALL = """
import sky

@sky.function
def area(width, height):
    return width * height

with sky.Compute(provider=sky.Local(), nodes=1) as compute:
    print(area(3, 4) >> compute)
"""


@pytest.mark.real
def test_an_environment_with_nothing_else_serves_and_calls(served: Served) -> None:
    told = served.manager.recv(4096).decode()
    recorded = json.loads((served.home / "state" / "daemon.json").read_bytes())
    assert told.splitlines() == ["READY=1", f"STATUS=serves at {recorded['url']}"]
    assert recorded["pid"] == served.process.pid, "the service manager's own child is the daemon"
    assert served.sky("--version").stdout == f"sky {VERSION}\n"
    script = served.home / "call.py"
    script.write_text(CALL, encoding="utf-8")
    done = run(served.bin / "python", script, env=served.environment(), cwd=served.home)
    assert (done.returncode, done.stdout) == (0, "12\n"), done.stderr


@pytest.mark.real
def test_the_image_asks_whether_the_daemon_is_well_and_ends_it_in_order(served: Served) -> None:
    text = (ROOT / "Dockerfile").read_text()
    [check] = re.findall(r"^HEALTHCHECK .*CMD (\[.*\])$", text, re.MULTILINE)
    entry, begun = (
        json.loads(found) for found in re.findall(r"^(?:ENTRYPOINT|CMD) (\[.*\])$", text, re.MULTILINE)
    )
    assert [*entry, *begun] == ["tini", "--", "sky", "server", "start", "--foreground"]
    _, *words = json.loads(check)
    assert served.sky(*words).returncode == 0
    served.process.send_signal(signal.SIGTERM)
    assert served.manager.recv(4096) == b"STOPPING=1"
    assert served.process.wait(READY_S) == 0
    assert served.sky(*words).returncode != 0
    lines = served.log.read_text().splitlines()
    assert {line[:4] for line in lines} == {"<6>{"}, "journald is told the severity, before the line"
    assert [json.loads(line[3:])["event"] for line in lines][-1] == "daemon.stopped"


@pytest.mark.real
def test_what_an_extra_brings_is_named_with_the_command_that_brings_it(
    installed: Path, tmp_path: Path
) -> None:
    given = ["--home", str(tmp_path), "--port", "0"]
    database = ["--database", "postgresql://sky@127.0.0.1:1/sky"]
    code = (
        "from sky.server import daemon\n"
        f"print(daemon.main({[*given, '--artifacts', 's3://bucket']}), daemon.main({[*given, *database]}))"
    )
    ended = run(installed / "python", "-c", code)
    assert ended.stdout == "2 3\n", ended.stderr
    artifacts, driver = ended.stderr.splitlines()
    assert artifacts.endswith("needs the extra s3; install it with `pip install 'skyfleet[s3]'`")
    assert driver.endswith("PostgreSQL needs a driver: pip install 'skyfleet[postgresql]'")
