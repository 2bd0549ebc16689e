"""What an agent is told when it is started: its environment variables and the file of its spec.

Decides: names, defaults and derived numbers (slots, folders). Never: opens a connection, starts a process.
Follows: everything else in the agent is handed a ``Settings`` and reads no environment variable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from sky.agent.needs import image_with, worker_with
from sky.wire.plugins import parse
from sky.wire.v1 import Image, PluginRef, Worker

GIB = 1024**3
FIRST_LEASE_S = 120.0
"""How long an agent lives that has not yet been told its lease."""


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The node as its daemon describes it. ``memory_gb`` limits each worker; None: no limit.

    ``envs``: where environments and included files are shared with other nodes; ``envs_bytes_max``: what
    those may amount to before unused ones are taken away.
    """

    image: Image = Image()
    worker: Worker = Worker()
    cpus: int = 1
    memory_gb: float | None = None
    envs: str | None = None
    envs_bytes_max: int = 20 * GIB
    compute: str = ""
    rank: int = 0
    accelerators: tuple[str, ...] = ()
    plugins: tuple[PluginRef, ...] = ()


class Unusable(Exception):
    """The agent was started without something it cannot do without; the message names it."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """One agent's place: who it is, whom it dials, and where it keeps things."""

    node: str
    url: str
    url_file: Path | None
    token_file: Path
    home: Path
    spec: AgentSpec
    first_lease_s: float
    """0: an agent that nobody has taken in lives for ever."""
    disk: Path | None = None
    """What outlives this node; None: nothing does."""
    tunnelled: bool = False
    """Whether the daemon is reached by a tunnel alone: the address that it has elsewhere is of no use."""

    spot_notice: str | None = None
    """The metadata service that says when the machine is about to be taken back; None: nobody asks."""

    @property
    def slots(self) -> int:
        """How many calls run at once."""
        return self.spec.worker.concurrency or max(1, self.spec.cpus)

    @property
    def threads(self) -> bool:
        """Whether the slots are threads of one process, and not processes."""
        return self.spec.worker.executor == "thread" and self.spec.worker.reuse

    @property
    def memory_bytes(self) -> int | None:
        """The most data memory of one worker process."""
        gigabytes = self.spec.memory_gb
        return None if gigabytes is None else int(gigabytes * GIB)

    @property
    def work(self) -> Path:
        """The folder that calls and commands start in."""
        return (self.disk or self.home) / "work"

    @property
    def tmp(self) -> Path:
        """TMPDIR of calls and commands."""
        return self.home / "tmp"

    @property
    def results(self) -> Path:
        """Payloads that wait to be uploaded, each named by its hash."""
        return self.home / "results"

    @property
    def blobs(self) -> Path:
        """Payloads that were fetched, each named by its hash."""
        return self.home / "blobs"

    @property
    def envs(self) -> Path:
        """Virtual environments and included files, shared with the other nodes of this machine."""
        return Path(self.spec.envs) if self.spec.envs else self.home / "envs"

    def token(self) -> str:
        """The node's token as it is now. Raises OSError when it cannot be read."""
        return self.token_file.read_text().strip()

    @property
    def connected(self) -> Path:
        """The file that names the daemon that the agent is, or was last, connected to."""
        return self.home / "connected.json"

    def daemon_url(self) -> str:
        """The address of the daemon that the agent is connected to, without a trailing slash."""
        return current_url(current_url(self.url, self.url_file), self.connected)

    def addresses(self, others: Sequence[str]) -> list[str]:
        """Where a daemon may be, the likeliest first; ``others``: where one said that more are."""
        first = (current_url(self.url, self.url_file), current_url(self.url, self.connected), self.url)
        more = () if self.tunnelled else others
        return list(dict.fromkeys(url.rstrip("/") for url in (*first, *more)))

    def meeting(self, url: str) -> str:
        """Where to go when a daemon says that somebody waits at ``url``."""
        return self.daemon_url() if self.tunnelled else url.rstrip("/")

    def note_connected(self, url: str) -> None:
        """Let workers and later connections know where the daemon is."""
        fresh = self.connected.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(_Told(url)))
        fresh.replace(self.connected)


def current_url(url: str, url_file: Path | None) -> str:
    """The address that ``url_file`` has now; ``url`` when there is none to be read."""
    if url_file is None:
        return url
    try:
        told = msgspec.json.decode(url_file.read_bytes(), type=_Told)
    except (OSError, msgspec.MsgspecError):
        return url
    return told.url.rstrip("/")


class _Told(msgspec.Struct, frozen=True):
    """What is read of the file that names the daemon."""

    url: str


def _seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name)
    if not text:
        return default
    try:
        seconds = float(text)
    except ValueError:
        raise Unusable(f"{name} is a number of seconds, not {text!r}") from None
    return max(0.0, seconds)


def _with_plugins(spec: AgentSpec) -> AgentSpec:
    """The spec with the packages and the kind of worker that its plugins need."""
    plugins = [parse(ref.kind, ref.params) for ref in spec.plugins]
    return msgspec.structs.replace(
        spec,
        image=image_with(spec.image, plugins, accelerated=bool(spec.accelerators)),
        worker=worker_with(spec.worker, plugins),
    )


def read(environment: Mapping[str, str]) -> Settings:
    """Settings from environment variables. Raises ``Unusable`` naming what is missing or wrong."""

    def need(name: str) -> str:
        value = environment.get(name, "")
        if not value:
            raise Unusable(f"{name} is not set; an agent is started by the daemon that wants the node")
        return value

    path = Path(need("SKY_AGENT_SPEC"))
    try:
        spec = _with_plugins(msgspec.json.decode(path.read_bytes(), type=AgentSpec))
    except (OSError, KeyError, msgspec.MsgspecError) as error:
        raise Unusable(f"SKY_AGENT_SPEC: {path} cannot be read: {error}") from error
    url_file = environment.get("SKY_AGENT_URL_FILE")
    disk = environment.get("SKY_AGENT_DISK")
    return Settings(
        node=need("SKY_AGENT_NODE"),
        url=need("SKY_AGENT_URL").rstrip("/"),
        url_file=Path(url_file) if url_file else None,
        token_file=Path(need("SKY_AGENT_TOKEN_FILE")),
        home=Path(need("SKY_AGENT_HOME")).absolute(),
        spec=spec,
        first_lease_s=_seconds(environment, "SKY_AGENT_TTL_SECONDS", FIRST_LEASE_S),
        disk=Path(disk).absolute() if disk else None,
        tunnelled=environment.get("SKY_AGENT_TUNNELLED") == "1",
        spot_notice=environment.get("SKY_AGENT_SPOT_NOTICE") or None,
    )
