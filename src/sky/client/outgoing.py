"""A described call made ready to be sent: packed once, small arguments inline, large ones by name.

Decides: what is inline and what is a blob, and that a function is packed only the first time it is sent.
Never: sends. Follows: the same bytes go out on every retry; a function that the daemon has is not sent again.
"""

from __future__ import annotations

import hashlib
import math
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sky.client.function import Pending
from sky.client.pack import Packed, pack_arguments, pack_function
from sky.wire import v1

_packed: weakref.WeakKeyDictionary[Callable[..., Any], Packed] = weakref.WeakKeyDictionary()
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
    """Pack a call. Raises PackError naming the function or argument that cannot travel."""
    function = call.function
    content = pack_arguments(call.args, call.kwargs, function.name) if call.args or call.kwargs else _NONE
    inline: bytes | None = content
    blob: Packed | None = None
    if len(content) > v1.INLINE_ARGUMENT_BYTES_MAX:
        inline, blob = None, Packed(hashlib.sha256(content).hexdigest(), content)
    timeout_s = None if function.timeout is None else max(1, math.ceil(function.timeout))
    packed = _function(function.function, function.name)
    return Outgoing(packed, inline, blob, timeout_s, function.retry, function.streams)


def _function(function: Callable[..., Any], name: str) -> Packed:
    with _packing:
        try:
            known = _packed.get(function)
        except TypeError:
            # It cannot be referred to weakly: packed anew each time.
            return pack_function(function, name)
        if known is None:
            known = _packed[function] = pack_function(function, name)
        return known
