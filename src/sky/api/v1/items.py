"""A generator's items, as they are yielded.

Decides: how items become frames, and when they count as consumed: once they are handed to the connection,
which takes no more than its reader reads. Never: opens an item.
Follows: a reader that comes back with the index of the first item it lacks misses none; one that does not
read holds the generator back, and nobody else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from litestar.response.base import ASGIResponse
from msgspec import Meta

from sky.api.operation import FRAMES, Ask, Bytes, operation
from sky.api.reading import Query
from sky.api.stream import SESSION_S, Streamed
from sky.api.unit import RECHECK_S, Services
from sky.domain.errors import CapabilityMismatch, NotFound
from sky.domain.task import SUCCEEDED
from sky.store.views import outcomes
from sky.store.views.outcomes import Ended, ItemRow
from sky.verbs import tasks as verbs
from sky.wire import v1

TAG = "Tasks"
CONSUMED_BATCH = 16
ITEMS_READ_MAX = 64

_encoder = msgspec.msgpack.Encoder()
_CHUNK_HEAD = _encoder.encode(v1.Chunk(value=b"")).removesuffix(b"\xc4\x00") + b"\xc6"
"""A chunk as far as its value, which follows behind four big-endian bytes of length."""


class StreamFrom(Query, frozen=True):
    """Where to begin."""

    after: (
        Annotated[int, Meta(ge=0, le=2**31 - 1, description="How many items the reader has already.")] | None
    ) = None


@operation(
    "GET",
    "/v1/tasks/{task_id}/stream",
    tag=TAG,
    answers=Bytes((FRAMES,), "Frames: four big-endian bytes of length, then msgpack of a Chunk or Failed."),
    errors=[NotFound, CapabilityMismatch],
)
async def stream_task(ask: Ask, task_id: str, query: StreamFrom) -> ASGIResponse:
    """Read the items of a generator as they are yielded.

    The body ends when the generator does; when it raised, the last frame says so. To go on after a broken
    connection, ask again with the number of items that have arrived as ``after``.
    """
    row = await ask.unit.db.read(lambda c: outcomes.stream(c, task_id))
    if row.dispatch != "stream":
        msg = f"task {task_id} was dispatched to {row.dispatch!r} and has one result, not a stream of items"
        raise CapabilityMismatch(msg, details={"task": task_id, "dispatch": row.dispatch})
    reader = _Reader(ask.unit, task_id, query.after or 0)
    return Streamed(reader.frames(), media=FRAMES, stall_s=SESSION_S)


class _Reader:
    """One reader of one task's items."""

    def __init__(self, unit: Services, task_id: str, place: int) -> None:
        self._unit = unit
        self._task_id = task_id
        self._place = place
        self._told = 0

    async def frames(self) -> AsyncIterator[bytes]:
        """The frames, from the reader's place on."""
        unit = self._unit
        with unit.signals.listen(f"items/{self._task_id}") as bell:
            while True:
                row = await unit.db.read(lambda c: outcomes.stream(c, self._task_id))
                found = await self._items(row.execution_id)
                for item in found:
                    async for piece in self._chunk(item):
                        yield piece
                    self._place = item.index + 1
                    await self._tell(CONSUMED_BATCH)
                if found:
                    continue
                await self._tell(1)
                if row.done:
                    break
                await bell.wait(RECHECK_S)
            ended = await unit.db.read(lambda c: outcomes.ending(c, self._task_id))
            if ended is not None and ended.state != SUCCEEDED:
                yield _frame(await self._failed(ended))

    async def _items(self, execution_id: str | None) -> list[ItemRow]:
        """The next items without a gap; an item that came before an earlier one waits for it."""
        if execution_id is None:
            return []
        found = await self._unit.db.read(
            lambda c: outcomes.stream_items(c, execution_id, self._place, ITEMS_READ_MAX)
        )
        return [item for offset, item in enumerate(found) if item.index == self._place + offset]

    async def _chunk(self, item: ItemRow) -> AsyncIterator[bytes]:
        """The frame of an item; of a large one, in pieces as they are read."""
        if item.content is not None:
            yield _frame(v1.Chunk(value=item.content))
            return
        content = await self._unit.blobs.get(item.sha256)
        head = _CHUNK_HEAD + content.size.to_bytes(4, "big")
        yield (len(head) + content.size).to_bytes(4, "big") + head
        async for piece in self._unit.blobs.read(content):
            yield piece

    async def _tell(self, batch: int) -> None:
        if self._place - self._told >= batch:
            place = self._place
            await self._unit.db.write(lambda tx: verbs.consume(tx, self._task_id, place))
            self._told = place

    async def _failed(self, ended: Ended) -> v1.Failed:
        error = ended.error
        details = {} if error is None else (error.details or {})
        payload = ended.content
        if payload is None and ended.sha256 is not None:
            blobs = self._unit.blobs
            payload = b"".join([piece async for piece in blobs.read(await blobs.get(ended.sha256))])
        return v1.Failed(
            error=f"the task ended as {ended.state}" if error is None else error.message,
            traceback=str(details.get("traceback", "")),
            payload=payload,
        )


def _frame(frame: v1.Frame) -> bytes:
    packed = _encoder.encode(frame)
    return len(packed).to_bytes(4, "big") + packed


ROUTES = (stream_task,)
