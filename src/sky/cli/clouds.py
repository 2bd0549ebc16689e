"""``sky check``, ``sky gpus list`` and ``sky show-gpus``: where machines can be had, and with which GPUs.

Decides: how an accelerator and its count are written, and which columns tell a price.
Never: asks a cloud; the server does. Follows: a cloud that cannot be used is told with why and what to do; an
accelerator that nobody has ends with exit code 3 and the nearest name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from sky.cli import output, render
from sky.cli.app import Output, command, noun, only
from sky.cli.errors import FAILED, MISSING, CliError, usage
from sky.cli.nouns import near
from sky.cli.output import Cell
from sky.cli.scripted import begin, listed, plain, result
from sky.client import sdk

MACHINE_HEADINGS = ("GPU", "COUNT", "CLOUD", "INSTANCE", "CPUS", "MEMORY", "$/H", "SPOT $/H", "REGION")


@only("check", "sky check", "sky check aws k8s", "sky check -v", "sky check -o json")
def check(
    *infra: Annotated[str, Parameter(name="INFRA", help="Which to try; none: all.")],
    verbose: Annotated[
        bool, Parameter(name=["--verbose", "-v"], negative=(), help="Also regions, and how much is offered.")
    ] = False,
    output_: Output = "table",
) -> int:
    """Try which clouds can be used, and say why one cannot. Exit code 1 when none can."""
    begin()
    records: list[Any] = list(result(sdk.check(tuple(infra) or None, verbose), "trying the clouds"))
    if output_ == "json":
        output.json(plain(records))
    for record in () if output_ == "json" else records:
        _show_infra(record, verbose)
    if any(record["enabled"] for record in records):
        return 0
    which = f"none of {listed(infra)}" if infra else "no cloud"
    raise CliError(
        "no_cloud_access",
        f"{which} can be used",
        "`sky provider add` gives this server credentials, or machines of your own",
        FAILED,
    )


def _show_infra(record: Mapping[str, Any], verbose: bool) -> None:
    mark = Cell("enabled", "good") if record["enabled"] else Cell("disabled", "bad")
    name = record.get("name")
    called = f" ({name})" if name and name != record["infra"] else ""
    output.say(f"{output.clean(record['infra'] + called)}: {output.styled(mark, mark.style)}")
    said: list[str] = []
    if record.get("reason"):
        said.append(str(record["reason"]))
    if record.get("hint") and not record["enabled"]:
        said.append(str(record["hint"]))
    if verbose and record["enabled"]:
        said.append(f"{record.get('offers', 0)} machines offered")
        if record.get("regions"):
            said.append(f"regions: {listed(record['regions'])}")
    for line in said:
        output.say(f"  {output.clean(line)}")


check_app = noun("check")

Accelerator = Annotated[
    str | None, Parameter(name="NAME", help="Such as A100, or A100:8; none: a summary of all.")
]
Infra = Annotated[
    tuple[str, ...],
    Parameter(name=["--infra", "--cloud"], negative_iterable=(), help="Only there: aws, aws/us-east-1."),
]
Region = Annotated[str | None, Parameter(help="Only in this region.")]
AllRegions = Annotated[bool, Parameter(negative=(), help="Every region, not only the one that costs least.")]
All = Annotated[
    bool, Parameter(name=["--all", "-a"], negative=(), help="Every machine with every accelerator.")
]

gpus_app = noun("gpus")


@command(
    gpus_app,
    "sky gpus list",
    "sky gpus list A100",
    "sky gpus list H100:8 --infra aws --all-regions",
    name="list",
    instead=("ls", "show"),
)
def list_(
    name: Accelerator = None,
    /,
    *,
    infra: Infra = (),
    region: Region = None,
    all_regions: AllRegions = False,
    all_: All = False,
    output_: Output = "table",
) -> int:
    """List accelerators and how many one machine can have; of one of them, the machines and their prices."""
    return _list(name, infra, region, all_regions, all_, output_)


@only("show-gpus", "sky show-gpus", "sky show-gpus A100", "sky show-gpus H100:8 --infra aws")
def show_gpus(
    name: Accelerator = None,
    /,
    *,
    infra: Infra = (),
    region: Region = None,
    all_regions: AllRegions = False,
    all_: All = False,
    output_: Output = "table",
) -> int:
    """The same as `sky gpus list`."""
    return _list(name, infra, region, all_regions, all_, output_)


show_gpus_app = noun("show-gpus")


def _list(
    name: str | None,
    infra: Sequence[str],
    region: str | None,
    all_regions: bool,
    all_: bool,
    format_: str,
) -> int:
    if name is not None and all_:
        raise usage("a name and --all were both given", "give one of them")
    wanted, count = _accelerator(name)
    clouds, place = _places(infra, region)
    begin()
    filters: dict[str, Any] = {
        "region_filter": None if place is None else re.escape(place),
        "quantity_filter": count,
        "clouds": clouds,
    }
    if wanted is None and not all_:
        counts: dict[str, list[float]] = dict(result(sdk.list_accelerator_counts(**filters), "looking"))
        return _show_counts(counts, format_)
    name_filter = None if wanted is None else f"^{re.escape(wanted)}$"
    asked = sdk.list_accelerators(
        name_filter=name_filter, all_regions=all_regions, case_sensitive=False, **filters
    )
    machines: dict[str, list[Any]] = dict(result(asked, "looking"))
    if not machines and wanted is not None:
        raise _no_such(wanted, count, bool(infra or region))
    if format_ == "json":
        output.json(plain(machines))
    elif not machines:
        output.note("no accelerators there; `sky check` tells which clouds can be used")
    else:
        rows = (one for group in machines.values() for one in group)
        _show_machines(sorted(rows, key=_by_price))
    return 0


def _show_counts(counts: Mapping[str, Iterable[float]], format_: str) -> int:
    if format_ == "json":
        output.json(plain(counts))
    elif not counts:
        output.note("no accelerators there; `sky check` tells which clouds can be used")
    else:
        rows = [
            (name, ", ".join(f"{one:g}" for one in sorted(each))) for name, each in sorted(counts.items())
        ]
        output.table(("GPU", "PER MACHINE"), rows, flexible=("PER MACHINE",))
        output.note("`sky gpus list NAME` shows the machines and their prices")
    return 0


def _by_price(one: Mapping[str, Any]) -> tuple[str, float, float]:
    price = one.get("price")
    return str(one["accelerator_name"]), float(one["accelerator_count"]), 1e9 if price is None else price


def _show_machines(machines: Sequence[Mapping[str, Any]]) -> None:
    output.table(
        MACHINE_HEADINGS,
        [
            (
                one["accelerator_name"],
                f"{one['accelerator_count']:g}",
                one["cloud"],
                one["instance_type"],
                None if one.get("cpu_count") is None else f"{one['cpu_count']:g}",
                None if one.get("memory") is None else f"{one['memory']:g}GB",
                render.money(one.get("price")),
                render.money(one.get("spot_price")),
                one.get("region"),
            )
            for one in machines
        ],
        flexible=("INSTANCE", "REGION", "GPU"),
    )
    days = sorted({str(one["as_of"]) for one in machines if one.get("as_of")})
    if days:
        output.note(f"list prices of {days[-1]}; `sky offers` shows what can be bought here now")


def _accelerator(text: str | None) -> tuple[str | None, int | None]:
    if text is None:
        return None, None
    name, colon, count = text.partition(":")
    if not name or (colon and not (count.isascii() and count.isdigit() and int(count) > 0)):
        raise usage(f"{text!r} is no accelerator with a count", "write A100, or A100:8")
    return name, int(count) if colon else None


def _places(infra: Sequence[str], region: str | None) -> tuple[list[str] | None, str | None]:
    """Clouds, and the one region they are asked for."""
    clouds = list(dict.fromkeys(one.partition("/")[0] for one in infra))
    regions = {one.split("/")[1] for one in infra if "/" in one}
    regions |= {region} if region is not None else set[str]()
    if len(regions) > 1:
        raise usage(f"several regions were named: {listed(sorted(regions))}", "name one")
    return clouds or None, next(iter(regions), None)


def _no_such(name: str, count: int | None, narrowed: bool) -> CliError:
    known = list(dict(result(sdk.list_accelerator_counts(), "looking")))
    exact = next((one for one in known if one.lower() == name.lower()), None)
    if exact is not None:
        what = exact if count is None else f"{exact}:{count}"
        where = " there" if narrowed or count is None else ""
        return CliError(
            "not_found", f"no machine has {what}{where}", f"`sky gpus list {exact}` shows all", MISSING
        )
    meant = near(name.upper(), known)
    hint = f"did you mean `{meant[0]}`?" if meant else "`sky gpus list` shows those that are known"
    return CliError("not_found", f"there is no accelerator {name!r}", hint, MISSING)
