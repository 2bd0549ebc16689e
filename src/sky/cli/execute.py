"""``sky exec``: a task on a cluster that is up, without its setup.

Decides: which of the words is the cluster. Never: makes or changes a cluster. Follows: it ends as the job
does, as ``sky launch``.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from sky.cli import job_run
from sky.cli.app import Output, noun, only
from sky.cli.errors import usage
from sky.cli.job_run import Manner
from sky.cli.scripted import Later, one_cluster
from sky.cli.task_options import NOTHING_SAID, Options, tasks_of
from sky.client import sdk
from sky.client.tasks.task import Task


@only(
    "exec",
    "sky exec dev task.yaml",
    "sky exec dev -- python train.py --epochs 3",
    "sky exec -c dev --gpus A100:1 --env EPOCHS=3 train.yaml",
    "sky exec dev -d 'sleep 60'",
)
def execute(
    *words: Annotated[
        str, Parameter(name="CLUSTER ENTRYPOINT", help="The cluster, and a task file or a command.")
    ],
    cluster: Annotated[
        str | None, Parameter(name=["--cluster", "-c"], help="The cluster, instead of the first word.")
    ] = None,
    options: Annotated[Options, Parameter(name="*")] = NOTHING_SAID,
    detach_run: Annotated[
        bool, Parameter(name=["--detach-run", "-d"], negative=(), help="Return when the job is submitted.")
    ] = False,
    later: Later = False,
    dryrun: Annotated[
        bool, Parameter(name=["--dryrun", "--dry-run"], negative=(), help="Only check that it could run.")
    ] = False,
    down: Annotated[
        bool, Parameter(negative=(), help="Take the cluster down when its jobs have ended.")
    ] = False,
    output_: Output = "table",
) -> int:
    """Run a task on a cluster that is up, and follow it; ends as the job does.

    The task's files are brought again, its setup is not run. What belongs to a command stands behind --.
    """
    name, rest = (cluster, words) if cluster is not None else (words[0] if words else None, words[1:])
    if name is None:
        raise usage("no cluster was named", "`sky exec CLUSTER task.yaml`; `sky status` lists them")
    if not rest:
        message = f"nothing was named to run on {name}"
        raise usage(message, f"`sky exec {name} task.yaml`, or a command behind --")
    tasks = tasks_of(rest, options)
    manner = Manner(detach_run, later, output_)
    if len(tasks) > 1 and (detach_run or later):
        message = f"the {len(tasks)} tasks of a chain are followed to their end"
        raise usage(message, "leave --detach-run and --async out")
    one_cluster(name)

    def ask(task: Task) -> str:
        return sdk.exec(task, name, dryrun=dryrun, down=down)

    ran = job_run.Ran("", name, None, 0)
    for task in tasks:
        ran = job_run.carry_out(lambda one=task: ask(one), name, manner)
        if ran.code:
            break
    return job_run.tell(ran, manner)


app = noun("exec")
