"""A container as a machine: its state, its address, and why it is gone.

Decides: which of an engine's words for a container's state mean what, and how an end is told. Never: asks an
engine. Follows: what an agent said last is in the reason; a container that was killed says so, and with how
much memory.
"""

from __future__ import annotations

from datetime import datetime

from sky.kit.clock import SECOND_US
from sky.providers.base import Machine, MachineState
from sky.providers.bootstrap import FAILED
from sky.providers.container import body
from sky.providers.container.place import Place
from sky.providers.container.shapes import Inspected

KILLED = 137
NOT_BEGUN = ("created", "configured", "initialized")
ENDED = ("exited", "stopped", "dead", "removing")
WORDS_CHARS_MAX = 300
_HEADER_BYTES = 8
_LOOPBACK = "127.0.0.1"


def state_of(word: str) -> MachineState:
    """An engine's word for a container's state."""
    if word in NOT_BEGUN:
        return "pending"
    return "gone" if word in ENDED else "running"


def machine_of(container: Inspected, place: Place, words: str = "") -> Machine:
    """The machine that a container is. ``words``: the last line that it wrote."""
    now = state_of(container.state.status)
    launched = container.label(body.LAUNCHED) or ""
    return Machine(
        id=container.id,
        tag=container.label(body.TAG) or container.name.lstrip("/"),
        state=now,
        address=_address(container, place),
        launched_us=int(launched) if launched.isdigit() else None,
        reason=_reason(container, words) if now == "gone" else None,
        binding={
            "container": container.name.lstrip("/"),
            "engine": str(place),
            "image": container.config.image,
            "instance_type": container.label(body.TYPE),
        },
        provider_id=container.label(body.PROVIDER),
    )


def ended_us(container: Inspected) -> int | None:
    """When a container ended; None: it has not, or nobody knows."""
    if state_of(container.state.status) != "gone":
        return None
    try:
        moment = datetime.fromisoformat(container.state.finished_at)
    except ValueError:
        return None
    return None if moment.tzinfo is None else round(moment.timestamp() * SECOND_US)


def last_words(log: bytes) -> str:
    """The last line of a container's log that says anything; each piece of it has a header of eight bytes."""
    text, at = bytearray(), 0
    while at + _HEADER_BYTES <= len(log):
        length = int.from_bytes(log[at + 4 : at + _HEADER_BYTES], "big")
        text += log[at + _HEADER_BYTES : at + _HEADER_BYTES + length]
        at += _HEADER_BYTES + length
    lines = [line.strip() for line in text.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:WORDS_CHARS_MAX] if lines else ""


def _address(container: Inspected, place: Place) -> str:
    """Where who reaches the engine's computer reaches the container."""
    settings = container.network_settings
    own = (settings.ip_address, *(one.ip_address for one in (settings.networks or {}).values()))
    return next((address for address in own if address), place.host or _LOOPBACK)


def _reason(container: Inspected, words: str) -> str:
    state = container.state
    memory = f"its {container.host_config.memory / body.GIB:.3g} GB of memory"
    told = f"; its last words: {words}" if words else ""
    if state.oom_killed:
        return f"the container used more than {memory} and was killed{told}"
    if state.exit_code == FAILED:
        return f"the container cannot become a node: {words or 'it does not say why'}"
    if state.exit_code == KILLED:
        return f"the container was killed, by hand or for using more than {memory}{told}"
    why = f" ({state.error})" if state.error else ""
    return f"the container ended by itself with code {state.exit_code}{why}{told}"
