"""What a running call may ask about the place it runs in.

Decides: the shape of the answers, and how a sequence is divided among ranks.
Never: asks anybody; all of it came with the call. Follows: outside a call there is no answer but an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, TypeVarTuple, overload

from sky.client.errors import NotInCall
from sky.kit import context

T_co = TypeVar("T_co", covariant=True)
Ts = TypeVarTuple("Ts")


@dataclass(frozen=True, slots=True)
class InstanceInfo:
    """The node a call runs on: ``rank`` from 0 among ``total``; ``peers`` are addresses by rank."""

    rank: int
    total: int
    head: bool
    peers: tuple[str, ...]
    accelerators: tuple[str, ...]
    node: str
    compute: str
    task: str
    execution: str


class Sliceable(Protocol[T_co]):
    """Anything that gives a part of itself for a slice: lists, ranges, arrays, tensors."""

    def __getitem__(self, part: slice[Any, Any, Any], /) -> T_co: ...


def instance_info() -> InstanceInfo:
    """The place this call runs in. Raises NotInCall outside of calls."""
    here = context.current()
    if here is None:
        raise NotInCall(
            "sky.instance_info(), sky.is_head() and sky.shard() answer only inside a function that runs on a "
            "compute: send it there with `call >> compute` or `call @ compute`"
        )
    return InstanceInfo(
        rank=here.rank,
        total=here.total,
        head=here.rank == 0,
        peers=here.peers,
        accelerators=here.accelerators,
        node=here.node,
        compute=here.compute,
        task=here.task,
        execution=here.execution,
    )


def is_head() -> bool:
    """Whether this call runs on rank 0. Raises NotInCall outside of calls."""
    return instance_info().head


A_co = TypeVar("A_co", covariant=True)
B_co = TypeVar("B_co", covariant=True)


@overload
def shard(sequence: Sliceable[T_co], /) -> T_co: ...
@overload
def shard(sequence: Sliceable[A_co], second: Sliceable[B_co], /) -> tuple[A_co, B_co]: ...
@overload
def shard(
    sequence: Sliceable[A_co], second: Sliceable[B_co], third: Sliceable[T_co], /
) -> tuple[A_co, B_co, T_co]: ...
def shard(*sequences: Sliceable[Any]) -> Any:
    """This rank's part of a sequence: every ``total``-th element from ``rank`` on.

    Several sequences of one length are divided alike and come back as a tuple. The parts of all ranks are
    disjoint, together the whole, and differ in length by at most one. Raises NotInCall outside of calls.
    """
    here = instance_info()
    part = slice(here.rank, None, here.total)
    parts = tuple(sequence[part] for sequence in sequences)
    return parts[0] if len(parts) == 1 else parts
