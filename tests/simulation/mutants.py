"""Bugs that are planted one at a time: each breaks a promise, and the simulation has to find it.

Decides: what is planted, as a few words of the source that are put in place of others. Never: stays after its
test. Follows: a mutant whose words are not in the source any more fails, and has to be planted anew.
"""

from __future__ import annotations
import __future__

import inspect
import textwrap
from dataclasses import dataclass
from typing import Any

import pytest

from sky.api.agent import connect
from sky.domain import ledger, task
from sky.kit.clock import SteadyClock
from sky.plan import attempt as attempt_plan
from sky.plan import compute as compute_plan
from sky.plan import job as job_plan
from sky.plan import node as node_plan
from sky.providers.fake.cloud import FakeCloud
from sky.reconcile import sweep
from sky.reconcile.nodes import Nodes
from sky.reconcile.runner import Runner
from sky.store import work
from sky.store.tx import Tx
from sky.verbs import jobs as job_verbs
from sky.verbs import reports
from sky.verbs import tasks as task_verbs

CALLS, JOBS, REQUESTS = ("calls",), ("jobs",), ("requests",)


@dataclass(frozen=True, slots=True)
class Mutant:
    """In ``owner``'s function ``name``, ``new`` stands where ``old`` stood. ``faces``: where it shows;
    ``rough``: where much breaks. ``seed``: the first history to try."""

    what: str
    owner: Any
    name: str
    old: str
    new: str
    faces: tuple[str, ...] = CALLS
    rough: bool = False
    seed: int = 0
    profile: str = "plain"
    also: Mutant | None = None
    """Where a rule is kept in two places, the bug is in both."""

    def plant(self, patch: pytest.MonkeyPatch) -> None:
        """Put it in, for as long as ``patch`` lasts."""
        if self.also is not None:
            self.also.plant(patch)
        function = vars(self.owner)[self.name]
        source = textwrap.dedent(inspect.getsource(function))
        assert self.old in source, f"{self.name} has changed: plant {self.what!r} anew"
        flags = __future__.annotations.compiler_flag
        code = compile(source.replace(self.old, self.new), f"<{self.what}>", "exec", flags)
        made: dict[str, Any] = {}
        exec(code, function.__globals__, made)
        patch.setattr(function, "__code__", made[self.name].__code__)  # whoever has imported it has it too


MUTANTS = (
    Mutant(
        "a lost attempt is taken for one that never began",
        task,
        "after_loss",
        "if state in WAITING:",
        "if state != CANCEL_REQUESTED:",
        seed=4,
    ),
    Mutant(
        "what may have run is tried again although nobody allowed it",
        task,
        "after_loss",
        "return INDETERMINATE, tries.ambiguous_used < tries.ambiguous_allowed",
        "return INDETERMINATE, True",
        seed=15,
    ),
    Mutant(
        "work is handed out before that is written down",
        connect,
        "mailbox",
        'tx.apply(*(t.ExecutionDispatched(r["id"]) for r in new))',
        "pass",
    ),
    Mutant(
        "what runs is called cancelled as soon as that is asked for",
        task_verbs,
        "cancel",
        'if row["state"] in t.WAITING]',
        'if row["state"] in t.EXECUTION_LIVE]',
        seed=4,
    ),
    Mutant(
        "an event is dropped",
        Tx,
        "_record",
        "row = about.row",
        "row = about.row\n    if name == 'node.lost': return",
        seed=8,
    ),
    Mutant(
        "the answer to a key is not remembered",
        Tx,
        "once",
        "_REMEMBER.run(self.connection, row)",
        "pass",
        seed=16,
    ),
    Mutant(
        "the tag of a launch is ignored",
        FakeCloud,
        "launch",
        "if known is not None and not (self.forgetful and known.is_gone(now_us)):",
        "if False:",
        rough=True,
        seed=7,
    ),
    Mutant("a stray is left alone", sweep, "_is_stray", "return True", "return False", seed=4),
    Mutant(
        "a node is called deleted before its machine is gone",
        Nodes,
        "_terminate",
        'if listed and (machine is None or machine.state == "gone"):',
        "if True:",
        seed=2,
    ),
    Mutant(
        "another daemon's claim is ignored",
        Runner,
        "_claim",
        "if not passes.claim(",
        "if False and passes.claim(",
        seed=7,
    ),
    Mutant(
        "what is left of a hold is given back twice",
        job_verbs,
        "settle",
        "tx.apply(j.JobSettled",
        "ledger.enter(tx, l.credit(account_of(row), row['id'], held - charge)) if held > charge else None\n"
        "    tx.apply(j.JobSettled",
        JOBS,
        seed=5,
    ),
    Mutant(
        "what is left of a hold is kept",
        ledger,
        "settle",
        "charged = min(max(0, charge_micro), held_micro)",
        "charged = held_micro",
        JOBS,
        seed=5,
    ),
    Mutant(
        "half of a hold is settled, and the job called settled",
        ledger,
        "settle",
        "Entry(held(account_id), -held_micro)",
        "Entry(held(account_id), -(held_micro := held_micro // 2))",
        JOBS,
        seed=5,
    ),
    Mutant(
        "the fence is forgotten: another machine has the rank while this one works",
        compute_plan,
        "_holds_rank",
        "return node.fenced_us is None or node.fenced_us > now_us",
        "return False",
        profile="deletions",
        seed=4,
    ),
    Mutant(
        "the fence is forgotten: an attempt is over while its machine still runs",
        attempt_plan,
        "_one",
        "gone = a.node_state in n.FINAL",
        "gone = True or a.node_state in n.FINAL",
        profile="deletions",
        also=Mutant(
            "and so it is where attempts are read",
            work,
            "attempts_view",
            "(_ON_ENDING_NODES,",
            "(prepared(_attempts(_NODE_OF, IS_ON_NODE, _IS_ENDING)),",
        ),
        seed=7,
    ),
    Mutant(
        "a node is given up before its agent's lease is over",
        node_plan,
        "_serving",
        "silent_us >= _fenced_us(case.ttl_us)",
        "silent_us >= case.ttl_us - 20_000_000",
        profile="partitions",
    ),
    Mutant(
        "the wall clock is believed at once",
        SteadyClock,
        "now_us",
        "max(-lean_us, min(lean_us, gap_us))",
        "gap_us",
        profile="clock",
    ),
    Mutant(
        "one safe retry too many",
        task,
        "after_loss",
        "tries.safe_used < tries.safe_allowed",
        "tries.safe_used <= tries.safe_allowed",
        profile="partitions",
        seed=73,
    ),
    Mutant(
        "a late report moves what is over",
        reports,
        "_outcomes",
        'if row["state"] in t.DONE:',
        "if False:",
        profile="deletions",
        seed=9,
    ),
    Mutant(
        "a lost machine is metered until that is noticed",
        job_plan,
        "_alive",
        "min(now_us, view.last_seen_us or view.started_us)",
        "now_us",
        JOBS,
        profile="outages",
        seed=10,
    ),
    Mutant(
        "an account may go below zero",
        ledger,
        "chained",
        "if balance < 0:",
        "if False:",
        JOBS,
        seed=7,
    ),
)
