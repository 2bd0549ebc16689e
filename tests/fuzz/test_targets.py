"""Every reader of others' bytes, held against many inputs: it understands or refuses, in its own words.

Decides: how many, so that all take seconds; ``scripts/fuzz`` looks for longer, and where the code leads.
"""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.fuzz.targets import LIMIT_S, TARGETS, Target

EXAMPLES = 25
PHASES = (Phase.explicit, Phase.generate)
"""Without making a failure smaller: one that takes long would take for ever."""


def tried(target: Target, content: bytes) -> None:
    """Read it, and see that it took no longer than it may."""
    began_s = time.process_time()
    try:
        target.read(content)
    except target.errors:
        pass
    assert time.process_time() - began_s < LIMIT_S


def changed(content: bytes, at: int, put: bytes, cut: int) -> bytes:
    """A seed with a piece put in, and some of it taken away."""
    place = at % (len(content) + 1)
    return content[:place] + put + content[place + cut :]


@pytest.mark.parametrize("name", TARGETS)
def test_what_was_made_by_hand_is_understood_or_refused(name: str) -> None:
    for content in (*TARGETS[name].seeds, b"", b"\0", b"\xff" * 100, b"{" * 20_000):
        tried(TARGETS[name], content)


@pytest.mark.parametrize("name", TARGETS)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    phases=PHASES,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(data=st.data())
def test_what_nobody_would_write_is_understood_or_refused(name: str, data: st.DataObject) -> None:
    target = TARGETS[name]
    seed = data.draw(st.sampled_from(target.seeds))
    made = st.builds(
        changed, st.just(seed), st.integers(0, 10_000), st.binary(max_size=16), st.integers(0, 8)
    )
    tried(target, data.draw(st.one_of(st.binary(max_size=64), made)))
