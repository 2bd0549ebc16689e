"""The fields of ``resources``: which machines would do.

Decides: what each of them takes, and the one form it is kept in. Never: knows which machines there are.
Follows: ``cloud``, ``region`` and ``zone`` become ``infra``; what is asked for in several ways at once is
refused where the ways differ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from sky.client.tasks import known, values
from sky.client.tasks.report import Report
from sky.client.tasks.values import Check
from sky.kit.marked_yaml import Path
from sky.kit.nearby import slip_of

PLACE_CHARS_MAX = 256
COUNT_MAX = 64
ALTERNATIVES_MAX = 32
AUTOSTOP_MINUTES = 5
"""After how long a cluster stops whose autostop is only ``true``."""
_INFRA = "it is CLOUD, CLOUD/REGION or CLOUD/REGION/ZONE, such as 'aws/us-east-1', 'k8s/CONTEXT' or 'local'"
_ACCELERATOR = re.compile(r"(?P<name>[^:]+?)(?: *: *(?P<count>[^:]*))?")
_SIZE_ALONE = re.compile(r"\d+(\.\d+)? *([GM]i?B)? *\+?", re.IGNORECASE)


# ── where ───────────────────────────────────────────────────────────────────────────────────────


def cloud(report: Report, path: Path, value: Any) -> str | None:
    """The name of a cloud; any other name is one that a server knows."""
    if value is not None and not isinstance(value, str) and hasattr(value, "NAME"):
        value = value.NAME
    given = values.text(report, path, value)
    if given is None:
        return None
    name = known.CLOUDS.get(given.strip().lower())
    if name is not None:
        return name
    near = slip_of(given, known.CLOUDS)
    if near is not None:
        report.wrong(path, f"there is no such cloud; did you mean {near!r}?", value)
        return None
    if not given.strip() or "/" in given or given.strip() != given:
        report.wrong(path, "it is the name of a cloud or provider, such as 'aws' or 'local'", value)
        return None
    return given


def infra(report: Report, path: Path, value: Any) -> str | None:
    """A place: cloud, region, zone, with slashes between; ``*`` stands for any."""
    given = values.text(report, path, value)
    if given is None:
        return None
    first, *rest = [part.strip() for part in given.strip().split("/")]
    if not first:
        report.wrong(path, _INFRA, value)
        return None
    name = None if first == "*" else cloud(report, path, first)
    if name is None and first != "*":
        return None
    if name in known.WITHOUT_REGIONS:
        rest = ["/".join(rest)] if rest else []
    if len(rest) > 2 or any(not part or len(part) > PLACE_CHARS_MAX for part in rest):
        report.wrong(path, _INFRA, value)
        return None
    place = joined(name, *(None if part == "*" else part for part in rest))
    return None if place == "*" else place


def joined(name: str | None, region: str | None = None, zone: str | None = None) -> str:
    """A place as ``infra`` writes it."""
    parts = [known.SHORT.get(name or "*", name or "*"), region or "*", zone or "*"]
    while len(parts) > 1 and parts[-1] == "*":
        parts.pop()
    return "/".join(parts)


def parted(place: str | None) -> tuple[str | None, str | None, str | None]:
    """Cloud, region and zone of an ``infra``; None: any."""
    if not place:
        return None, None, None
    first, *rest = place.split("/")
    name = known.CLOUDS.get(first, first)
    if name in known.WITHOUT_REGIONS:
        rest = ["/".join(rest)] if rest else []
    parts = [None if part == "*" else part for part in (name, *rest, "*", "*")]
    return parts[0], parts[1], parts[2]


# ── accelerators ────────────────────────────────────────────────────────────────────────────────


def accelerators(report: Report, path: Path, value: Any) -> Any:
    """Accelerators with their counts: one as a mapping; several that would do as a list of such, when one
    is preferred, or as a mapping of several, when none is."""
    if isinstance(value, str):
        return _one(report, path, value, None)
    if isinstance(value, Mapping):
        given = cast("Mapping[Any, Any]", value)
        found: dict[str, int] = {}
        for name, count in given.items():
            found.update(_one(report, (*path, str(name)), str(name), count) or {})
        if not given:
            report.wrong(path, "it is an accelerator, such as 'A100:8'", value)
        return found or None
    if isinstance(value, set | frozenset):
        names = sorted(str(name) for name in cast("set[Any]", value))
        alike: dict[str, Any] = dict.fromkeys(names)
        return accelerators(report, path, alike) if names else None
    if not isinstance(value, list | tuple) or not value:
        report.wrong(path, "it is an accelerator, such as 'A100:8', or a list of such", value)
        return None
    several: list[dict[str, int]] = []
    for index, item in enumerate(cast("list[Any]", value)):
        if isinstance(item, list | tuple):
            report.wrong((*path, index), "it is an accelerator, such as 'A100:8'", item)
            continue
        one = cast("dict[str, int] | None", accelerators(report, (*path, index), item))
        several += [{name: count} for name, count in (one or {}).items()]
    return several or None


def _one(report: Report, path: Path, text: str, count: Any) -> dict[str, int] | None:
    match = _ACCELERATOR.fullmatch(text.strip())
    if match is None or (match["count"] is not None and count is not None):
        report.wrong(path, "it is a name and how many, such as 'A100:8'", text)
        return None
    number = _count(report, path, match["count"] if count is None else count)
    name = canonical(match["name"])
    if _SIZE_ALONE.fullmatch(name):
        report.wrong(path, "accelerators are asked for by name, such as 'A100:8'", text)
        return None
    near = None if name.lower().startswith(known.FAMILIES) else slip_of(name, known.ACCELERATORS)
    if near is not None:
        report.wrong(path, f"there is no such accelerator; did you mean {near!r}?", text)
        return None
    return None if number is None else {name: number}


def _count(report: Report, path: Path, given: Any) -> int | None:
    if given is None:
        return 1
    plain = str(given).strip()
    count = float(plain) if re.fullmatch(r"\d+(\.\d+)?", plain) else 0.0
    if isinstance(given, bool) or not 1 <= count <= COUNT_MAX or count != int(count):
        report.wrong(path, f"how many accelerators is a whole number from 1 to {COUNT_MAX}", given)
        return None
    return int(count)


def canonical(name: str) -> str:
    """An accelerator's name as it is spelled where it is sold, when that is known."""
    folded = name.strip().casefold()
    return next((one for one in known.ACCELERATORS if one.casefold() == folded), name.strip())


# ── the others ──────────────────────────────────────────────────────────────────────────────────

_AUTOSTOP: dict[str, Check] = {
    "idle_minutes": values.minutes,
    "down": values.flag,
    "wait_for": values.choice("jobs", "jobs_and_ssh", "none"),
    "hook": values.text,
    "hook_timeout": values.whole(0, 86_400),
}


def autostop(report: Report, path: Path, value: Any) -> dict[str, Any] | bool | None:
    """When an idle cluster stops: true, false, minutes, a time, or a mapping."""
    if value is False:
        return False
    if value is True:
        return {"idle_minutes": AUTOSTOP_MINUTES}
    if not isinstance(value, Mapping):
        time = values.minutes(report, path, value)
        if time is None:
            return None
        return False if time < 0 else {"idle_minutes": time}
    found = values.fields(report, path, value, _AUTOSTOP)
    if found is None:
        return None
    if found.get("idle_minutes", 0) < 0:
        return False
    return {"idle_minutes": AUTOSTOP_MINUTES, **found}


_RECOVERY: dict[str, Check] = {
    "strategy": values.text,
    "max_restarts_on_errors": values.whole(0, 1_000_000),
    "recover_on_exit_codes": values.anything,
}


def job_recovery(report: Report, path: Path, value: Any) -> Any:
    """How a job is started again: the name of a way, or a mapping."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return values.fields(report, path, value, _RECOVERY)
    report.wrong(path, f"it is a text, or a mapping with the fields {', '.join(_RECOVERY)}", value)
    return None


def image_id(report: Report, path: Path, value: Any) -> Any:
    """An image, or one for each region."""
    if not isinstance(value, Mapping):
        return values.text(report, path, value)
    return values.texts(report, path, value)


def cost(report: Report, path: Path, value: Any) -> float | None:
    """USD per hour; ``$`` may stand before it."""
    given = value.strip().removeprefix("$") if isinstance(value, str) else value
    return values.number(0, 1_000_000, "USD per hour,")(report, path, given)


def listed(report: Report, path: Path, value: Any) -> list[Any] | None:
    """A list of whatever."""
    if isinstance(value, list | tuple):
        return list(cast("list[Any]", value))
    report.wrong(path, "it is a list", value)
    return None


FIELDS: dict[str, Check] = {
    "cloud": cloud,
    "instance_type": values.text,
    "cpus": values.amount(4096, False, "4, or '4+' for at least 4"),
    "memory": values.amount(65_536, True, "16, or '16GB+' for at least 16 GB"),
    "accelerators": accelerators,
    "accelerator_args": values.mapping,
    "infra": infra,
    "use_spot": values.flag,
    "job_recovery": job_recovery,
    "region": values.text,
    "zone": values.text,
    "image_id": image_id,
    "disk_size": values.size_gb(1_000_000),
    "disk_tier": values.choice("low", "medium", "high", "ultra", "best"),
    "network_tier": values.choice("standard", "best"),
    "local_disk": values.text,
    "max_hourly_cost": cost,
    "ports": values.ports,
    "labels": values.labels,
    "autostop": autostop,
    "hooks": values.anything,
    "priority": values.whole(-1000, 1000),
    "priority_class": values.text,
    "volumes": listed,
}
"""What one kind of machine may say; the order is that of the constructor of Resources."""

_FOR_ALL = ("any_of", "ordered")


def resources(report: Report, path: Path, value: Any) -> dict[str, Any] | None:
    """A mapping of these fields; ``any_of`` and ``ordered`` are lists of such, which lean on the rest."""
    found = values.fields(report, path, value, {**FIELDS, "any_of": _several, "ordered": _several})
    if found is None:
        return None
    if all(name in found for name in _FOR_ALL):
        report.wrong((*path, "ordered"), "there is any_of as well; one of both says what would do")
    for name in _FOR_ALL:
        for index, one in enumerate(found.get(name, ())):
            _settle(report, (*path, name, index), one)
    return _settle(report, path, found)


def _several(report: Report, path: Path, value: Any) -> list[dict[str, Any]] | None:
    if not isinstance(value, list | tuple) or not 0 < len(cast("list[Any]", value)) <= ALTERNATIVES_MAX:
        report.wrong(path, f"it is a list of 1 to {ALTERNATIVES_MAX} mappings, each of which would do", value)
        return None
    given = [
        values.fields(report, (*path, index), item, FIELDS)
        for index, item in enumerate(cast("list[Any]", value))
    ]
    return [one for one in given if one is not None]


def _settle(report: Report, path: Path, found: dict[str, Any]) -> dict[str, Any]:
    """One place from ``infra`` or from ``cloud``, ``region`` and ``zone``."""
    apart = {name: found.pop(name) for name in ("cloud", "region", "zone") if name in found}
    if not apart:
        return found
    told = parted(found.get("infra"))
    for name, before in zip(("cloud", "region", "zone"), told, strict=True):
        if before is not None and apart.get(name, before) != before:
            said = f"infra says {before!r}; leave one of both out"
            report.wrong((*path, name), said, apart[name])
            return found
    merged = [apart.get(name) or old for name, old in zip(("cloud", "region", "zone"), told, strict=True)]
    if any(part is not None and len(part) > PLACE_CHARS_MAX for part in merged):
        report.wrong(path, f"a region has {PLACE_CHARS_MAX} characters at most")
        return found
    found["infra"] = joined(*merged)
    return found


def leaning(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """An alternative with what all of them have in common; its own fields win."""
    merged = {**base, **own}
    if "labels" in base and "labels" in own:
        merged["labels"] = {**base["labels"], **own["labels"]}
    if "infra" in base and "infra" in own:
        common, said = parted(base["infra"]), parted(own["infra"])
        if said[0] is None:
            merged["infra"] = joined(*(one or other for one, other in zip(said, common, strict=True)))
    return merged
