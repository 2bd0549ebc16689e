"""A described call made ready to be sent: packed once, small arguments inline, large ones by name.

Decides: what is inline and what is a blob, and when a packed function still stands for the function.
Never: sends. Follows: the same bytes go out on every retry; a function that the daemon has is not sent again;
one whose globals have changed (a line above, or a notebook's cell that was run again) goes out as it is now.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sky.client.function import Function, Pending, require_call
from sky.client.pack import Packed, hash_of, pack_arguments, pack_function
from sky.client.standing import Look
from sky.wire import v1

KEPT_MAX = 64
"""So many functions are remembered as they were packed, the last used ones."""
KEPT_BYTES_MAX = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Kept:
    packed: Packed
    look: Look


_kept: OrderedDict[int, _Kept] = OrderedDict()
_packing = threading.Lock()
_NONE = pack_arguments((), {}, "")


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One call in bytes. ``inline`` and ``blob`` are its arguments, at most one of them."""

    function: Packed
    inline: bytes | None
    blob: Packed | None
    timeout_s: int | None
    retry: v1.RetryPolicy | None
    streams: bool

    @property
    def blobs(self) -> tuple[Packed, ...]:
        """What must be stored before it can run, beside the function."""
        return () if self.blob is None else (self.blob,)

    @property
    def size(self) -> int:
        """How many bytes those are."""
        return sum(len(one.content) for one in self.blobs)

    @property
    def kin(self) -> tuple[str, int | None, v1.RetryPolicy | None]:
        """Calls that agree in this can go in one batch."""
        return self.function.sha256, self.timeout_s, self.retry

    def task(self, compute: str, dispatch: v1.Dispatch, correlation: str) -> v1.TaskCreate:
        """The request for this call alone."""
        return v1.TaskCreate(
            compute=compute,
            function=self.function.sha256,
            dispatch=dispatch,
            args_inline=self.inline,
            args_sha256=self.blob.sha256 if self.blob else None,
            retry=self.retry,
            timeout_seconds=self.timeout_s,
            correlation_id=correlation,
        )

    def batch_call(self) -> v1.BatchCall:
        """This call in a batch."""
        return v1.BatchCall(args_inline=self.inline, args_sha256=self.blob.sha256 if self.blob else None)


def prepare(call: Pending[Any]) -> Outgoing:
    """Pack a call. Raises PackError naming the function or argument that cannot travel, TypeError for what is
    no call."""
    function = require_call(call).function
    # The function first: packing it says which classes of its module travel by value, in arguments too.
    packed = _function(function)
    content = _NONE
    if call.args or call.kwargs:
        content = pack_arguments(call.args, call.kwargs, function.name, function.positional)
    inline: bytes | None = None
    blob: Packed | None = None
    if isinstance(content, bytes) and len(content) <= v1.INLINE_ARGUMENT_BYTES_MAX:
        inline = content
    else:
        blob = Packed(hash_of(content), content)
    timeout_s = None if function.timeout is None else max(1, math.ceil(function.timeout))
    return Outgoing(packed, inline, blob, timeout_s, function.retry, function.streams)


def _function(function: Function[..., Any]) -> Packed:
    with _packing:
        if function.packed:
            return function.packed[0]
        packed = _as_it_is_now(function.function, function.name)
        if function.packed is not None:
            function.packed.append(packed)
        return packed


def _as_it_is_now(function: Callable[..., Any], name: str) -> Packed:
    look = Look(function)
    known = _kept.pop(id(function), None)
    if known is None or not look.same(known.look):
        known = _Kept(pack_function(function, name), look)
    if look.sure:
        _kept[id(function)] = known
        while (
            len(_kept) > KEPT_MAX or sum(len(kept.packed.content) for kept in _kept.values()) > KEPT_BYTES_MAX
        ):
            _kept.popitem(last=False)
    return known.packed
