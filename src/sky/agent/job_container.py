"""A paid command in a container of its own.

Decides: the order of its life: made, closed off, started, watched, ended, removed. Never: leaves a container
behind: a keeper, which nothing that ends this process reaches, removes it then (see ``job_keeper``).
Follows: what the command writes is the console of its task; one that is over its time gets SIGTERM, thirty
seconds, and SIGKILL; why it died is the engine's word, not a guess.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from sky.agent import job_engine
from sky.agent.job_engine import EngineFailed, ask
from sky.agent.job_node import JobNode, tell
from sky.kit.containers import Engine, find
from sky.wire.steps import STOP_GRACE_SECONDS, Failed, Order, Outcome

POLL_S = 0.2
KEEPER_SECONDS_MAX = 20.0
NOT_FOUND, NOT_RUNNABLE = 127, 126
KILLED = 137
STATE_TRIES_MAX = 5
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_KEEPER = Path(__file__).with_name("job_keeper.py")
_PASSED = ("PATH", "HOME", "XDG_RUNTIME_DIR", "DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT")
_NETWORK_WORDS = ("network", "netavark", "cni", "iptables", "bridge")


def name_of(order: Order) -> str:
    """What a job's container is called: the same whenever it is run."""
    return f"sky-{order.job}"


def prepare(order: Order, node: JobNode) -> Failed | None:
    """Have the image here; gives why it cannot be."""
    engine = find(os.environ)
    if isinstance(engine, str):
        message = f"this machine has no container engine that works: {engine}"
        tell(message)
        return Failed("image_unavailable", message)
    job_engine.unlimited()
    try:
        job_engine.sweep(engine, node)
    except EngineFailed as error:
        return Failed("image_unavailable", f"{engine.name} does not work on this machine: {error}")
    return job_engine.pull(engine, order)


def run(order: Order, node: JobNode) -> Outcome:
    """Run the command to its end, or as long as it may."""
    engine = find(os.environ)
    if isinstance(engine, str):
        return Outcome(failed=Failed("run_failed", f"the container engine is gone: {engine}"))
    name = name_of(order)
    job_engine.unlimited()
    try:
        job_engine.hand_over(engine, node.root(order))
        job_engine.remove(engine, name)
    except (EngineFailed, OSError) as error:
        return Outcome(failed=Failed("run_failed", f"the container cannot be made: {error}"))
    with Keeper(engine, name) as keeper:
        try:
            _make(engine, order, node, name, keeper)
        except EngineFailed as error:
            return _unstarted(str(error))
        return _attached(engine, order, name, keeper, node)


def _make(engine: Engine, order: Order, node: JobNode, name: str, keeper: Keeper) -> None:
    """Everything up to the first instruction of the command. Raises EngineFailed."""
    # Only where we can close it off before anything runs in it is a container given a network.
    networks = ("bridge", "none") if engine.name == "podman" and os.geteuid() == 0 else ("none",)
    for network in networks:
        job_engine.create(engine, order, node, name, network)
        if engine.name != "podman":
            return
        try:
            ask(engine, "init", name)
        except EngineFailed as error:
            if network == "none" or not any(word in str(error).lower() for word in _NETWORK_WORDS):
                raise
            tell(f"this machine gives containers no network: {error}")
            job_engine.remove(engine, name)
            continue
        guarded = keeper.guard(_pid(engine, name), order, node)
        if guarded is not None and network != "none":
            raise EngineFailed(f"its network cannot be closed off: {guarded}")
        return


def _unstarted(why: str) -> Outcome:
    """The command did not begin: because of the command, or because of this machine."""
    tell(f"the command cannot be started: {why}")
    low = why.lower()
    if "not found" in low or "no such file" in low:
        return Outcome(exit_code=NOT_FOUND)
    if "permission denied" in low or "exec format" in low or "is a directory" in low:
        return Outcome(exit_code=NOT_RUNNABLE)
    return Outcome(failed=Failed("run_failed", f"the container could not be started: {why}"))


def _attached(engine: Engine, order: Order, name: str, keeper: Keeper, node: JobNode) -> Outcome:
    process = subprocess.Popen(
        [engine.program, "start", "--attach", name],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    timed_out = False
    try:
        if engine.name == "docker":
            _guard_started(engine, order, node, name, keeper, process)
        deadline_s = time.monotonic() + order.max_runtime_seconds
        while process.poll() is None and time.monotonic() < deadline_s:
            _wait(process, min(POLL_S, max(0.0, deadline_s - time.monotonic())))
        timed_out = process.poll() is None
        if timed_out:
            _stop(engine, name, process)
        return _outcome(engine, name, keeper, process.poll(), timed_out=timed_out)
    finally:
        if process.poll() is None:
            _stop(engine, name, process)
            process.kill()
        process.wait()


def _guard_started(
    engine: Engine, order: Order, node: JobNode, name: str, keeper: Keeper, process: subprocess.Popen[bytes]
) -> None:
    """Docker shows a container's process only once it runs; without a network that is soon enough."""
    deadline_s = time.monotonic() + KEEPER_SECONDS_MAX
    while process.poll() is None and time.monotonic() < deadline_s:
        pid = _pid(engine, name)
        if pid:
            keeper.guard(pid, order, node)
            return
        time.sleep(POLL_S)


def _pid(engine: Engine, name: str) -> int:
    return int(ask(engine, "inspect", "--format", "{{.State.Pid}}", name))


def _outcome(engine: Engine, name: str, keeper: Keeper, attached: int | None, *, timed_out: bool) -> Outcome:
    """How the command went, as the engine knows it."""
    try:
        said = _state(engine, name)
    except EngineFailed as error:
        failed = None if timed_out else Failed("run_failed", f"its container is gone: {error}")
        return Outcome(failed=failed, timed_out=timed_out)
    status, code, killed = said.split()
    if status in ("created", "configured", "initialized"):
        return Outcome(exit_code=int(code) or attached, timed_out=timed_out)
    exit_code = int(code) if status != "running" else KILLED
    out_of_memory = exit_code == KILLED and not timed_out and (killed == "true" or keeper.memory_ran_out())
    if out_of_memory:
        tell("the command was killed: it used more memory than it may")
    return Outcome(exit_code=exit_code, timed_out=timed_out, out_of_memory=out_of_memory)


def _state(engine: Engine, name: str) -> str:
    """The state of a container. Asked again when the engine is busy. Raises EngineFailed."""
    last = EngineFailed(f"{engine.name} does not know it")
    for _ in range(STATE_TRIES_MAX):
        try:
            return ask(
                engine,
                "inspect",
                "--format",
                "{{.State.Status}} {{.State.ExitCode}} {{.State.OOMKilled}}",
                name,
            )
        except EngineFailed as error:
            last = error
            time.sleep(POLL_S)
    raise last


def _stop(engine: Engine, name: str, process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, thirty seconds, SIGKILL."""
    for signal_name, seconds in (("TERM", STOP_GRACE_SECONDS), ("KILL", KEEPER_SECONDS_MAX)):
        try:
            ask(engine, "kill", "--signal", signal_name, name)
        except EngineFailed as error:
            # It ended in this very moment, or the keeper will end it.
            tell(f"{signal_name} did not reach the container: {error}")
        _wait(process, seconds)
        if process.poll() is not None:
            return


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return


class Keeper:
    """The process that removes a container when this one no longer can."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._name = name

    def __enter__(self) -> Self:
        passed = {k: v for k, v in os.environ.items() if k in _PASSED or k.startswith("CONTAINERS_")}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_KEEPER), self._engine.name, self._engine.program, self._name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=passed,
            cwd="/",
            start_new_session=True,
        )
        return self

    def guard(self, pid: int, order: Order, node: JobNode) -> str | None:
        """Close off the network of the container, and let its command reach the daemon for its uploads; gives
        why that cannot be."""
        url = urlsplit(node.daemon_url())
        port = url.port if order.outputs and url.scheme == "http" and url.hostname in LOOPBACK else None
        return self._tell(f"guard {pid} {port or 0} {order.job} {node.url_file or '-'}")

    def memory_ran_out(self) -> bool:
        """Whether something in the container was killed for want of memory."""
        return self._tell("memory") == "ran out"

    def _tell(self, line: str) -> str | None:
        sent, answers = self._process.stdin, self._process.stdout
        if sent is None or answers is None:
            return "there is no keeper"
        try:
            sent.write(f"{line}\n".encode())
            sent.flush()
            said = answers.readline().decode().strip()
        except OSError as error:
            return str(error)
        return None if said == "ok" else said or "the keeper ended"

    def __exit__(self, *_: object) -> None:
        """Remove the container; what cannot be removed here is left to the keeper, which tries for longer."""
        try:
            job_engine.remove(self._engine, self._name)
        except EngineFailed:
            # Another process may hold its files for a moment.
            self._tell("made")
        else:
            self._tell("done")
        for end in (self._process.stdin, self._process.stdout):
            if end is not None:
                end.close()
        self._process.wait()
