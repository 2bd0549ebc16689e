"""A PostgreSQL of the tests' own: a real server in a folder, on loopback, ended with its beginner.

Decides: how it is started (it refuses to run as root) and how a test gets an empty database quickly.
Never: touches a server that it did not start.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import psycopg
from tests.conftest import DIES_WITH_US, STARTER, free_port

from sky.store.migrate import upgrade

START_S = 30.0
OWNER = "postgres"
_numbers = itertools.count()


def programs() -> Path | None:
    """Where its programs are, newest first; None: it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4]))
    if found:
        return found[-1].parent
    there = shutil.which("postgres")
    return Path(there).resolve().parent if there else None


class Server:
    """One server. ``url(name)`` is SQLAlchemy's for a database of it."""

    def __init__(self) -> None:
        where = programs()
        if where is None:
            raise RuntimeError("PostgreSQL is not installed; `scripts/setup --tests` installs it")
        self._bin = where
        self.folder = Path(tempfile.mkdtemp(prefix="sky-pg-"))
        self.port = free_port()
        self._as_owner = (
            ["setpriv", "--reuid", OWNER, "--regid", OWNER, "--init-groups"] if _is_root() else []
        )
        if self._as_owner:
            shutil.chown(self.folder, OWNER, OWNER)
        data = self.folder / "data"
        made = [
            str(where / "initdb"),
            "-D",
            str(data),
            "-E",
            "UTF8",
            "--locale=C",
            "-A",
            "trust",
            "-U",
            "sky",
        ]
        subprocess.run([*self._as_owner, *made], check=True, capture_output=True, cwd=self.folder)
        self._options = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.folder,
            "fsync": "off",
            "max_connections": 200,
            "shared_buffers": "32MB",
        }
        self.begin()

    def begin(self) -> None:
        """Start it, where it was ended."""
        command = [str(self._bin / "postgres"), "-D", str(self.folder / "data")]
        command += [word for name, value in self._options.items() for word in ("-c", f"{name}={value}")]
        with open(self.folder / "log", "ab") as log:
            self.process = STARTER.submit(
                subprocess.Popen,
                [*self._as_owner, *DIES_WITH_US, *command],
                stdout=log,
                stderr=log,
                cwd=self.folder,
            ).result()
        self._wait()

    def url(self, name: str) -> str:
        return f"postgresql+psycopg://sky@127.0.0.1:{self.port}/{name}"

    def do(self, sql: str, name: str = "postgres") -> list[tuple[object, ...]]:
        """Run one statement on a connection of its own; what it finds."""
        with psycopg.connect(self._dsn(name), autocommit=True) as connection:
            found = connection.execute(sql.encode())
            return list(found.fetchall()) if found.description else []

    def cut(self) -> None:
        """End every connection that somebody has."""
        self.do(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )

    def empty(self) -> str:
        """The URL of a new database with the newest schema and nothing in it."""
        name = f"sky_{next(_numbers)}"
        self.do(f"CREATE DATABASE {name} TEMPLATE {_template(self)}")
        return self.url(name)

    def end(self) -> None:
        """End it, with every connection to it."""
        self.process.send_signal(signal.SIGINT)  # at SIGTERM it would wait for its clients to leave
        self.process.wait(START_S)

    def stop(self) -> None:
        """End it, and remove its folder."""
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _dsn(self, name: str) -> str:
        return f"host=127.0.0.1 port={self.port} user=sky dbname={name} connect_timeout=5"

    def _wait(self) -> None:
        ready = [str(self._bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port), "-t", "1"]
        for _ in range(int(START_S / 0.05)):
            if subprocess.run(ready, check=False).returncode == 0:
                return
            if self.process.poll() is not None:
                break
        raise RuntimeError((self.folder / "log").read_text()[-4000:])


@cache
def _template(server: Server) -> str:
    server.do("CREATE DATABASE sky_template")
    upgrade(server.url("sky_template"))
    return "sky_template"


def _is_root() -> bool:
    return os.geteuid() == 0
