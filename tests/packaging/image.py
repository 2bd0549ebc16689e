"""Builds the image with a real engine, runs it, and tries what docs/install.md promises of it.

Decides: what the image has to do (``CHECKS``), each with a figure or an answer that is printed. With
``--debian`` it first makes the images that it stands on from Debian's packages, under the names that are
asked for, where no registry can be reached. Never: changes what is built; leaves a container, a volume or a
network behind. Follows: minutes, most of them to fetch: whoever makes a release runs it, and not every test.

    scripts/image            scripts/image --debian --network host            scripts/image --built
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sky.kit.version import VERSION

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "packaging" / "compose" / "compose.yaml"
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
BUILD_S = 1800.0
ASK_S = 120.0
WELL_S = 240.0
USER = "10001"
MEGABYTES_MAX = 450
STOP_S = 40
QUICK_S = 15.0
ADDRESS = "http://127.0.0.1:7590"
HARDENED = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
NOT_LEFT = ("gcc", "cc", "make", "git", "rustc", "cargo", "curl", "wget")
CACHES = ("/build", "~root/.cache", "/var/lib/apt/lists", "/var/cache/apt", "/opt/skyfleet/.cache")
LEFT = """
import json, os, shutil, sys
tools = sys.argv[1].split(",")
places = map(os.path.expanduser, sys.argv[2].split(","))
print(json.dumps({
    "tools": [name for name in tools if shutil.which(name)],
    "caches": [os.path.join(at, one) for place in places for at, _, names in os.walk(place) for one in names],
    "may write": [path for path in ("/opt/skyfleet", "/usr", "/etc") if os.access(path, os.W_OK)],
}))
"""
CALL = """
import sky

@sky.function
def area(width, height):
    return width * height

with sky.Compute(provider=sky.Local(), nodes=2) as compute:
    print(area(3, 4) @ compute)
"""
# What a base is made of here: an interpreter under the usual name, which pip may install for.
DEBIAN = """
FROM localhost/debian-trixie
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
RUN ln -sf python3 /usr/bin/python && rm -f /usr/lib/python3*/EXTERNALLY-MANAGED
"""
# The variables of PostgreSQL's image that the compose file uses, and nothing else of it.
POSTGRESQL = """
FROM {base}
RUN apt-get update && apt-get install --yes --no-install-recommends postgresql-17 \\
    && ln -s /usr/lib/postgresql/17/bin/* /usr/local/bin/ && install -d -o postgres /var/lib/postgresql/data
COPY begin /begin
USER postgres
CMD ["sh", "/begin"]
"""
BEGIN = """set -eu
export PGDATA=/var/lib/postgresql/data
initdb --encoding UTF8 --locale C.UTF-8 --auth scram-sha-256 \\
    --username "$POSTGRES_USER" --pwfile "$POSTGRES_PASSWORD_FILE" >/dev/null
echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
echo "create database $POSTGRES_DB" | postgres --single postgres >/dev/null
exec postgres -c listen_addresses='*' -c unix_socket_directories=/tmp
"""


class Wrong(Exception):
    """The image does not do what it has to."""


@dataclass
class Engine:
    """Podman or docker, as whoever runs this has set it up."""

    program: str
    image: str
    ours: str = field(default_factory=lambda: f"skyfleet-image-{time.time_ns():x}")

    def __call__(self, *words: str, limit_s: float = ASK_S) -> str:
        """Have it do something; what it printed."""
        done = self.ask(*words, limit_s=limit_s)
        if done.returncode != 0:
            raise Wrong(
                f"{self.program} {' '.join(words)} ended with {done.returncode}:\n{done.stderr[-3000:]}"
            )
        return done.stdout.strip()

    def ask(self, *words: str, limit_s: float = ASK_S) -> subprocess.CompletedProcess[str]:
        command = [self.program, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)

    def build(self, tag: str, folder: Path, *words: str) -> None:
        """Build a folder; its steps are shown as they are done."""
        # A health check is part of images of this format alone.
        form = ["--format", "docker"] if "podman" in self.program else []
        command = [self.program, "build", *form, *words, "--tag", tag, str(folder)]
        if subprocess.run(command, timeout=BUILD_S, check=False, stdout=sys.stderr).returncode != 0:
            raise Wrong(f"{tag} could not be built")

    @contextmanager
    def container(self, name: str, *words: str, image: str = "") -> Iterator[str]:
        """A container that goes with the block."""
        full = f"{self.ours}-{name}"
        try:
            self("run", "--detach", "--name", full, *words, image or self.image)
            yield full
        finally:
            self.ask("rm", "--force", full)

    @contextmanager
    def having(self, noun: str, *words: str) -> Iterator[str]:
        """A volume or a network that goes with the block."""
        name = f"{self.ours}-{noun}"
        self(noun, "create", *words, name)
        try:
            yield name
        finally:
            self.ask(noun, "rm", "--force", name)

    def sky(self, container: str, *words: str) -> str:
        """The command inside."""
        return self("exec", container, "sky", *words)

    def until_well(self, container: str) -> float:
        """Wait for its own health check to pass; the seconds that took."""
        begun = time.monotonic()
        check = json.loads(self("image", "inspect", self.image))[0]
        words = (check.get("Config") or {}).get("Healthcheck") or check.get("Healthcheck") or {}
        if not words:
            raise Wrong("the image has no health check")
        while (done := self.ask("exec", container, *words["Test"][1:])).returncode != 0:
            if time.monotonic() > begun + WELL_S:
                raise Wrong(f"not well after {WELL_S:g} s: {done.stderr}\n{self.logs(container)}")
            time.sleep(0.2)
        return time.monotonic() - begun

    def logs(self, container: str) -> str:
        done = self.ask("logs", container)
        return (done.stdout + done.stderr)[-3000:]


def must(true: bool, otherwise: str) -> None:
    if not true:
        raise Wrong(otherwise)


def what_is_in_it(engine: Engine) -> str:
    """No tools of the build, no caches, nothing that its user may change, and not too much of the rest."""
    size = int(engine("image", "inspect", "--format", "{{.Size}}", engine.image)) / 1e6
    must(size <= MEGABYTES_MAX, f"{size:.0f} MB are more than {MEGABYTES_MAX}")
    words = (engine.image, "-c", LEFT, ",".join(NOT_LEFT), ",".join(CACHES))
    as_root, as_nobody = (
        json.loads(engine("run", "--rm", "--entrypoint", "python", "--user", user, *words))
        for user in ("0", USER)
    )
    left = {name: as_root[name] for name in ("tools", "caches") if as_root[name]}
    must(not left, f"left in it: {left}")
    must(not as_nobody["may write"], f"its user may write in {as_nobody['may write']}")
    told = engine("run", "--rm", engine.image, "--version")
    must(told == f"sky {VERSION}", f"it says {told}")
    return f"{size:.0f} MB; no tools, no caches"


def a_call_inside(engine: Engine) -> str:
    """As nobody, with a root file system that cannot be written and no rights, it serves and calls."""
    with engine.having("volume") as volume, engine.container("alone", *HARDENED, *keeps(volume)) as name:
        well_s = engine.until_well(name)
        status = engine("exec", name, "cat", "/proc/1/status")
        must(re.search(rf"^Uid:\s+{USER}\s", status, re.MULTILINE) is not None, status)
        must(re.search(r"^CapEff:\s+0+$", status, re.MULTILINE) is not None, status)
        must(engine.ask("exec", name, "touch", "/opt/skyfleet/x").returncode != 0, "its root can be written")
        begun = time.monotonic()
        told = engine("exec", name, "python", "-c", CALL)
        must(told.splitlines()[-1:] == ["[12, 12]"], f"the call printed {told}\n{engine.logs(name)}")
        took_s = time.monotonic() - begun
        return f"user {USER}, well after {well_s:.1f} s, two nodes and a call in {took_s:.1f} s"


def the_volume_is_what_it_knows(engine: Engine) -> str:
    """What was made before a restart, and in another container before, is there."""
    with engine.having("volume") as volume:
        with engine.container("first", *HARDENED, *keeps(volume)) as name:
            engine.until_well(name)
            engine.sky(name, "compute", "create", "first", "--nodes", "1")
            engine.sky(name, "user", "create", "ada", "--role", "admin")
            engine("restart", "--time", str(STOP_S), name)
            engine.until_well(name)
            must("ada" in engine.sky(name, "user", "list"), "a restart lost a user")
            engine("stop", "--time", str(STOP_S), name)
        with engine.container("second", *HARDENED, *keeps(volume)) as name:
            engine.until_well(name)
            must("ada" in engine.sky(name, "user", "list"), "another container with the volume knows no user")
            told = engine.sky(name, "compute", "exec", "first", "--", "echo", "again")
            must("again" in told, f"the compute that was there printed {told}")
    return "a restart and another container have the users and the compute, which runs again"


def it_ends_when_it_is_told(engine: Engine) -> str:
    """SIGTERM ends it in order, with nodes running, long before it would be killed."""
    with engine.having("volume") as volume, engine.container("ends", *HARDENED, *keeps(volume)) as name:
        engine.until_well(name)
        engine.sky(name, "compute", "create", "first", "--nodes", "2")
        begun = time.monotonic()
        engine("stop", "--time", str(STOP_S), name)
        took_s = time.monotonic() - begun
        code = engine("inspect", "--format", "{{.State.ExitCode}}", name)
        must(
            (code, took_s < QUICK_S) == ("0", True), f"code {code} after {took_s:.1f} s\n{engine.logs(name)}"
        )
        must('"daemon.stopped"' in engine.logs(name), f"its last lines are\n{engine.logs(name)}")
    return f"SIGTERM: code 0 after {took_s:.1f} s"


def the_compose_file(engine: Engine) -> str:
    """Its two services, with its environment, files and rights, on a network that leads nowhere else."""
    services = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    with ExitStack() as stack:
        secrets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sky-image-")))
        make_secrets(secrets)
        network = stack.enter_context(engine.having("network", "--internal"))
        volume = stack.enter_context(engine.having("volume"))
        theirs, ours = services["database"], services["sky"]
        words = ("--network", network, *said(theirs, secrets))
        database = stack.enter_context(engine.container("database", *words, image=theirs["image"]))
        ready = theirs["healthcheck"]["test"][1:]
        deadline = time.monotonic() + WELL_S
        while engine.ask("exec", database, *ready, "--host=127.0.0.1").returncode != 0:
            must(time.monotonic() < deadline, f"no database after {WELL_S:g} s\n{engine.logs(database)}")
            time.sleep(0.2)
        told = json.loads(engine("inspect", database))[0]["NetworkSettings"]["Networks"]
        address = told[network]["IPAddress"]
        words = (
            "--network",
            network,
            "--add-host",
            f"database:{address}",
            *said(ours, secrets),
            *keeps(volume),
        )
        name = stack.enter_context(engine.container("sky", *words))
        well_s = engine.until_well(name)
        told = engine.sky(name, "server", "status")
        must("https://" in told, f"the daemon says {told}")
        engine.sky(name, "user", "create", "ada", "--role", "admin")
        query = ("psql", "-h", "127.0.0.1", "-U", "sky", "-d", "sky", "-tAc", "select name from users")
        word = (secrets / "database_password").read_text()
        found = engine("exec", "--env", f"PGPASSWORD={word}", database, *query)
        must("ada" in found.split(), f"the users in PostgreSQL are {found!r}")
    return f"serves with TLS on PostgreSQL after {well_s:.1f} s; a user that was made is a row there"


def make_secrets(folder: Path) -> None:
    """What docs/install.md has its reader make."""
    word = time.time_ns().__format__("x")
    (folder / "database_password").write_text(word)
    (folder / "database_url").write_text(f"postgresql://sky:{word}@database/sky")
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    pair = ("-keyout", str(folder / "tls_key"), "-out", str(folder / "tls_cert"))
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *pair, *subject]
    subprocess.run(command, check=True, capture_output=True, timeout=ASK_S)
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o755)


def said(service: dict[str, Any], secrets: Path) -> list[str]:
    """A service of the compose file, in the words of ``run``."""
    words = [word for name, value in service["environment"].items() for word in ("--env", f"{name}={value}")]
    for name in service["secrets"]:
        words += ["--volume", f"{secrets / name}:/run/secrets/{name}:ro"]
    words += ["--read-only"] * bool(service.get("read_only"))
    for option, given in (("tmpfs", "tmpfs"), ("cap_drop", "cap-drop"), ("security_opt", "security-opt")):
        words += [
            word for value in service.get(option, ()) for word in (f"--{given}", value.partition(":")[0])
        ]
    return words


def keeps(volume: str) -> tuple[str, str]:
    return "--volume", f"{volume}:/var/lib/skyfleet"


CHECKS: tuple[Callable[[Engine], str], ...] = (
    what_is_in_it,
    a_call_inside,
    the_volume_is_what_it_knows,
    it_ends_when_it_is_told,
    the_compose_file,
)


def make_bases(engine: Engine, *words: str) -> None:
    """The two images that others publish, from Debian's packages, where there are none yet."""
    [tag] = re.findall(r"^ARG PYTHON=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    base = f"docker.io/library/python:{tag}"
    database = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]["database"]["image"]
    with tempfile.TemporaryDirectory(prefix="sky-image-") as made:
        folder = Path(made)
        if engine.ask("image", "inspect", base).returncode != 0:
            must(
                shutil.which("mmdebstrap") is not None,
                "--debian needs mmdebstrap: apt-get install mmdebstrap",
            )
            packages = "python3,python3-pip,python3-venv,ca-certificates,netbase,tzdata"
            root = folder / "root.tar"
            command = ["mmdebstrap", "--variant=minbase", f"--include={packages}", "trixie", str(root)]
            subprocess.run(command, check=True, timeout=BUILD_S, stdout=sys.stderr)
            engine("import", str(root), "localhost/debian-trixie", limit_s=BUILD_S)
            root.unlink()
            shutil.copy(AUTHORITIES, folder)
            (folder / "Dockerfile").write_text(DEBIAN)
            engine.build(base, folder, *words)
        if engine.ask("image", "inspect", database).returncode != 0:
            (folder / "begin").write_text(BEGIN)
            (folder / "Dockerfile").write_text(POSTGRESQL.format(base=base))
            engine.build(database, folder, *words)


def main() -> int:
    """Build, then check; 1 when the image does not do what it has to."""
    parser = argparse.ArgumentParser(
        "scripts/image", description="Builds the image and tries what it promises."
    )
    found = next((name for name in ("docker", "podman") if shutil.which(name)), "podman")
    parser.add_argument("--engine", default=found, help="docker or podman [%(default)s]")
    parser.add_argument("--tag", default=f"skyfleet:{VERSION}", help="what the image is called [%(default)s]")
    parser.add_argument("--network", help="the network that steps of the build have; the engine's own choice")
    parser.add_argument(
        "--debian", action="store_true", help="make the images it stands on from Debian's packages"
    )
    parser.add_argument("--built", action="store_true", help="only try the image that is there")
    given = parser.parse_args()
    engine = Engine(given.engine, given.tag)
    words = ("--network", given.network) if given.network else ()
    try:
        if given.debian:
            make_bases(engine, *words)
        if not given.built:
            begun = time.monotonic()
            engine.build(given.tag, ROOT, *words)
            print(f"{given.tag}: built in {time.monotonic() - begun:.0f} s", flush=True)
        for check in CHECKS:
            print(f"{check.__name__.replace('_', ' ')}: {check(engine)}", flush=True)
    except (Wrong, subprocess.SubprocessError) as error:
        print(f"{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
