"""The processes of this computer: which are a node's, and a signal that reaches only the right one.

Decides: when a process belongs to a node. Either its number and start time were recorded, or its
environment names the node and its folder, or it is in the node's session while one proven member lives, or a
member has begun it. Never: trusts a process number alone, since numbers are used again; signals itself.
Follows: grandchildren are found as well, with a session or an environment of their own too; only one that
has both and whose parents had all ended before anybody looked is not. Needs Linux 5.3.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
ENVIRONMENT_BYTES_MAX = 1024 * 1024
_ZOMBIE = frozenset("ZXx")


@dataclass(frozen=True, slots=True)
class Process:
    """One process at the moment of looking. ``start_ticks`` are clock ticks since the boot."""

    pid: int
    start_ticks: int
    session: int
    parent: int
    zombie: bool

    @property
    def key(self) -> tuple[int, int]:
        """What no other process of this boot has had or will have."""
        return (self.pid, self.start_ticks)


@dataclass(frozen=True, slots=True)
class Identity:
    """A node's first process, as it recorded itself; its number is also its session's."""

    pid: int
    start_ticks: int
    boot: str

    @property
    def key(self) -> tuple[int, int]:
        return (self.pid, self.start_ticks)


def boot_id() -> str:
    """What tells this boot of the computer from all others."""
    return (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def read_process(pid: int) -> Process | None:
    """The process of that number now, or None."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in brackets and may hold anything, brackets and spaces too.
    fields = text.rpartition(")")[2].split()
    return Process(
        pid=pid,
        start_ticks=int(fields[19]),
        session=int(fields[3]),
        parent=int(fields[1]),
        zombie=fields[0] in _ZOMBIE,
    )


def read_environment(pid: int) -> frozenset[bytes]:
    """The environment that a process began with, as ``NAME=value``; empty when it may not be read."""
    try:
        with (PROC / str(pid) / "environ").open("rb") as file:
            return frozenset(file.read(ENVIRONMENT_BYTES_MAX).split(b"\0"))
    except OSError:
        return frozenset()


def names_node(environment: frozenset[bytes], folder: Path) -> bool:
    """Whether an environment is that of a node's agent, or one that the agent gives to what it begins."""
    if b"SKY_AGENT_HOME=" + os.fsencode(folder) in environment:
        return True
    return {
        b"SKY_AGENT_NODE=" + os.fsencode(folder.name),
        b"TMPDIR=" + os.fsencode(folder / "tmp"),
    } <= environment


class Snapshot:
    """All processes at one moment; environments are read when they are asked for, once."""

    def __init__(self) -> None:
        self._environments: dict[int, frozenset[bytes]] = {}
        found = (read_process(int(entry.name)) for entry in PROC.iterdir() if entry.name.isdigit())
        self._processes = tuple(process for process in found if process is not None)

    def leader(self, identity: Identity) -> Process | None:
        """The node's first process, while it lives."""
        for process in self._processes:
            if process.key == identity.key and not process.zombie:
                return process
        return None

    def members(
        self, folder: Path, identity: Identity, recorded: Iterable[tuple[int, int]] = ()
    ) -> tuple[Process, ...]:
        """The living processes of a node. ``recorded`` are keys that were found to be its before."""
        known = {identity.key, *recorded}
        proven = {
            process.key
            for process in self._processes
            if process.key in known or names_node(self._environment(process), folder)
        }
        session_is_ours = any(
            process.session == identity.pid and process.key in proven for process in self._processes
        )
        self._reap(identity, session_is_ours)
        members = {
            process.pid: process
            for process in self._processes
            if not process.zombie
            and (process.key in proven or (session_is_ours and process.session == identity.pid))
        }
        self._add_children(members)
        members.pop(os.getpid(), None)
        return tuple(members.values())

    def _add_children(self, members: dict[int, Process]) -> None:
        """Whatever a member has begun is a member, whatever session and environment it was given."""
        grown = True
        while grown:
            born = [
                process
                for process in self._processes
                if process.parent in members and process.pid not in members and not process.zombie
            ]
            members.update((process.pid, process) for process in born)
            grown = bool(born)

    def _environment(self, process: Process) -> frozenset[bytes]:
        if process.zombie:
            return frozenset()
        if process.pid not in self._environments:
            self._environments[process.pid] = read_environment(process.pid)
        return self._environments[process.pid]

    def _reap(self, identity: Identity, session_is_ours: bool) -> None:
        """Bury the node's dead that became our children: we may be the first process of a container."""
        for process in self._processes:
            own = process.key == identity.key or (session_is_ours and process.session == identity.pid)
            if own and process.zombie and process.parent == os.getpid():
                try:
                    os.waitpid(process.pid, os.WNOHANG)
                except ChildProcessError:
                    continue


def send(process: Process, number: signal.Signals) -> None:
    """Signal exactly this process; one that is gone, or whose number is another's now, is left alone."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        # From here on the handle means one process; what remains is whether it is the right one.
        now = read_process(process.pid)
        if now is not None and now.key == process.key:
            signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        return
    finally:
        os.close(handle)
