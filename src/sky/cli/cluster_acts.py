"""``sky start|stop|down|autostop``: what is done to clusters, to one or to many at once.

Decides: what is asked before, and what is said when it is done. Never: decides whether it can be done; the
server does. Follows: many are acted on at the same time, with a line for each, and the worst one's exit code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

import msgspec
from cyclopts import Parameter

from sky.cli import output, render
from sky.cli.app import DryRun, Output, Yes, noun, only
from sky.cli.asking import confirm
from sky.cli.errors import usage
from sky.cli.render_requests import minutes, word
from sky.cli.scripted import Act, AllUsers, Later, Named, act_on, chosen, listed, plain
from sky.client import sdk
from sky.client.request_flows import submit
from sky.client.request_link import link
from sky.wire import requests as wire

IDLE_MINUTES = 5
"""After how much idleness a cluster is stopped, where nothing else is said."""
NEVER = -1
MINUTES_MAX = 525_600

WaitFor = Literal["jobs", "jobs_and_ssh", "none"]
Names = Annotated[str, Parameter(name="CLUSTER", help="Names, or patterns such as 'train-*'.")]
All = Annotated[bool, Parameter(name=["--all", "-a"], negative=(), help="All of your clusters.")]
Graceful = Annotated[
    bool, Parameter(negative=(), help="Let the jobs that run end first, within --graceful-timeout.")
]
GracefulTimeout = Annotated[int | None, Parameter(metavar="SECONDS", help="How long jobs may take to end.")]
Waits = Annotated[
    WaitFor | None,
    Parameter(help="What keeps it from being idle: jobs, also open shells, or nothing [jobs_and_ssh]."),
]


def _ready(words: Sequence[str], named: Named, yes: bool, question: str, format_: str) -> bool:
    """Whether there is anything to do, after asking. An empty list is no error."""
    names = [record["name"] for record in named.records]
    if not names and not named.unknown:
        if format_ == "json":
            output.json([])
        else:
            output.note("no clusters; `sky launch -c NAME task.yaml` makes one")
        return False
    if names and not yes:
        many = listed(names) if len(names) == 1 else f"{len(names)} clusters ({listed(names)})"
        confirm(f"{question} {many}?", "nothing was changed")
    return True


def _only_tell(named: Named, what: str, format_: str) -> int:
    """The clusters that would be acted on. A name that nobody knows is an error here too."""
    if format_ == "json":
        output.json(plain(named.records))
    for record in named.records if format_ != "json" else ():
        output.say(f"{record['name']} ({word(record['status'])}) would be {what}")
    if not named.records and not named.unknown:
        output.note("no clusters; `sky launch -c NAME task.yaml` makes one")
    if named.unknown:
        raise named.unknown[0]
    output.note("this was a dry run: nothing was changed")
    return 0


def _names(named: Named) -> list[str]:
    return [str(record["name"]) for record in named.records]


def _submit(name: str, body: wire.Body) -> str:
    """Ask for it. Functions of the SDK change what is one's own; these also what is another's."""
    return link().run(submit(name, body))


def _ending(request: str, body: wire.ClusterBody, named: Named, doing: str, done: str) -> Act:
    """What ends clusters: ``request`` with ``body`` for each. ``done`` is told of {name}, with its {cost}."""
    costs = {str(record["name"]): record.get("cost") for record in named.records}

    def ask(name: str) -> str:
        return _submit(request, msgspec.structs.replace(body, cluster_name=name))

    def told(name: str, _: object) -> str:
        # What it had cost when this was asked for: nobody has to wait for the sum of the last seconds.
        cost = costs.get(name)
        return done.format(name=name, cost=f" and has cost {render.money(cost)}" if cost else "")

    return Act(ask, doing, told)


def check_minutes(option: str, count: int | None) -> None:
    """Refuse an idle time that nobody can mean."""
    if count is not None and not NEVER <= count <= MINUTES_MAX:
        raise usage(
            f"{option} {count} is out of range", f"give minutes from 0 to {MINUTES_MAX}, or -1 for never"
        )


@only(
    "start",
    "sky start dev",
    "sky start dev -i 30 --down",
    "sky start --all --yes --async",
)
def start(
    *names: Names,
    all_: All = False,
    yes: Yes = False,
    idle_minutes_to_autostop: Annotated[
        int | None,
        Parameter(
            name=["--idle-minutes-to-autostop", "-i"],
            metavar="MINUTES",
            allow_leading_hyphen=True,
            help="Stop it when it was idle for so long; -1: never.",
        ),
    ] = None,
    wait_for: Waits = None,
    down: Annotated[bool, Parameter(negative=(), help="Take it down instead, when it is idle.")] = False,
    retry_until_up: Annotated[
        bool, Parameter(name=["--retry-until-up", "-r"], negative=(), help="Try until there are machines.")
    ] = False,
    force: Annotated[
        bool, Parameter(name=["--force", "-f"], negative=(), help="Also one that is up already.")
    ] = False,
    dry_run: DryRun = False,
    later: Later = False,
    output_: Output = "table",
) -> int:
    """Start stopped clusters: their machines come back, with the same disks."""
    check_minutes("--idle-minutes-to-autostop", idle_minutes_to_autostop)
    named = chosen(names, all_, "start")
    if all_ and not force:
        stopped = tuple(record for record in named.records if word(record["status"]) == "STOPPED")
        if named.records and not stopped:
            output.note("no cluster is stopped")
            return 0
        named = Named(stopped, ())
    if dry_run:
        return _only_tell(named, "started", output_)
    if not _ready(names, named, yes or bool(names), "Start", output_):
        return 0

    def ask(name: str) -> str:
        return sdk.start(
            name,
            idle_minutes_to_autostop,
            wait_for=cast("Any", wait_for),
            retry_until_up=retry_until_up,
            down=down,
            force=force,
        )

    act = Act(ask, "starting", lambda name, _: f"{name} is up")
    return act_on(_names(named), named.unknown, act, later, output_)


start_app = noun("start")


@only("stop", "sky stop dev", "sky stop 'train-*' --yes", "sky stop --all --async")
def stop(
    *names: Names,
    all_: All = False,
    all_users: AllUsers = False,
    yes: Yes = False,
    graceful: Graceful = False,
    graceful_timeout: GracefulTimeout = None,
    dry_run: DryRun = False,
    later: Later = False,
    output_: Output = "table",
) -> int:
    """Stop clusters: machines are given back, disks are kept, jobs that run are cancelled.

    Refused before anything happens where a cluster is on machines that keep no disk.
    """
    named = chosen(names, all_, "stop", all_users=all_users)
    if dry_run:
        return _only_tell(named, "stopped", output_)
    if not _ready(names, named, yes, "Stop", output_):
        return 0

    body = wire.ClusterBody("", graceful=graceful, graceful_timeout=graceful_timeout, all_users=all_users)
    done = "{name} is stopped{cost}; `sky start {name}` brings it back"
    act = _ending("stop", body, named, "stopping", done)
    return act_on(_names(named), named.unknown, act, later, output_)


stop_app = noun("stop")


@only("down", "sky down dev", "sky down dev other 'train-*' --yes", "sky down --all --yes")
def down(
    *names: Names,
    all_: All = False,
    all_users: AllUsers = False,
    yes: Yes = False,
    purge: Annotated[
        bool,
        Parameter(name=["--purge", "-p"], negative=(), help="Forget it, also where its cloud refuses."),
    ] = False,
    graceful: Graceful = False,
    graceful_timeout: GracefulTimeout = None,
    dry_run: DryRun = False,
    later: Later = False,
    output_: Output = "table",
) -> int:
    """Take clusters down: their jobs end, their machines and disks are given back."""
    named = chosen(names, all_, "down", all_users=all_users)
    if dry_run:
        return _only_tell(named, "taken down", output_)
    if not _ready(names, named, yes, "Take down", output_):
        return 0

    body = wire.ClusterBody(
        "", purge=purge, graceful=graceful, graceful_timeout=graceful_timeout, all_users=all_users
    )
    act = _ending("down", body, named, "taking down", "{name} is gone{cost}")
    return act_on(_names(named), named.unknown, act, later, output_)


down_app = noun("down")


@only(
    "autostop",
    "sky autostop dev -i 30",
    "sky autostop dev -i 30 --down",
    "sky autostop --all --cancel --yes",
)
def autostop(
    *names: Names,
    all_: All = False,
    all_users: AllUsers = False,
    idle_minutes: Annotated[
        int | None,
        Parameter(
            name=["--idle-minutes", "-i"],
            metavar="MINUTES",
            allow_leading_hyphen=True,
            help=f"How long it must have been idle; -1: never [{IDLE_MINUTES}].",
        ),
    ] = None,
    wait_for: Waits = None,
    cancel: Annotated[bool, Parameter(negative=(), help="Nothing happens when it is idle.")] = False,
    down: Annotated[bool, Parameter(negative=(), help="Take it down instead of stopping it.")] = False,
    yes: Yes = False,
    later: Later = False,
    output_: Output = "table",
) -> int:
    """Say what happens to clusters when they are idle."""
    if cancel and (idle_minutes is not None or down):
        said = "--idle-minutes" if idle_minutes is not None else "--down"
        raise usage(f"--cancel and {said} were both given", "give one of them")
    check_minutes("--idle-minutes", idle_minutes)
    after = NEVER if cancel else IDLE_MINUTES if idle_minutes is None else idle_minutes
    named = chosen(names, all_, "autostop", all_users=all_users)
    if not _ready(names, named, yes or bool(names), "Change the autostop of", output_):
        return 0

    def ask(name: str) -> str:
        return _submit(
            "autostop",
            wire.AutostopBody(
                cluster_name=name, idle_minutes=after, wait_for=wait_for, down=down, all_users=all_users
            ),
        )

    def done(name: str, _: object) -> str:
        if after < 0:
            return f"{name} is neither stopped nor taken down when it is idle"
        return f"{name} is {'taken down' if down else 'stopped'} after {minutes(after)} of idleness"

    return act_on(_names(named), named.unknown, Act(ask, "setting", done), later, output_)


autostop_app = noun("autostop")
