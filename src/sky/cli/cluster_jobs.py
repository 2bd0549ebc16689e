"""``sky queue|logs|cancel``: the jobs of clusters.

Decides: which job is meant where none is named, and what a log that is followed ends with.
Never: loses a line of a log. Follows: Ctrl-C leaves a job running; `sky logs` ends as the job did.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any, TextIO

from cyclopts import Parameter

from sky.cli import output, render_requests
from sky.cli.app import DryRun, Output, Yes, noun, only
from sky.cli.asking import confirm
from sky.cli.errors import MISSING, CliError, usage
from sky.cli.scripted import (
    AllUsers,
    Later,
    Live,
    LiveRequest,
    begin,
    clusters,
    listed,
    named,
    one_cluster,
    plain,
    result,
    submitted,
)
from sky.client import sdk

EXIT_OF_STATUS = {"SUCCEEDED": 0, "FAILED": 100, "FAILED_SETUP": 100, "FAILED_DRIVER": 100, "CANCELLED": 103}
NOT_ENDED = 101

Cluster = Annotated[str, Parameter(help="Name of the cluster.")]


@only("queue", "sky queue", "sky queue dev", "sky queue dev -s", "sky queue dev -o json")
def queue(
    *names: Annotated[str, Parameter(name="CLUSTER", help="Names or patterns; none: all of yours.")],
    skip_finished: Annotated[
        bool, Parameter(name=["--skip-finished", "-s"], negative=(), help="Only those that have not ended.")
    ] = False,
    all_users: AllUsers = False,
    output_: Output = "table",
) -> int:
    """Show the jobs of clusters, newest first."""
    unknown: tuple[CliError, ...] = ()
    if names:
        there = named(names, all_users=all_users)
        records, unknown = list(there.records), there.unknown
    else:
        records = clusters(all_users=all_users)
    if not records and not unknown and output_ != "json":
        output.note("no clusters; `sky launch -c NAME task.yaml` makes one")
    asked = [(record["name"], sdk.queue(record["name"], skip_finished, all_users)) for record in records]
    listed_jobs: list[dict[str, Any]] = []
    for place, (name, request_id) in enumerate(asked):
        jobs: list[Any] = list(result(request_id, f"looking at the jobs of {name}"))
        if output_ == "json":
            listed_jobs += [{"cluster_name": name, **plain(job)} for job in jobs]
            continue
        if len(asked) > 1:
            output.say(output.styled(f"{'' if not place else chr(10)}{name}", "bold"))
        _show_jobs(name, jobs, skip_finished, all_users)
    if output_ == "json":
        output.json(listed_jobs)
    if unknown:
        raise unknown[0]
    return 0


def _show_jobs(name: str, jobs: Sequence[Any], skip_finished: bool, all_users: bool) -> None:
    if not jobs:
        which = "no job under way" if skip_finished else "no jobs"
        output.note(f"{which} on {name}; `sky exec {name} COMMAND` submits one")
        return
    output.table(
        render_requests.job_headings(users=all_users),
        [render_requests.job_row(job, users=all_users) for job in jobs],
        flexible=("RESOURCES", "NAME"),
    )


queue_app = noun("queue")


@only(
    "logs",
    "sky logs dev",
    "sky logs dev 2 --no-follow --tail 20",
    "sky logs dev 2 --status",
    "sky logs dev 1 2 --sync-down",
    "sky logs dev --provision",
)
def logs(
    cluster: Cluster,
    /,
    *job_ids: Annotated[str, Parameter(name="JOB", help="Numbers of jobs; none: the newest.")],
    follow: Annotated[bool, Parameter(help="Go on until the job ends, or Ctrl-C.")] = True,
    tail: Annotated[int, Parameter(metavar="LINES", help="Only so many of the last lines; 0: all.")] = 0,
    status: Annotated[
        bool, Parameter(negative=(), help="Only the state of the jobs, and an exit code that tells it.")
    ] = False,
    sync_down: Annotated[
        bool, Parameter(name=["--sync-down", "-s"], negative=(), help="Bring the logs here as files.")
    ] = False,
    provision: Annotated[
        bool, Parameter(negative=(), help="What making the cluster's machines ready said.")
    ] = False,
    output_: Output = "table",
) -> int:
    """Print what a job of a cluster prints, from its beginning, to its end.

    Ends as the job did: 0 when it succeeded, 100 when it failed, 101 when it has not ended, 103 when it was
    cancelled.
    """
    said = [
        name
        for name, on in (("--status", status), ("--sync-down", sync_down), ("--provision", provision))
        if on
    ]
    if len(said) > 1:
        raise usage(f"{' and '.join(said)} were both given", "give one of them")
    if tail < 0:
        raise usage(f"--tail {tail} is out of range", "give a number of lines; 0 for all")
    numbers = [_number(word) for word in job_ids]
    if len(numbers) > 1 and not (status or sync_down):
        raise usage(f"{len(numbers)} jobs were named", "name one, or have the logs as files: --sync-down")
    begin()
    if provision:
        return _provision(cluster, follow, tail)
    if status:
        return _status(cluster, numbers, output_)
    if sync_down:
        return _bring(cluster, numbers, output_)
    return follow_job(cluster, numbers[0] if numbers else None, follow=follow, tail=tail)


logs_app = noun("logs")


def _number(word: str) -> int:
    if not word.isascii() or not word.isdigit():
        raise usage(f"{word!r} is no number of a job", "`sky queue CLUSTER` lists them")
    return int(word)


def follow_job(
    cluster: str, job_id: int | None, *, follow: bool = True, tail: int = 0, stream: TextIO | None = None
) -> int:
    """Print a job's log; the exit code that tells how the job stands."""
    try:
        with output.waiting(
            f"{'the newest job' if job_id is None else f'job {job_id}'} of {cluster} goes on …"
        ):
            return sdk.tail_logs(cluster, job_id, follow, tail, Live(stream or sys.stdout))
    except KeyboardInterrupt:
        which = "" if job_id is None else f" {job_id}"
        output.note(f"the job goes on: `sky logs {cluster}{which}` follows it")
        output.note(f"`sky cancel {cluster}{which}` ends it")
        raise


def _status(cluster: str, numbers: list[int], format_: str) -> int:
    found = dict(result(sdk.job_status(cluster, numbers or None), "asking for the state"))
    states = {
        int(number): None if one is None else render_requests.word(one) for number, one in found.items()
    }
    missing = [number for number, one in states.items() if one is None]
    if format_ == "json":
        output.json({str(number): one for number, one in states.items()})
    else:
        for number, one in states.items():
            if one is not None:
                output.say(f"job {number}: {output.styled(one, render_requests.state(one).style)}")
    if missing:
        raise _no_job(cluster, missing)
    if not states:
        raise CliError(
            "job_not_found",
            f"cluster {cluster!r} has no jobs",
            f"`sky exec {cluster} COMMAND` submits one",
            MISSING,
        )
    return max(EXIT_OF_STATUS.get(str(one), NOT_ENDED) for one in states.values())


def _no_job(cluster: str, numbers: Sequence[int]) -> CliError:
    which = f"job {numbers[0]}" if len(numbers) == 1 else f"jobs {listed(map(str, numbers))}"
    message = f"cluster {cluster!r} has no {which}"
    return CliError("job_not_found", message, f"`sky queue {cluster}` lists them", MISSING)


def _bring(cluster: str, numbers: Sequence[int], format_: str) -> int:
    with output.waiting("bringing the logs …"):
        places = dict(sdk.download_logs(cluster, list(numbers) or None))
    if format_ == "json":
        output.json({str(number): str(place) for number, place in places.items()})
    else:
        for number, place in places.items():
            output.say(f"job {number}: {place}")
    return 0


def _provision(cluster: str, follow: bool, tail: int) -> int:
    """The lines of the newest request that asked for the cluster's machines."""
    one_cluster(cluster)
    asked = [
        record
        for record in sdk.api_status(all_status=True, cluster_name=cluster)
        if record["name"] in ("launch", "start")
    ]
    if not asked:
        message = f"the request that made cluster {cluster!r} is no longer kept"
        raise CliError("not_found", message, f"`sky status {cluster} -v` shows how it is", MISSING)
    newest = max(asked, key=lambda record: record["created_at"])
    live = LiveRequest(sys.stdout)
    with output.waiting(f"{cluster} is made ready …"):
        sdk.stream_and_get(newest["request_id"], tail=tail or None, follow=follow, output_stream=live)
    return 0


@only(
    "cancel",
    "sky cancel dev 2",
    "sky cancel dev 1 2 3 --yes",
    "sky cancel dev --all",
    "sky cancel dev --all --dry-run",
)
def cancel(
    cluster: Cluster,
    /,
    *job_ids: Annotated[str, Parameter(name="JOB", help="Numbers of jobs; none: the newest under way.")],
    all_: Annotated[
        bool, Parameter(name=["--all", "-a"], negative=(), help="All of your jobs on the cluster.")
    ] = False,
    all_users: AllUsers = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    later: Later = False,
    output_: Output = "table",
) -> int:
    """Cancel jobs of a cluster. The cluster stays as it is."""
    numbers = [_number(word) for word in job_ids]
    if numbers and (all_ or all_users):
        raise usage("jobs were named, and all were meant as well", "give numbers, or --all")
    if dry_run:
        return _only_tell(cluster, numbers, all_users=all_users, every=all_ or all_users, format_=output_)
    if not yes:
        some = f"job{'s' if len(numbers) > 1 else ''} {listed(job_ids)}"
        which = some if numbers else "all jobs" if all_ or all_users else "the newest job"
        confirm(f"Cancel {which} on {cluster}?", "nothing was cancelled")
    begin()
    request_id = sdk.cancel(cluster, all_, all_users, numbers or None)
    if later:
        return submitted({cluster: request_id}, output_)
    ended: list[int] = list(result(request_id, f"cancelling jobs of {cluster}") or ())
    if output_ == "json":
        output.json({"cluster_name": cluster, "request_id": str(request_id), "job_ids": ended})
    elif ended:
        output.say(f"cancelled on {cluster}: {', '.join(map(str, ended))}")
    else:
        output.note(f"nothing to cancel on {cluster}: no such job is under way")
    return 0


def _only_tell(cluster: str, numbers: list[int], *, all_users: bool, every: bool, format_: str) -> int:
    """The jobs that would be cancelled. Raises as cancelling them does."""
    begin()
    if numbers:
        there = dict(result(sdk.job_status(cluster, numbers), "asking for the state"))
        if missing := [int(number) for number, state in there.items() if state is None]:
            raise _no_job(cluster, missing)
    asked = sdk.queue(cluster, True, all_users)
    jobs: list[Any] = list(result(asked, f"looking at the jobs of {cluster}") or ())
    jobs = [job for job in jobs if job["job_id"] in numbers] if numbers else jobs if every else jobs[:1]
    if format_ == "json":
        output.json([{"cluster_name": cluster, **plain(job)} for job in jobs])
    else:
        _show_jobs(cluster, jobs, True, all_users)
    output.note("this was a dry run: nothing was cancelled")
    return 0


cancel_app = noun("cancel")
