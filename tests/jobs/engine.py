"""A container engine, a registry and an image for tests, all of this computer and none of its own.

Decides: where they keep things: in a folder of the test session. Never: reaches beyond this computer.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conftest import DIES_WITH_US, free_port

NEEDED = ("podman", "runc", "docker-registry", "busybox", "bash", "curl")
ASK_S = 60.0
# Kernels and engines of test machines differ: runc, these cgroups and these limits work on all of them.
CONFIGURATION = """
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


@dataclass
class Podman:
    """An engine with its images and containers in ``home``."""

    home: Path
    registry: str

    @property
    def environment(self) -> dict[str, str]:
        """What makes podman use this one's files."""
        return {
            "CONTAINERS_CONF": str(self.home / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self.home / "storage.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(self.home / "registries.conf"),
        }

    @property
    def image(self) -> str:
        """The image that the registry has."""
        return f"{self.registry}/job:1"

    def __call__(self, *words: str) -> str:
        """Have it do something."""
        done = subprocess.run(
            ["podman", *words],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=ASK_S,
            check=False,
        )
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout.strip()

    def containers(self, job_id: str) -> list[str]:
        """The containers of a job, running or not."""
        return self("ps", "--all", "--quiet", "--filter", f"name=sky-{job_id}").split()


def lacking() -> list[str]:
    """The programs that tests with containers need and this computer does not have."""
    return [name for name in NEEDED if shutil.which(name) is None]


def make(home: Path, run: Path) -> tuple[Podman, subprocess.Popen[bytes]]:
    """An engine, and its registry with an image. ``run``, where it keeps what runs, has a short name: whoever
    ends a container for podman is told it on a command line, where podman takes fifty characters at most."""
    podman = configured(home, run, f"127.0.0.1:{free_port()}")
    registry = serve_registry(podman)
    changes = ('ENTRYPOINT ["/bin/false"]', "ENV FROM_IMAGE=yes", "WORKDIR /tmp", "USER 1234")
    podman(
        "import",
        *(word for change in changes for word in ("--change", change)),
        str(packed(home)),
        podman.image,
    )
    push(podman)
    return podman, registry


def serve_registry(podman: Podman) -> subprocess.Popen[bytes]:
    """The registry that an engine is configured for."""
    home = podman.home
    (home / "registry.yml").write_text(
        "version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\n"
        f"storage: {{filesystem: {{rootdirectory: {home}/registry}}}}\nhttp: {{addr: '{podman.registry}'}}\n"
    )
    with (home / "registry.log").open("wb") as log:
        command = [*DIES_WITH_US, "docker-registry", "serve", str(home / "registry.yml")]
        return subprocess.Popen(command, stdout=log, stderr=log)


def push(podman: Podman) -> None:
    """Bring the image to the registry, once that listens; the engine has it no more."""
    deadline = time.monotonic() + ASK_S
    while True:
        try:
            podman("push", "--quiet", podman.image)
            break
        except AssertionError:
            assert time.monotonic() < deadline, (podman.home / "registry.log").read_text()
    podman("rmi", podman.image)


def configured(home: Path, run: Path, registry: str) -> Podman:
    """An engine without images. ``registry`` is asked without TLS."""
    podman = Podman(home, registry)
    (home / "containers.conf").write_text(CONFIGURATION)
    (home / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{home}/images"\nrunroot = "{run}"\n'
    )
    (home / "registries.conf").write_text(f'[[registry]]\nlocation = "{registry}"\ninsecure = true\n')
    return podman


def packed(home: Path) -> Path:
    """A small file system with a shell, the usual tools, bash and curl."""
    root = home / "image"
    for folder in ("bin", "tmp", "etc", "usr"):
        (root / folder).mkdir(parents=True)
    (root / "tmp").chmod(0o777)
    shutil.copy(shutil.which("busybox") or "", root / "bin/busybox")
    for applet in subprocess.run(
        ["busybox", "--list"], capture_output=True, text=True, check=True
    ).stdout.split():
        if applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")
    for program in ("bash", "curl"):
        copy_program(root, shutil.which(program) or "")
    target = home / "image.tar"
    with tarfile.open(target, "w") as archive:
        archive.add(root, arcname=".")
    return target


def copy_program(root: Path, program: str) -> None:
    """A program with the libraries that it is linked to."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    found = [word for word in listed.split() if word.startswith("/")]
    for path in found:
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copy(path, target)
    shutil.copy(program, root / "bin" / Path(program).name)


def missing_is_told() -> None:
    """Leave a test out where its programs are missing, unless nothing may be left out."""
    absent = lacking()
    if absent and os.environ.get("SKY_TESTS_ALL"):
        pytest.fail(f"{', '.join(absent)} missing: run scripts/setup --tests")
    if absent or os.geteuid() != 0:
        pytest.skip(f"needs {', '.join(absent) or 'root'}; see scripts/setup --tests")
