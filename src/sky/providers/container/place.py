"""Where a container engine is: the address that was set, or the one that this computer has.

Decides: podman's socket before docker's; and where podman is installed without a service, that this daemon
starts one on a socket of its own. Never: asks an engine anything. Follows: an engine that is not there is
refused with every place that was looked at; a service that was started here ends by itself once nobody asks
it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import socket
import ssl
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sky.kit.addresses import is_loopback
from sky.kit.containers import reason
from sky.providers.base import AgainLater, Refused

IDLE_SECONDS = 60
"""How long a service that was started here stays when nobody asks it."""
START_TRIES_MAX = 500
START_TRY_SECONDS = 0.02
TCP_PORT, TLS_PORT = 2375, 2376
SOCKETS = ("/run/podman/podman.sock", "/var/run/docker.sock")
VARIABLES = ("CONTAINER_HOST", "DOCKER_HOST")
FIELD = "config.engine"
_ADDRESS = re.compile(r"tcp://(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?/?")


@dataclass(frozen=True, slots=True)
class Place:
    """One engine's address. ``host`` is None for an engine of this computer, behind ``path``."""

    path: str | None = None
    host: str | None = None
    port: int = 0
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        return f"unix://{self.path}" if self.path is not None else f"tcp://{self.host}:{self.port}"

    @property
    def here(self) -> bool:
        """Whether its containers are on this computer."""
        return self.host is None or is_loopback(self.host)


def there(place: Place) -> Place:
    """The same place. Raises Refused where there is not even a socket."""
    if place.path is not None and not Path(place.path).exists():
        raise _wrong(f"{FIELD}: there is no socket {place.path}; is the engine's service running?")
    return place


def parse(address: str, credentials: Mapping[str, str], said_in: str = FIELD) -> Place:
    """The engine at an address. Raises Refused, which names ``said_in``."""
    if address.startswith("unix://"):
        path = address.removeprefix("unix://")
        if not path.startswith("/"):
            raise _wrong(
                f"{said_in}: {address!r} has no absolute path; one is unix:///run/podman/podman.sock"
            )
        return Place(path=path)
    match = _ADDRESS.fullmatch(address)
    if match is None:
        told = "; reach it through a socket that ssh forwards" if address.startswith("ssh://") else ""
        raise _wrong(
            f"{said_in}: {address!r} is no address of an engine: unix:///PATH or tcp://HOST:PORT{told}"
        )
    host, tls = match["host"].strip("[]"), _tls(credentials)
    if tls is None and not is_loopback(host):
        raise _wrong(
            f"{said_in}: {address} would be asked without TLS, and whoever reaches an engine like that rules "
            "its computer; give this provider the credentials ca, cert and key"
        )
    return Place(host=host, port=int(match["port"] or (TLS_PORT if tls else TCP_PORT)), tls=tls)


def find(home: Path, environment: Mapping[str, str], credentials: Mapping[str, str]) -> Place:
    """The engine of this computer. Raises Refused with all that was tried. Blocks: one may be begun."""
    for name in VARIABLES:
        if environment.get(name):
            return parse(environment[name], credentials, name)
    tried = [f"{name} is not set" for name in VARIABLES]
    for path in _sockets(environment):
        if _listens(path):
            return Place(path=path)
        tried.append(f"nobody listens at {path}")
    program = shutil.which("podman", path=environment.get("PATH"))
    if program is not None:
        return Place(path=_service(program, home, environment))
    tried.append("podman is not installed")
    raise _wrong(
        f"there is no container engine on this computer: {', '.join(tried)}; install one, or set {FIELD}"
    )


def _sockets(environment: Mapping[str, str]) -> list[str]:
    """Where engines of this computer listen, those of whoever runs the daemon first."""
    own = environment.get("XDG_RUNTIME_DIR")
    mine = [f"{own}/podman/podman.sock", f"{own}/docker.sock"] if own and os.geteuid() != 0 else []
    return [*mine, *SOCKETS]


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1.0)
        try:
            client.connect(path)
        except OSError:
            return False
        return True


def _service(program: str, home: Path, environment: Mapping[str, str]) -> str:
    """The socket of a podman service of our own, started if it does not run. Raises AgainLater, Refused."""
    folder = _folder(home)
    path = str(folder / "podman.sock")
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if not _listens(path):
            _start(program, path, folder / "log", environment)
    finally:
        os.close(handle)
    return path


def _folder(home: Path) -> Path:
    """A folder for the socket that only we can enter; the name of a socket must be short."""
    name = hashlib.sha256(str(home.absolute()).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir(), f"sky-podman-{os.geteuid()}-{name}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise _wrong(
            f"{folder}, where podman's socket would be, is not ours alone; remove it, or set {FIELD}"
        )
    return folder


def _start(program: str, path: str, log: Path, environment: Mapping[str, str]) -> None:
    with log.open("wb") as file:
        service = subprocess.Popen(
            [program, "system", "service", "--time", str(IDLE_SECONDS), f"unix://{path}"],
            env=dict(environment),
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    for _ in range(START_TRIES_MAX):
        if _listens(path):
            return
        if service.poll() is not None:
            raise _wrong(f"podman does not start a service: {reason(log.read_bytes())}; or set {FIELD}")
        time.sleep(START_TRY_SECONDS)
    service.kill()
    service.wait()
    seconds = START_TRIES_MAX * START_TRY_SECONDS
    raise AgainLater(f"podman's service did not listen within {seconds:g} s; see {log}")


def _tls(credentials: Mapping[str, str]) -> ssl.SSLContext | None:
    """How to prove who asks, and who answers; None: by nothing. Raises Refused."""
    ca, cert, key = (credentials.get(name) for name in ("ca", "cert", "key"))
    if not (ca or cert or key):
        return None
    if not ca or bool(cert) != bool(key):
        raise Refused("credentials: TLS needs ca, and cert and key together", "unauthorized")
    try:
        context = ssl.create_default_context(cadata=ca)
        if cert and key:
            # The only way in is a file; it is ours alone and gone at once.
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
                file.write(f"{cert}\n{key}\n")
                file.flush()
                context.load_cert_chain(file.name)
    except (ssl.SSLError, ValueError) as error:
        said = getattr(error, "reason", None) or type(error).__name__
        raise Refused(
            f"credentials: ca, cert or key is no PEM text that fits: {said}", "unauthorized"
        ) from None
    return context


def _wrong(message: str) -> Refused:
    return Refused(message, "invalid_request", field=FIELD)
