"""``sky launch``: a task on a cluster, which is made if there is none of that name.

Decides: what is told before something is bought, and when a person is asked. Never: chooses a machine; the
server does. Follows: a file of several tasks runs them one after the other on one cluster, until one fails;
the exit code is the job's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

from cyclopts import Parameter

from sky.cli import job_run, output, render, render_requests
from sky.cli.app import Output, Yes, noun, only
from sky.cli.asking import confirm, somebody_is_there
from sky.cli.cluster_acts import WaitFor, check_minutes
from sky.cli.errors import usage
from sky.cli.job_run import Manner
from sky.cli.output import Cell
from sky.cli.scripted import Later, begin, clusters, plain, result
from sky.cli.task_options import NOTHING_SAID, Options, tasks_of
from sky.client import sdk
from sky.client.tasks.task import Task

CANDIDATES_SHOWN_MAX = 12


@dataclass(frozen=True, kw_only=True)
class OfCluster:
    """What becomes of the cluster that the task runs on."""

    idle_minutes_to_autostop: Annotated[
        int | None,
        Parameter(
            name=["--idle-minutes-to-autostop", "-i"],
            metavar="MINUTES",
            allow_leading_hyphen=True,
            help="Stop the cluster when it was idle for so long; -1: never.",
        ),
    ] = None
    down: Annotated[
        bool, Parameter(negative=(), help="Take it down instead, when it is idle or its jobs have ended.")
    ] = False
    wait_for: Annotated[WaitFor | None, Parameter(help="What keeps it from being idle [jobs_and_ssh].")] = (
        None
    )
    retry_until_up: Annotated[
        bool, Parameter(name=["--retry-until-up", "-r"], negative=(), help="Try until there are machines.")
    ] = False
    no_setup: Annotated[bool, Parameter(negative=(), help="Without the setup of the task.")] = False
    fast: Annotated[
        bool, Parameter(negative=(), help="On a cluster that is up, without preparing it again.")
    ] = False
    resize: Annotated[
        bool, Parameter(negative=(), help="Change the cluster's number of nodes to the task's.")
    ] = False


AS_USUAL = OfCluster()


@only(
    "launch",
    "sky launch -c dev task.yaml",
    "sky launch -c dev --gpus A100:8 --env EPOCHS=3 train.yaml",
    "sky launch -c dev --num-nodes 2 -- python train.py --epochs 3",
    "sky launch --dryrun task.yaml",
    "sky launch -c dev -i 30 --down -d task.yaml",
)
def launch(
    *entrypoint: Annotated[str, Parameter(name="ENTRYPOINT", help="A task file, or a command.")],
    cluster: Annotated[
        str | None, Parameter(name=["--cluster", "-c"], help="Its name; else one is made up.")
    ] = None,
    options: Annotated[Options, Parameter(name="*")] = NOTHING_SAID,
    dryrun: Annotated[
        bool,
        Parameter(
            name=["--dryrun", "--dry-run"], negative=(), help="Only show which machines would be taken."
        ),
    ] = False,
    detach_run: Annotated[
        bool, Parameter(name=["--detach-run", "-d"], negative=(), help="Return when the job is submitted.")
    ] = False,
    later: Later = False,
    yes: Yes = False,
    how: Annotated[OfCluster, Parameter(name="*")] = AS_USUAL,
    output_: Output = "table",
) -> int:
    """Run a task on a cluster, which is made if need be, and follow it; ends as the job does.

    ENTRYPOINT is a task file when it ends in .yaml or .yml, and else a command for bash; what belongs to a
    command stands behind --. Ctrl-C leaves the job running.
    """
    check_minutes("--idle-minutes-to-autostop", how.idle_minutes_to_autostop)
    tasks = tasks_of(entrypoint, options)
    manner = Manner(detach_run, later, output_)
    if len(tasks) > 1 and (detach_run or later):
        message = f"the {len(tasks)} tasks of a chain are followed to their end"
        raise usage(message, "leave --detach-run and --async out")
    begin()
    if dryrun:
        return _dry(tasks, output_)
    shown = _before(tasks, cluster, yes)

    def ask(task: Task, name: str | None) -> str:
        return sdk.launch(
            task,
            name,
            retry_until_up=how.retry_until_up,
            idle_minutes_to_autostop=how.idle_minutes_to_autostop,
            wait_for=cast("Any", how.wait_for),
            down=how.down,
            no_setup=how.no_setup,
            fast=how.fast,
            resize=how.resize,
        )

    name = cluster
    ran = job_run.Ran("", name, None, 0)
    for place, task in enumerate(tasks, 1):
        if len(tasks) > 1:
            output.note(f"task {place} of {len(tasks)}: {task.name or 'without a name'}")
        ran = job_run.carry_out(lambda one=task, on=name: ask(one, on), name, manner, shown=shown)
        name, shown = ran.cluster, False
        if ran.code:
            break
    return job_run.tell(ran, manner)


# ── before ──────────────────────────────────────────────────────────────────────────────────────


def _before(tasks: Sequence[Task], cluster: str | None, yes: bool) -> bool:
    """Say what is about to happen; ask where a person is there and something would be bought. Returns whether
    the machines were shown."""
    there = clusters([cluster]) if cluster is not None else []
    state = render_requests.word(there[0]["status"]) if there else None
    if yes or not somebody_is_there() or state in ("UP", "INIT"):
        return False
    name = f" {cluster!r}" if cluster else ""
    if state is not None:
        price = render.money(there[0].get("price_per_hour"))
        costs = f" at {price} an hour" if price and there[0].get("price_per_hour") else ""
        confirm(f"Cluster{name} is {state}. Start it{costs}?", "nothing was started", begins=True)
        return False
    optimized: list[Any] = list(result(sdk.optimize(_dag(tasks)), "looking which machines would do"))
    show_candidates(optimized[:1])
    price = render.money(optimized[0]["chosen"]["total_cost"]) if optimized else None
    question = f"Launch {f'cluster{name}' if name else 'a cluster'} at {price or 'an unknown price'} an hour?"
    confirm(question, "nothing was launched", begins=True)
    return True


def _dag(tasks: Sequence[Task]) -> Any:
    from sky.client.tasks.dag import Dag

    dag = Dag()
    for task in tasks:
        dag.add(task)
    return dag


def _dry(tasks: Sequence[Task], format_: str) -> int:
    optimized: list[Any] = list(result(sdk.optimize(_dag(tasks)), "looking which machines would do"))
    if format_ == "json":
        output.json(plain(optimized))
    else:
        show_candidates(optimized)
        output.note("this was a dry run: nothing was launched")
    return 0


def show_candidates(optimized: Sequence[Mapping[str, Any]]) -> None:
    """Which machines would do for each task, and which one is taken."""
    for place, one in enumerate(optimized):
        if place:
            output.say()
        if len(optimized) > 1:
            output.say(output.styled(str(one.get("name") or f"task {place + 1}"), "bold"))
        candidates: Sequence[Mapping[str, Any]] = one["candidates"]
        output.table(
            render_requests.CANDIDATE_HEADINGS,
            [_candidate(each) for each in candidates[:CANDIDATES_SHOWN_MAX]],
            flexible=("INSTANCE", "INFRA"),
        )
        more = len(candidates) - CANDIDATES_SHOWN_MAX
        if more > 0:
            output.note(f"and {more} more that cost as much or more; -o json has all")
        for passed in one.get("passed_over") or ():
            output.note(f"not {passed['what']}: {passed['reason']}")


def _candidate(one: Mapping[str, Any]) -> tuple[object, ...]:
    gpus = f"{one['accelerator']}:{one['accelerator_count']:g}" if one.get("accelerator") else None
    parts = [str(part) for part in (one["infra"], one.get("region"), one.get("zone")) if part]
    return (
        "/".join(dict.fromkeys(parts)),
        f"{one['instance_type']}{'[spot]' if one.get('use_spot') else ''}",
        f"{one['cpus']:g}",
        f"{one['memory_gb']:g}",
        gpus,
        render.money(one["total_cost"]),
        Cell("*", "good") if one.get("chosen") else " ",
    )


app = noun("launch")
