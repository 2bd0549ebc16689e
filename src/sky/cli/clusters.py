"""``sky status`` and ``sky cost-report``: what clusters are, and what they have cost.

Decides: what is shown of a cluster, and that naming one that is not there ends with exit code 3.
Never: changes one. Follows: no clusters is an answer, not an error.
"""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from sky.cli import output, render, render_requests
from sky.cli.app import Output, noun, only
from sky.cli.errors import FAILED, MISSING, CliError, usage
from sky.cli.scripted import AllUsers, begin, clusters, named, one_cluster, plain, result
from sky.client import sdk

DAYS_MAX = 3_650


@only(
    "status",
    "sky status",
    "sky status dev 'train-*'",
    "sky status dev --ip",
    "sky status dev --endpoint 8080",
    "sky status -u -o json",
)
def status(
    *names: Annotated[str, Parameter(name="CLUSTER", help="Names or patterns; none: all of yours.")],
    verbose: Annotated[
        bool, Parameter(name=["--verbose", "-v"], negative=(), help="Everything about each.")
    ] = False,
    refresh: Annotated[
        bool, Parameter(name=["--refresh", "-r"], negative=(), help="Look at the machines first.")
    ] = False,
    all_users: AllUsers = False,
    ip: Annotated[bool, Parameter(negative=(), help="Only the address of the first node.")] = False,
    endpoints: Annotated[bool, Parameter(negative=(), help="Where its open ports are reached.")] = False,
    endpoint: Annotated[
        int | None, Parameter(metavar="PORT", help="Only where this port is reached.")
    ] = None,
    all_: Annotated[bool, Parameter(name=["--all", "-a"], negative=(), show=False)] = False,
    output_: Output = "table",
) -> int:
    """Show clusters, newest first. Exit code 3 when one that was named is not there."""
    if ip or endpoints or endpoint is not None:
        return _reach(names, ip, endpoint, output_)
    unknown: tuple[CliError, ...] = ()
    if names:
        there = named(names, refresh=refresh, all_users=all_users)
        records, unknown = list(there.records), there.unknown
    else:
        records = clusters(refresh=refresh, all_users=all_users)
    if output_ == "json":
        output.json(plain(records))
    elif not records and not unknown:
        output.note("no clusters; `sky launch -c NAME task.yaml` makes one")
    elif verbose or all_:
        for place, record in enumerate(records):
            if place:
                output.say()
            output.pairs(render_requests.cluster_pairs(record))
    elif records:
        output.table(
            render_requests.cluster_headings(users=all_users),
            [render_requests.cluster_row(record, users=all_users) for record in records],
            flexible=("RESOURCES", "NAME", "INFRA"),
        )
    if unknown:
        raise _none_of(unknown)
    return 0


def _none_of(unknown: tuple[CliError, ...]) -> CliError:
    if len(unknown) == 1:
        return unknown[0]
    message = "; ".join(str(one) for one in unknown)
    return CliError("cluster_does_not_exist", message, "`sky status` lists those there are", MISSING)


def _reach(names: tuple[str, ...], ip: bool, port: int | None, format_: str) -> int:
    """The addresses of one cluster, alone on standard output."""
    if len(names) != 1:
        raise usage(f"{len(names)} clusters were named", "name one cluster to be told its addresses")
    record = one_cluster(names[0])
    name = record["name"]
    if ip:
        address = render_requests.head_address(record)
        if address is None:
            state = render_requests.word(record["status"])
            raise CliError(
                "cluster_not_up",
                f"cluster {name!r} is {state}, and has no address",
                f"`sky start {name}` brings it up" if state == "STOPPED" else "`sky status` shows its state",
                FAILED,
            )
        if format_ == "json":
            output.json({"name": name, "ip": address})
        else:
            output.say(address)
        return 0
    found = dict(result(sdk.endpoints(name, port), f"looking where {name} is reached"))
    if format_ == "json":
        output.json(plain(found))
    elif port is not None:
        output.say(str(next(iter(found.values()))))
    elif not found:
        output.note(f"cluster {name!r} has no open ports; a task's `resources: ports:` opens some")
    else:
        output.pairs((str(number), url) for number, url in found.items())
    return 0


status_app = noun("status")


@only("cost-report", "sky cost-report", "sky cost-report --days 7", "sky cost-report -a -o json")
def cost_report(
    *,
    days: Annotated[int | None, Parameter(help="Clusters of the last so many days [30].")] = None,
    all_: Annotated[bool, Parameter(name=["--all", "-a"], negative=(), help="Clusters of all time.")] = False,
    output_: Output = "table",
) -> int:
    """Show what clusters have cost, also those that are gone: the time of their machines."""
    if days is not None and all_:
        raise usage("--days and --all were both given", "give one of them")
    if days is not None and not 1 <= days <= DAYS_MAX:
        raise usage(f"--days {days} is out of range", f"give a number from 1 to {DAYS_MAX}")
    begin()
    wanted = DAYS_MAX if all_ else days
    records: list[Any] = list(result(sdk.cost_report(wanted), "adding up"))
    if output_ == "json":
        output.json(plain(records))
        return 0
    if not records:
        output.note("no clusters in that time; `sky launch -c NAME task.yaml` makes one")
        return 0
    output.table(
        render_requests.COST_HEADINGS,
        [render_requests.cost_row(record) for record in records],
        flexible=("RESOURCES", "NAME"),
    )
    total = sum(record.get("total_cost") or 0.0 for record in records)
    output.note(f"together {render.money(total)}")
    return 0


costs_app = noun("cost-report")
