"""Takes paid jobs from their hold to their settlement, one step a pass.

Decides: nothing; ``plan/job`` does. Never: calls out; machines and commands are the engine's.
Follows: a pass may run at any time and twice; a job whose wake was lost is found by the tick.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from sky.domain import job as j
from sky.plan import job as plan
from sky.reconcile.passes import Done, InnerLoop
from sky.store.rows import jobs
from sky.store.tx import Tx
from sky.verbs import jobs as verbs
from sky.verbs.job_steps import JobRules


class Jobs(InnerLoop):
    """One pass: read a job with its compute and tasks, plan, write."""

    name: ClassVar[str] = "jobs"
    idle: ClassVar[str] = "there are no paid jobs"

    def __init__(self, rules: JobRules) -> None:
        self._rules = rules

    def look(self, tx: Tx, key_id: str) -> Done:
        found = jobs.view(tx.connection, key_id)
        if found is None:
            return Done("there is no such job")
        row, view = found
        decision = plan.plan(view, tx.now_us)
        for action in decision.actions:
            self._do(tx, row, action)
        return Done(decision.why, decision.next_us)

    def _do(self, tx: Tx, row: Mapping[str, Any], action: plan.Action) -> None:
        match action:
            case plan.Provision():
                verbs.provision(tx, row, self._rules)
            case plan.Prepare(placement):
                verbs.prepare(tx, row, placement, self._rules)
            case plan.Run():
                verbs.run(tx, row, self._rules)
            case plan.Upload(ended_us, exit_code):
                verbs.upload(tx, row, ended_us, exit_code, self._rules)
            case plan.Extend(amount_micro):
                verbs.extend(tx, row, amount_micro)
            case plan.Stop(error):
                verbs.stop(tx, row, error)
            case plan.Retry(ended_us, error):
                verbs.retry(tx, row, ended_us, error)
            case plan.TearDown():
                verbs.tear_down(tx, row)
            case plan.Settle():
                verbs.settle(tx, row, j.meter_of(row, row["ended_us"]))
            case j.JobRunning():
                verbs.started(tx, row, action)
            case j.Ended():
                verbs.end(tx, row, action)
            case _:
                tx.apply(action)
