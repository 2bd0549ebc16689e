"""Real SSH servers for tests: each a computer of its own as far as its accounts, host key and home go.

Decides: how one is started and ended. Never: touches the computer's own accounts or its own SSH server: each
has a namespace in which /etc/passwd and /etc/shadow are others, and with ``net`` a network of its own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import DIES_WITH_US, agents_below, free_port
from uv import find_uv_bin

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
START_S = 60.0
STOP_S = 60.0


def run(*command: str | Path) -> str:
    """A command's output. Raises when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def make_key(path: Path) -> Path:
    """A key pair without a passphrase."""
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path)
    return path


@dataclass
class Sshd:
    """One server at ``address``; ``folder`` has everything of it, ``home`` is its user's."""

    folder: Path
    key: Path
    address: str = "127.0.0.1"
    password: str = "open-sesame"
    net: str | None = None
    """The network namespace that it is in."""
    settings: str = ""
    others: dict[str, int] = field(default_factory=dict[str, int])
    """The numbers of more accounts, by name; each has a home beside the first one's."""
    mounts: dict[Path, Path] = field(default_factory=dict[Path, Path])
    """Folders of this computer that are at other places there."""
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] = field(init=False)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def public_key(self) -> str:
        return " ".join((self.folder / "host_key.pub").read_text().split()[:2])

    @property
    def fingerprint(self) -> str:
        return run("ssh-keygen", "-lf", self.folder / "host_key.pub").split()[1]

    def prepare(self) -> None:
        """Its accounts, keys and settings."""
        self.home.mkdir(parents=True)
        Path("/run/sshd").mkdir(exist_ok=True)
        for name in (".config", ".cache"):
            (self.home / name).symlink_to(Path.home() / name)
        (self.home / ".local/bin").mkdir(parents=True)
        (self.home / ".local/bin/uv").symlink_to(find_uv_bin())
        self.new_host_key()
        (self.folder / "authorized_keys").write_text(self.key.with_suffix(".pub").read_text())
        hashed = run("openssl", "passwd", "-6", self.password).strip()
        accounts = {"root": 0, **self.others}
        homes = {name: self.folder / name if number else self.home for name, number in accounts.items()}
        for name, number in self.others.items():
            homes[name].mkdir(mode=0o700)
            os.chown(homes[name], number, number)
        for path in self.mounts.values():
            path.mkdir(parents=True)
        for file, entries in (
            ("passwd", [f"{n}:x:{uid}:{uid}:{n}:{homes[n]}:/bin/sh" for n, uid in accounts.items()]),
            ("shadow", [f"{n}:{'*' if uid else hashed}:19000:0:99999:7:::" for n, uid in accounts.items()]),
        ):
            lines = Path(f"/etc/{file}").read_text().splitlines()
            others = [line for line in lines if line.partition(":")[0] not in accounts]
            (self.folder / file).write_text("\n".join([*entries, *others]) + "\n")
        told = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_"))}
        variables = " ".join(f'{name}="{value}"' for name, value in told.items())
        (self.folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress {self.address}\nHostKey {self.folder}/host_key\n"
            f"PidFile none\nAuthorizedKeysFile {self.folder}/authorized_keys\nStrictModes no\nUsePAM no\n"
            f"PasswordAuthentication yes\nPermitRootLogin yes\nMaxStartups 100\n{self.settings}\n"
            + (f"SetEnv {variables}\n" if variables else "")
        )

    def new_host_key(self) -> None:
        for path in self.folder.glob("host_key*"):
            path.unlink()
        make_key(self.folder / "host_key")

    def start(self) -> None:
        """Serve, and wait until it does."""
        mounts = {self.folder / "passwd": "/etc/passwd", self.folder / "shadow": "/etc/shadow", **self.mounts}
        inside = (
            "".join(f"mount --bind {here} {there} && " for here, there in mounts.items())
            + f"exec {SSHD} -D -e -f {self.folder}/sshd_config"
        )
        within = ("ip", "netns", "exec", self.net) if self.net else ()
        with (self.folder / "sshd.log").open("ab") as log:
            self.process = subprocess.Popen(
                (*DIES_WITH_US, *within, "unshare", "-m", "sh", "-c", inside),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while not self._serves():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "sshd.log").read_text()[-4000:])
            time.sleep(0.02)

    def stop(self) -> None:
        """End it and whatever it serves; the nodes that were begun through it live on."""
        for pid in (*self._sessions(), self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(STOP_S)

    def _sessions(self) -> list[int]:
        """The processes of its open connections."""
        found = subprocess.run(
            ("pgrep", "-P", str(self.process.pid)), capture_output=True, text=True, check=False
        ).stdout.split()
        return [int(pid) for pid in found]

    def _serves(self) -> bool:
        try:
            with socket.create_connection((self.address, self.port), timeout=1) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def agents(self) -> list[int]:
        """Processes of nodes on this host."""
        return agents_below(self.folder)


@contextlib.contextmanager
def serving(host: Sshd) -> Iterator[Sshd]:
    """A server while the context lasts; nothing of it or its nodes is left behind."""
    host.folder.mkdir(parents=True, exist_ok=True)
    host.prepare()
    host.start()
    try:
        yield host
    finally:
        host.stop()
        for pid in host.agents():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
