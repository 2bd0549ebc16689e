"""What a pod and its events say about a machine.

Decides: pending, running or gone, and the reason in words that a person can do something with.
Never: calls the API. Follows: a pod that is on its way out still costs until its containers have ended; one
whose node does not answer is not gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from sky.kit.clock import SECOND_US
from sky.providers.base import Machine, MachineState
from sky.providers.bootstrap import FAILED
from sky.providers.kubernetes.manifests import PROVIDER, TAG
from sky.providers.kubernetes.shape import Item, at, many, mapping

Placing = Literal["placed", "waits", "queued", "no room"]
TAKEN_BACK = frozenset(
    {"PreemptionByScheduler", "DeletionByTaintManager", "EvictionByEvictionAPI", "DeletionByPodGC"}
)
"""Why a pod is taken away through no fault of its own, as its condition DisruptionTarget says."""
NEVER_STARTS = frozenset(
    {"InvalidImageName", "ImagePullBackOff", "ErrImageNeverPull", "CreateContainerError"}
)
STOPPED = frozenset({("DisruptionTarget", "StoppedByKueue"), ("TerminationTarget", "StoppedByKueue")})
"""How Kueue says that it takes a pod back whose place another is to have."""
LOST_WITH = frozenset(
    {"Preempted", "Preempting", "Evicted", "TaintManagerEviction", "OutOfcpu", "NodeNotReady"}
)
"""Reasons of events that tell why a pod is no longer there."""
WORDS_MAX = 400


def moment_us(text: object) -> int | None:
    """A time as the API writes it."""
    if not isinstance(text, str):
        return None
    try:
        return round(datetime.fromisoformat(text).timestamp() * SECOND_US)
    except ValueError:
        return None


def machine(pod: Item, context: str) -> Machine:
    """The machine that a pod is."""
    metadata, status = mapping(pod, "metadata"), mapping(pod, "status")
    state, reason = state_of(pod)
    labels, notes = mapping(metadata, "labels"), mapping(metadata, "annotations")
    namespace, name = str(metadata.get("namespace")), str(metadata.get("name"))
    binding = {
        "context": context,
        "namespace": namespace,
        "pod": name,
        "kubernetes_node": at(pod, "spec", "nodeName"),
        "look": f"kubectl -n {namespace} describe pod {name}",
    }
    return Machine(
        id=str(metadata.get("uid") or name),
        tag=str(notes.get(TAG) or labels.get(TAG)),
        state=state,
        address=status.get("podIP"),
        launched_us=moment_us(metadata.get("creationTimestamp")),
        reason=reason,
        binding={key: value for key, value in binding.items() if value is not None},
        provider_id=labels.get(PROVIDER),
    )


def state_of(pod: Item) -> tuple[MachineState, str | None]:
    """Its state, and when it is gone or cannot come, why."""
    status = mapping(pod, "status")
    phase = status.get("phase")
    if phase in ("Failed", "Succeeded"):
        return "gone", _ended(status)
    if mapping(pod, "metadata").get("deletionTimestamp"):
        return ("running" if phase == "Running" else "pending"), "it is ending"
    if phase == "Running" and status.get("podIP"):
        return "running", None
    waiting = _waiting(status)
    if waiting is not None and waiting[0] in NEVER_STARTS:
        return "gone", f"its container cannot start: {': '.join(part for part in waiting if part)}"
    return "pending", None if waiting is None else ": ".join(part for part in waiting if part)


def placing(pod: Item) -> tuple[Placing, str]:
    """Whether a node was found for a pod, and what the scheduler says."""
    if at(pod, "spec", "nodeName"):
        return "placed", ""
    for condition in many(pod, "status", "conditions"):
        if condition.get("type") != "PodScheduled":
            continue
        said = str(condition.get("message") or condition.get("reason") or "")[:WORDS_MAX]
        if condition.get("status") == "True":
            return "placed", ""
        if condition.get("reason") == "SchedulingGated":
            return "queued", said
        return "no room", said
    if many(pod, "spec", "schedulingGates"):
        return "queued", ""
    return "waits", ""


def lost(events: Iterable[Item]) -> str | None:
    """Why a pod that is no longer there was taken away, if its events tell."""
    told = [event for event in events if event.get("reason") in LOST_WITH]
    if not told:
        return None
    last = max(told, key=_event_us)
    return f"preempted: {_words(last.get('reason'), last.get('message'))}"


def latest(events: Iterable[Item], otherwise: str | None) -> str | None:
    """The last thing that went wrong with a pod that has a node, in the cluster's words."""
    told = [
        event
        for event in events
        if event.get("type") == "Warning" and event.get("reason") != "FailedScheduling"
    ]
    if not told:
        return otherwise
    last = max(told, key=_event_us)
    return _words(last.get("reason"), last.get("message"))


def _event_us(event: Item) -> int:
    times = (event.get("lastTimestamp"), event.get("eventTime"), event.get("firstTimestamp"))
    return max((at for at in map(moment_us, times) if at is not None), default=0)


def _ended(status: Item) -> str:
    """Why a pod's container runs no more."""
    for condition in many(status, "conditions"):
        kind, why = condition.get("type"), condition.get("reason")
        if (kind == "DisruptionTarget" and why in TAKEN_BACK) or (kind, why) in STOPPED:
            return f"preempted: {_words(condition.get('reason'), condition.get('message'))}"
    if status.get("reason") == "Preempting":
        return f"preempted: {_words('Preempting', status.get('message'))}"
    done = _terminated(status)
    if done.get("reason") == "OOMKilled":
        return "its container ran out of memory and was killed (OOMKilled)"
    if status.get("reason"):
        return _words(status.get("reason"), status.get("message")).lower()
    code = done.get("exitCode")
    said = str(done.get("message") or "").strip().splitlines()
    if code == FAILED and said:
        return said[-1][-WORDS_MAX:]
    if code in (None, 0):
        return "ended"
    last = f": {said[-1][-WORDS_MAX:]}" if said else ""
    return f"its program ended with code {code}{last}"


def _terminated(status: Item) -> Item:
    for container in many(status, "containerStatuses"):
        done = mapping(container, "state", "terminated")
        if done:
            return done
    return {}


def _waiting(status: Item) -> tuple[str, str] | None:
    for container in many(status, "containerStatuses"):
        waiting = mapping(container, "state", "waiting")
        if waiting:
            return str(waiting.get("reason") or ""), str(waiting.get("message") or "")[:WORDS_MAX]
    return None


def _words(reason: object, message: object) -> str:
    text = f"{reason}: {message}" if message else str(reason)
    return text[:WORDS_MAX]
