"""What is asked of a host, as text for its ``sh``, and what its answer says.

Decides: how values get into a text, and what each line of an answer means. Never: puts a token where others
see it: all text goes in on standard input. Follows: whatever may have been cut off in the middle can be asked
again; an answer is whole when its last line says so.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

import msgspec

from sky.providers.base import MachineState, RefusedCode
from sky.providers.ssh import texts
from sky.providers.ssh.failure import HostFailure

GRACE_SECONDS = 8
FREE_MB_MIN = 128
_END = "whole"
_STATES: dict[str, MachineState] = {"pending": "pending", "running": "running", "gone": "gone"}
_CODES: dict[str, RefusedCode] = {"capacity": "capacity", "capability_mismatch": "capability_mismatch"}


class Launched(msgspec.Struct, frozen=True):
    """What was bought, and when."""

    instance_type: str
    provider_id: str
    launched_us: int


@dataclass(frozen=True, slots=True)
class Seen:
    """One node as its host sees it. ``tunnel``: it needs one to reach the daemon."""

    tag: str
    state: MachineState
    pid: int | None
    reason: str | None
    tunnel: bool
    launched: Launched | None


@dataclass(frozen=True, slots=True)
class Facts:
    """A host's sizes. ``gpus`` is what nvidia-smi prints; ``used``: how many of its places are taken."""

    cores: int
    memory_gb: float
    disk_gb: float
    architecture: str
    used: int
    gpus: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """A node has its folder and its place, or has had. ``platform``: as uname says it. ``lacks``: what is to
    be brought. ``reaches``: the daemon, at the address that was named. ``base``: our folder there."""

    seen: Seen | None
    base: str = ""
    platform: str = ""
    lacks: frozenset[str] = frozenset()
    reaches: bool = False


class Answer:
    """The lines of an answer, each a word and its fields. Raises HostFailure when it is not whole."""

    def __init__(self, host: str, text: str) -> None:
        lines = [line.split("\t") for line in text.splitlines()]
        if not lines or lines[-1] != [_END]:
            raise HostFailure(f"host {host}: its answer was cut off: {text[-200:]!r}", sent=True)
        self.host = host
        self.lines = lines[:-1]

    def field(self, word: str) -> str:
        """The first field after a word; empty when it was not said."""
        return next((line[1] for line in self.lines if line[0] == word and len(line) > 1), "")

    def refusal(self) -> HostFailure | None:
        """Why the host would not, if so."""
        for word, *rest in self.lines:
            if word == "refused":
                return HostFailure(f"host {self.host}: {rest[1]}", code=_CODES.get(rest[0], "capacity"))
        return None

    def nodes(self) -> tuple[Seen, ...]:
        """Every node that was told of, but for those of which nothing is left."""
        return tuple(seen for line in self.lines if line[0] == "node" and (seen := _seen(line)) is not None)

    def facts(self) -> Facts:
        """The sizes that were asked for."""
        gpus = "\n".join(line[1] for line in self.lines if line[0] == "gpu" and len(line) > 1)
        try:
            return Facts(
                cores=max(1, int(self.field("cores") or 1)),
                memory_gb=round(int(self.field("memory_kb")) / 1024**2, 2),
                disk_gb=round(int(self.field("disk_kb") or 0) / 1024**2, 1),
                architecture=self.field("architecture"),
                used=int(self.field("used") or 0),
                gpus=gpus,
            )
        except ValueError as error:
            msg = f"host {self.host}: its sizes cannot be read ({error}); name cpus and memory_gb of it"
            raise HostFailure(msg) from error

    def prepared(self) -> Prepared:
        """What came of ``prepare``."""
        seen = next(iter(self.nodes()), None)
        lacks = frozenset(line[1] for line in self.lines if line[0] == "lacks")
        return Prepared(
            seen, self.field("base"), self.field("platform"), lacks, self.field("reaches") == "yes"
        )


def _seen(line: list[str]) -> Seen | None:
    _, tag, state, pid, reason, tunnel, launched = (*line, "", "", "", "", "", "")[:7]
    if state not in _STATES:
        return None
    try:
        order = msgspec.json.decode(launched, type=Launched)
    except msgspec.MsgspecError:
        order = None
    return Seen(
        tag, _STATES[state], int(pid) if pid.isdigit() else None, reason or None, tunnel == "tunnel", order
    )


@dataclass(frozen=True, slots=True)
class Commands:
    """The texts for one host: ``home`` is its folder there, of which ``deployment`` is ours. Several
    providers may have nodes in it."""

    home: str
    deployment: str
    provider_id: str

    def folder(self, tag: str) -> str:
        """The folder of a node."""
        return f"{self.home}/{self.deployment}/nodes/{tag}"

    def facts(self) -> str:
        """How large the host is."""
        return self._text(texts.FACTS)

    def prepare(self, tag: str, launched: Launched, places: int, agents: str, url: str | None) -> str:
        """Make the folder of a node and give it a place; say what is lacking. ``agents``: the name of the
        folder of the agent's environment; ``url``: the address that the host is to try."""
        return self._text(
            texts.PREPARE,
            tag=tag,
            launched=msgspec.json.encode(launched).decode(),
            places=str(places),
            agents=agents,
            url=url or "",
            free_mb=str(FREE_MB_MIN),
        )

    def bring(self, path: str, *, runs: bool = False) -> str:
        """A command that writes its standard input to a file below our folder, whole or not at all."""
        mode = "700" if runs else "600"
        text = self._text(texts.BRING, path=path, mode=mode)
        return f"sh -c {shlex.quote(text)}"

    def begin(self, tag: str, program: str, agents: str, gpus: int, gpus_total: int, *, tunnel: bool) -> str:
        """Start the agent of a node that was prepared. ``program``: what makes it one, with its token.
        ``gpus``: how many accelerators each place has, of how many."""
        return self._text(
            texts.BEGIN,
            tag=tag,
            program=program,
            agents=agents,
            gpus=str(gpus),
            gpus_total=str(gpus_total),
            tunnel="1" if tunnel else "",
        )

    def drop(self, tag: str) -> str:
        """Take a node away that was prepared and not begun."""
        return self._text(texts.DROP, tag=tag)

    def look(self, tag: str) -> str:
        """One node, and the next step of its end, where that was asked for."""
        return self._text(texts.LOOK, tag=tag)

    def listing(self) -> str:
        """All nodes; those that ended by themselves long ago are cleared away."""
        return self._text(texts.LISTING)

    def terminate(self, tag: str) -> str:
        """Ask for a node's end, and take the first step."""
        return self._text(texts.TERMINATE, tag=tag)

    def tell(self, url: str) -> str:
        """Where the agents find the daemon from now on."""
        return self._text(texts.TELL, told=msgspec.json.encode({"url": url}).decode())

    def _text(self, body: str, **values: str) -> str:
        rest, _, below = self.home.partition("/") if self.home.startswith("~/") else ("", "", self.home)
        home = f'"$HOME"/{shlex.quote(below)}' if rest else shlex.quote(self.home)
        told = {
            "deployment": self.deployment,
            "provider": self.provider_id,
            "grace": str(GRACE_SECONDS),
            **values,
        }
        named = "\n".join(f"{name}={shlex.quote(value)}" for name, value in told.items())
        return f"home={home}\n{named}\n{texts.COMMON}{body}\nprintf '{_END}\\n'\n"
