"""A reader that does not keep up costs a limited amount of memory, by events and by bytes."""

from __future__ import annotations

import pytest

from sky.store.events import SUBSCRIPTION_BYTES_MAX, SUBSCRIPTION_EVENTS_MAX, Filter, Hub
from sky.store.tx import Event

LARGE = '"' + "x" * 256 * 1024 + '"'


@pytest.mark.parametrize(
    ("payload", "limit"),
    [
        pytest.param("{}", SUBSCRIPTION_EVENTS_MAX, id="many"),
        pytest.param(LARGE, SUBSCRIPTION_BYTES_MAX // len(LARGE) + 1, id="large"),
    ],
)
async def test_a_reader_that_does_not_keep_up_is_let_go(payload: str, limit: int) -> None:
    hub = Hub()
    slow, quick = hub.subscribe(Filter()), hub.subscribe(Filter())
    read = 0
    for seq in range(1, limit + 10):
        hub.publish([Event(seq, "node.console", payload)])
        read += len(await quick.next(0.0))
    assert slow.lagged
    kept = await slow.next(0.0)
    assert len(kept) <= limit
    assert [d.event.seq for d in kept] == list(range(1, len(kept) + 1)), "without a gap"
    assert not quick.lagged
    assert read == limit + 9, "another reader misses nothing for it"
