"""What may still be written on a full disk, held against the tables of moves."""

from __future__ import annotations

from sky.domain import node, task
from sky.domain.endings import ENDS, KEPT_ALIVE
from sky.domain.lifecycle import states
from sky.store.tx import NOUNS

NOT_ENDED = {
    node.NodeFailed: "nothing was bought, so nothing is spent",
    task.ExecutionIndeterminate: "is told by silence",
}


def test_every_fact_that_ends_something_for_good_is_one_for_which_there_is_room() -> None:
    final = {
        fact
        for noun in NOUNS
        for fact, move in noun.moves.items()
        if move.target
        in states(noun.moves) - {s for one in noun.moves.values() for s in one.sources if one.target}
    }
    assert final - ENDS == set(NOT_ENDED)


def test_what_only_silence_tells_is_no_end_and_no_fact_is_unknown() -> None:
    assert not ENDS & {node.NodeLost, task.TaskIndeterminate, task.ExecutionIndeterminate}
    assert not ENDS & KEPT_ALIVE
    assert {fact for noun in NOUNS for fact in noun.moves} >= ENDS | KEPT_ALIVE
