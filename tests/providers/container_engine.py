"""A container engine for tests of nodes in containers: podman's service over files of its own, and an image.

Decides: what is lent to containers: this computer's programs and libraries, and the environment that the
tests run in, so that a node begins without fetching anything. Never: reaches beyond this computer.
"""

from __future__ import annotations

import os
import shutil
import socket as sockets
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import DIES_WITH_US, STARTER, free_port
from tests.jobs import engine
from tests.jobs.engine import Podman

import sky
from sky.providers.container.body import HOME

IMAGE = "localhost/node:1"
BARE = "localhost/bare:1"
START_S = 60.0
STOP_S = 60.0


@dataclass
class Boxes:
    """An engine that listens at ``socket`` and has ``IMAGE``."""

    podman: Podman
    socket: Path

    @property
    def config(self) -> dict[str, Any]:
        """Settings of a provider for it."""
        return {"engine": f"unix://{self.socket}", "image": IMAGE, "mounts": lent()}

    @property
    def pinned(self) -> str:
        """The image by its content, so that nobody asks a registry for it."""
        return (
            f"{IMAGE.partition(':')[0]}@{self.podman('image', 'inspect', '--format', '{{.Digest}}', IMAGE)}"
        )

    def containers(self, *filters: str) -> list[str]:
        """The ids of all containers, running or not."""
        words = [word for one in filters for word in ("--filter", one)]
        return self.podman("ps", "--all", "--quiet", "--no-trunc", *words).split()

    def volumes(self) -> list[str]:
        return self.podman("volume", "ls", "--quiet").split()


def lent() -> list[str]:
    """What containers see of this computer, and may not change."""
    venv, python = Path(sys.prefix), Path(sys.base_prefix)
    source = Path(sky.__file__ or "").parents[1]
    mounts = ["/usr:/usr:ro", f"{source}:{source}:ro", f"{venv}:{HOME}/venv:ro"]
    return mounts if python.is_relative_to("/usr") else [*mounts, f"{python}:{python}:ro"]


@contextmanager
def running(home: Path) -> Iterator[Boxes]:
    """An engine for as long as the block runs; nothing of it is left then."""
    engine.missing_is_told()
    run = Path(tempfile.mkdtemp(prefix="sky-run-"))
    podman = engine.configured(home, run, f"127.0.0.1:{free_port()}")
    podman("import", str(engine.packed(home)), IMAGE)
    podman("import", str(_bare(home)), BARE)
    socket = run / "podman.sock"
    with served(home, podman, socket):
        yield Boxes(podman, socket)
    podman("volume", "prune", "--force")
    shutil.rmtree(run, ignore_errors=True)


def _bare(home: Path) -> Path:
    """A file system with nothing that runs."""
    (home / "bare").mkdir()
    (home / "bare/empty").touch()
    with tarfile.open(home / "bare.tar", "w") as archive:
        archive.add(home / "bare", arcname=".")
    return home / "bare.tar"


@contextmanager
def served(home: Path, podman: Podman, socket: Path) -> Iterator[None]:
    """Podman's service, for as long as the block runs; what it has mounted and started ends with it."""
    command = [*DIES_WITH_US, "podman", "system", "service", "--time", "0", f"unix://{socket}"]
    with (home / "service.log").open("wb") as log:
        environment = {**os.environ, **podman.environment}
        # Where it begins, it leaves a mark when a container runs out of memory.
        started = STARTER.submit(subprocess.Popen, command, stdout=log, stderr=log, env=environment, cwd=home)
        service = started.result()
    try:
        deadline = time.monotonic() + START_S
        while not _listens(socket):
            assert time.monotonic() < deadline, (home / "service.log").read_text()
            time.sleep(0.02)
        yield
    finally:
        service.terminate()
        service.wait(STOP_S)
        # The service leaves the folder of its images mounted; a command that uses them last does not.
        podman("rm", "--all", "--force", "--time", "0")
    left = [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(home) in line]
    assert left == [], "podman leaves nothing mounted"


def _listens(path: Path) -> bool:
    with sockets.socket(sockets.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True
