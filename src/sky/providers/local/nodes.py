"""The nodes on this computer: beginning them, looking at them, ending them. Everything here blocks briefly.

Decides: whether a node lives, from who its processes are; and what its next step towards the end is.
Never: waits for a node to become anything; a call asks and returns, and the next look goes on from there.
Follows: the end is written down before it begins (``terminating``), and every look carries it on: SIGTERM
to all, then a grace, then SIGKILL. A node is gone only when none of its processes is left.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import msgspec

from sky.kit import faults
from sky.kit.clock import SECOND_US, Clock
from sky.providers.base import AgainLater, LaunchOrder, Machine, Refused
from sky.providers.local.disks import Disks
from sky.providers.local.environment import node_environment
from sky.providers.local.folder import ENDED, Ending, Folder, GoneRecord, Launched, folders, remove_tree
from sky.providers.local.processes import Identity, Process, Snapshot, boot_id, read_process, send

AGENT = (sys.executable, "-P", "-m", "sky.agent")
GRACE_SECONDS = 8.0
GONE_KEPT_SECONDS = 600.0
START_SECONDS_MAX = 10.0
LOCK_TRIES_MAX = 200
LOCK_TRY_SECONDS = 0.01
KILL_ROUNDS_MAX = 8
KILL_ROUND_SECONDS = 0.03
ADDRESS = "127.0.0.1"
IMAGES_BYTES_MAX = 20 * 1024**3
_TAG = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
_START = Path(__file__).with_name("start.py")


class Nodes:
    """All nodes under ``home``. ``program`` is what a node runs. Raises OSError, AgainLater, Refused."""

    def __init__(
        self,
        home: Path,
        clock: Clock,
        *,
        nodes_max: int,
        limit_memory: bool = True,
        images_bytes_max: int = IMAGES_BYTES_MAX,
        program: tuple[str, ...] = AGENT,
    ) -> None:
        self._home = home.absolute()
        self._nodes = self._home / "nodes"
        self._clock = clock
        self._nodes_max = nodes_max
        self._limit_memory = limit_memory
        self._images_bytes_max = images_bytes_max
        self._program = program
        self._boot = boot_id()
        self._disks = Disks(self._home, self._nodes)

    # ── the calls ──────────────────────────────────────────────────────────────────────────

    def launch(self, order: LaunchOrder) -> Machine:
        """The machine of that tag: the one that is there, the one that has been, or a new one."""
        folder = self._folder(order.tag)
        with self._locked():
            known = self._settle(folder, Snapshot) if folder.exists() else None
            if known is not None:
                return known
            if folder.ended_log.exists():
                return Machine(order.tag, order.tag, "gone", reason="ended")
            launched = Launched(
                instance_type=order.offer.instance_type,
                provider_id=order.offer.provider_id,
                launched_us=self._clock.now_us(),
                gpus=self._place(order),
                disk=order.disk,
            )
            disk = None if order.disk is None else self._disks.give(order.disk, order.tag)
            spec = self._spec(order)
            folder.prepare(order, launched, msgspec.json.encode(spec))
            faults.point("local.launch.prepared")
            self._start(folder, order, launched, disk)
            faults.point("local.launch.started")
            machine = self._settle(folder, Snapshot)
            if machine is None:
                raise AgainLater(f"the node's agent left no trace; see {folder.log}")
            return machine

    def find(self, tag: str) -> Machine | None:
        """The machine of that tag. Carries an end on that was asked for."""
        if not _names_a_folder(tag):
            return None
        folder = self._folder(tag)
        if not folder.exists():
            return None
        return self._look(folder, Snapshot)

    def listing(self) -> tuple[Machine, ...]:
        """Every machine. Those that have been gone by themselves for long are cleared away."""
        shared: list[Snapshot] = []

        def snapshot() -> Snapshot:
            if not shared:
                shared.append(Snapshot())
            return shared[0]

        seen: list[Machine] = []
        oldest_us = self._clock.now_us() - round(GONE_KEPT_SECONDS * SECOND_US)
        with self._locked():
            current = tuple(folders(self._nodes))
        for folder in current:
            machine = self._look(folder, snapshot)
            gone = folder.gone()
            if gone is not None and gone.at_us < oldest_us:
                with self._locked():
                    if folder.exists():
                        folder.remove()
            elif machine is not None:
                seen.append(machine)
        return tuple(seen)

    def terminate(self, tag: str) -> None:
        """Write down that the end is wanted, and take the next step towards it."""
        if not _names_a_folder(tag):
            return
        folder = self._folder(tag)
        if not folder.exists():
            return
        with self._locked():
            if not folder.exists():
                return
            if folder.ending() is None:
                now_us = self._clock.now_us()
                folder.write_ending(Ending(now_us, now_us + round(GRACE_SECONDS * SECOND_US)))
            faults.point("local.terminate.marked")
            self._settle(folder, Snapshot)
            faults.point("local.terminate.settled")

    def disks(self) -> tuple[str, ...]:
        """The names of all disks, used or not."""
        with self._locked():
            return self._disks.names()

    def remove_disk(self, name: str) -> None:
        """Remove a disk that no node uses any more."""
        if not _names_a_folder(name):
            return
        with self._locked():
            aside = self._disks.put_aside(name)
        if aside is not None:
            remove_tree(aside)

    # ── looking ─────────────────────────────────────────────────────────────────────────────────

    def _look(self, folder: Folder, snapshot: Callable[[], Snapshot]) -> Machine | None:
        """As ``_settle``, and without the lock and the list of processes when nothing is to be done."""
        folder.cap_log()
        if folder.ending() is None:
            identity = folder.identity()
            if identity is None:
                return None
            if self._lives(identity):
                return self._machine(folder, identity)
        with self._locked():
            return self._settle(folder, snapshot) if folder.exists() else None

    def _settle(self, folder: Folder, snapshot: Callable[[], Snapshot]) -> Machine | None:
        """What there is of a node, after the next step towards its end if it is ending."""
        identity, ending, gone = folder.identity(), folder.ending(), folder.gone()
        if identity is None:
            return None if ending is None else self._settle_unbegun(folder)
        alive: tuple[Process, ...] = ()
        if gone is None and identity.boot == self._boot:
            alive = snapshot().members(folder.path, identity, ending.signalled if ending else ())
        if ending is not None:
            if alive and self._press(folder, identity, ending, alive):
                return self._machine(folder, identity)
            folder.remove()
            return None
        if any(process.key == identity.key for process in alive):
            return self._machine(folder, identity)
        # The agent has ended by itself, so nobody looks after what it has left behind.
        if alive and self._kill(folder, identity, alive):
            return self._machine(folder, identity)
        if gone is None:
            gone = GoneRecord(self._clock.now_us(), self._reason(folder, identity))
            folder.write_gone(gone)
        return self._machine(folder, identity, gone)

    def _settle_unbegun(self, folder: Folder) -> Machine | None:
        """An end was asked for and no agent has begun; one may be just about to."""
        if folder.is_locked():
            return Machine(folder.tag, folder.tag, "pending", address=ADDRESS)
        folder.remove()
        return None

    def _lives(self, identity: Identity) -> bool:
        process = read_process(identity.pid)
        return (
            process is not None
            and process.key == identity.key
            and not process.zombie
            and identity.boot == self._boot
        )

    def _reason(self, folder: Folder, identity: Identity) -> str:
        if identity.boot != self._boot:
            return "the computer was restarted"
        words = folder.last_words()
        return "the agent ended by itself" + (f"; its last words: {words}" if words else "")

    def _machine(self, folder: Folder, identity: Identity, gone: GoneRecord | None = None) -> Machine:
        launched = folder.launched()
        return Machine(
            id=folder.tag,
            tag=folder.tag,
            state="running" if gone is None else "gone",
            address=ADDRESS,
            launched_us=launched.launched_us if launched else None,
            reason=gone.reason if gone else None,
            binding={
                "pid": identity.pid,
                "folder": str(folder.path),
                "instance_type": launched.instance_type if launched else None,
            },
            provider_id=launched.provider_id if launched else None,
        )

    # ── ending ──────────────────────────────────────────────────────────────────────────────────

    def _press(
        self, folder: Folder, identity: Identity, ending: Ending, alive: tuple[Process, ...]
    ) -> tuple[Process, ...]:
        """Tell everyone who was not told yet, or kill when the grace has passed; returns who still lives."""
        now_us, grace_us = self._clock.now_us(), round(GRACE_SECONDS * SECOND_US)
        told = set(ending.signalled)
        fresh = tuple(process for process in alive if process.key not in told)
        # A wall clock that was set back must not make the grace longer than it is.
        deadline_us = min(ending.deadline_us, now_us + grace_us)
        if fresh or deadline_us != ending.deadline_us:
            told.update(process.key for process in fresh)
            folder.write_ending(Ending(ending.asked_us, deadline_us, tuple(sorted(told))))
        if now_us >= deadline_us:
            return self._kill(folder, identity, alive)
        for process in fresh:
            send(process, signal.SIGTERM)
        return alive

    def _kill(self, folder: Folder, identity: Identity, alive: tuple[Process, ...]) -> tuple[Process, ...]:
        """SIGKILL to all, again to those they have begun meanwhile; returns who still lives."""
        recorded = {process.key for process in alive}
        for _ in range(KILL_ROUNDS_MAX):
            for process in alive:
                send(process, signal.SIGKILL)
            time.sleep(KILL_ROUND_SECONDS)
            alive = Snapshot().members(folder.path, identity, recorded)
            if not alive:
                break
            recorded.update(process.key for process in alive)
        return alive

    # ── beginning ───────────────────────────────────────────────────────────────────────────────

    def _place(self, order: LaunchOrder) -> tuple[int, ...] | None:
        """Room for one more: which accelerators it gets. Raises Refused when there is none."""
        living = [
            folder.launched()
            for folder in folders(self._nodes)
            if folder.tag != order.tag and (who := folder.identity()) is not None and self._lives(who)
        ]
        if len(living) >= self._nodes_max:
            raise Refused(
                f"{len(living)} nodes run on this computer, and max_nodes of the provider is "
                f"{self._nodes_max}",
                "quota",
            )
        total = int(order.offer.specific.get("gpus_total", 0))
        if total == 0:
            return None
        taken = {index for launched in living if launched for index in launched.gpus or ()}
        free = tuple(index for index in range(total) if index not in taken)
        if len(free) < order.offer.accelerator_count:
            raise Refused(
                f"{order.offer.accelerator_count} accelerators are asked for and {len(free)} of {total} "
                "are free on this computer",
                "capacity",
            )
        return free[: order.offer.accelerator_count]

    def _spec(self, order: LaunchOrder) -> dict[str, Any]:
        """What the order says of the node, and this computer's own where it is silent."""
        offer = order.offer
        spec = {
            "cpus": offer.cpus,
            "memory_gb": offer.memory_gb,
            "envs": str(self._home / "envs"),
            "envs_bytes_max": self._images_bytes_max,
            "accelerators": [offer.accelerator] * offer.accelerator_count if offer.accelerator else [],
        } | order.agent.spec
        return spec if self._limit_memory else spec | {"memory_gb": None}

    def _start(self, folder: Folder, order: LaunchOrder, launched: Launched, disk: Path | None) -> None:
        """Begin the agent. Returns when it runs, or when one that a dead daemon began is there."""
        lock = folder.take_lock()
        if lock is None:
            self._wait_for_identity(folder)
            return
        try:
            log = folder.open_log()
            try:
                with subprocess.Popen(
                    (sys.executable, "-I", "-S", _START, folder.path, *self._program),
                    env=node_environment(order, folder.path, lock, launched.gpus, os.environ, disk=disk),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(lock,),
                    start_new_session=True,
                ) as starter:
                    code = self._wait(starter)
            finally:
                os.close(log)
        finally:
            os.close(lock)
        if code != 0:
            raise AgainLater(f"the node's agent could not be started: {folder.last_words() or code}")

    def _wait(self, starter: subprocess.Popen[bytes]) -> int:
        try:
            return starter.wait(START_SECONDS_MAX)
        except subprocess.TimeoutExpired as error:
            starter.kill()
            raise AgainLater(f"the node's agent did not start within {START_SECONDS_MAX:.0f} s") from error

    def _wait_for_identity(self, folder: Folder) -> None:
        for _ in range(LOCK_TRIES_MAX):
            if folder.identity() is not None:
                return
            time.sleep(LOCK_TRY_SECONDS)
        raise AgainLater("another start of this node is under way", after_s=1.0)

    def _folder(self, tag: str) -> Folder:
        if not _names_a_folder(tag):
            raise Refused(f"'{tag}' cannot name a folder", "invalid_request", field="tag")
        return Folder(self._nodes, tag)

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        """One change at a time under this home. Raises AgainLater after two seconds of waiting."""
        self._nodes.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self._nodes / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            for _ in range(LOCK_TRIES_MAX):
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(LOCK_TRY_SECONDS)
            else:
                raise AgainLater("the nodes of this computer are busy", after_s=1.0)
            yield
        finally:
            os.close(handle)


def _names_a_folder(tag: str) -> bool:
    """Whether a tag is a plain name, and not the one under which the ended nodes' logs lie."""
    return _TAG.match(tag) is not None and tag != ENDED
