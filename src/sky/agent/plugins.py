"""What plugins do around a call on a node: the environment, the group of its ranks, and its end.

Decides: who takes part (every rank of a broadcast call; a call to one node is alone), what is set up before
the function is loaded, and what is taken down after it. Never: loads a library before a call that needs it.
Follows: the group lives as long as the call. Calls may follow each other, run side by side and be retried, in
whichever process; ranks that were not ready when the call was admitted are not waited for.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from sky.agent.meeting import Meeting, listener_at
from sky.agent.order import spoil
from sky.kit.context import CallContext
from sky.wire.plugins import Jax, Plugin, Torch, parse

LOOPBACK = "127.0.0.1"
LOOPBACK_INTERFACE = "lo" if sys.platform == "linux" else "lo0"


@contextlib.contextmanager
def around(plugins: Sequence[tuple[str, dict[str, Any]]], call: CallContext) -> Generator[None, None, None]:
    """Everything that ``plugins``, kinds with parameters, do for a call; the first is the outermost."""
    with contextlib.ExitStack() as stack:
        for kind, params in plugins:
            plugin = parse(kind, params)
            if isinstance(plugin, Torch):
                stack.enter_context(_torch(plugin, Part(call)))
            elif isinstance(plugin, Jax):
                stack.enter_context(_jax(plugin, Part(call)))
        yield


class Part:
    """A call's part among the ranks that it was sent to: ``place`` of ``size``, the first at ``address``."""

    def __init__(self, call: CallContext) -> None:
        world = call.world or (call.rank,)
        self.place = world.index(call.rank)
        self.size = len(world)
        self.task = call.task
        self.address = LOOPBACK
        if self.size > 1:
            first = world[0]
            self.address = call.peers[first] if first < len(call.peers) else ""
            if not self.address:
                raise ConnectionError(f"no address of node {first} is known, where the ranks would meet")

    @contextlib.contextmanager
    def meeting(self, plugin: Plugin, timeout_s: float) -> Generator[Meeting | None, None, None]:
        """All ranks together, for as long as the block lasts; None when there is but one."""
        if self.size == 1:
            yield None
            return
        key = f"{self.task}/{plugin.kind}"
        meeting = Meeting(key, self.place, self.size, self.address, timeout_s)
        try:
            yield meeting
        finally:
            meeting.close()


@contextlib.contextmanager
def _torch(plugin: Torch, part: Part) -> Generator[None, None, None]:
    """The default process group of torch, over the ranks of this call."""
    limit = timedelta(seconds=plugin.timeout)
    with part.meeting(plugin, plugin.timeout) as meeting:
        torch: Any = importlib.import_module("torch")
        dist: Any = importlib.import_module("torch.distributed")
        store: Any = None

        def host() -> tuple[int, str]:
            nonlocal store
            # The store takes over a socket that listens already: no other call can get its port in between.
            with listener_at(part.address) as door:
                port = door.getsockname()[1]
                store = dist.TCPStore(
                    part.address,
                    port,
                    part.size,
                    is_master=True,
                    timeout=limit,
                    wait_for_workers=False,
                    master_listen_fd=door.detach(),
                )
            return port, plugin.backend or ("nccl" if torch.cuda.is_available() else "gloo")

        port, backend = host() if meeting is None else meeting.agree(host)
        variables = _torch_variables(part, port)
        with _environment(variables):
            if store is None:
                store = dist.TCPStore(part.address, port, part.size, is_master=False, timeout=limit)
            try:
                with _told(meeting):
                    dist.init_process_group(
                        backend, store=store, rank=part.place, world_size=part.size, timeout=limit
                    )
                    yield
            except BaseException:
                if not dist.is_initialized():
                    # torch counts a group that came to nothing, here but not in a process that is new: the
                    # next group's ranks would look for each other under different names.
                    spoil("its ranks did not become a group of torch")
                raise
            finally:
                # The user's code may have destroyed it, or formed another.
                if dist.is_initialized():
                    dist.destroy_process_group()


def _torch_variables(part: Part, port: int) -> dict[str, str]:
    variables = {
        "MASTER_ADDR": part.address,
        "MASTER_PORT": str(port),
        "RANK": str(part.place),
        "WORLD_SIZE": str(part.size),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(part.place),
        "NODE_RANK": str(part.place),
    }
    if part.address == LOOPBACK and "GLOO_SOCKET_IFNAME" not in os.environ:
        variables["GLOO_SOCKET_IFNAME"] = LOOPBACK_INTERFACE
    return variables


@contextlib.contextmanager
def _jax(plugin: Jax, part: Part) -> Generator[None, None, None]:
    """The distributed runtime of jax; jax alone needs none."""
    with part.meeting(plugin, plugin.timeout) as meeting:
        if meeting is None:
            yield
            return
        jax: Any = importlib.import_module("jax")
        port: int = meeting.agree(lambda: _free_port(part.address))
        host = f"[{part.address}]" if ":" in part.address else part.address
        with _told(meeting):
            jax.distributed.initialize(
                coordinator_address=f"{host}:{port}",
                num_processes=part.size,
                process_id=part.place,
                initialization_timeout=max(1, round(plugin.timeout)),
                coordinator_bind_address=f"{host}:{port}" if part.address == LOOPBACK else None,
            )
            yield
            # Only after a success: it waits for the others, who may not come any more.
            jax.distributed.shutdown()


def _free_port(address: str) -> int:
    """A port that nobody listens on now; jax opens its own socket there."""
    with listener_at(address) as door:
        return door.getsockname()[1]


@contextlib.contextmanager
def _told(meeting: Meeting | None) -> Generator[None, None, None]:
    """Tell the others how it went here, before they notice; add to an error what failed there before."""
    try:
        yield
    except BaseException as error:
        if meeting is not None:
            for said in meeting.leave(error):
                error.add_note(said)
        raise
    if meeting is not None:
        meeting.leave(None)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Generator[None, None, None]:
    """Environment variables for the length of the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
