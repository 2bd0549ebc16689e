"""The machines that a task names, as the engine is asked for them.

Decides: which of them this server could have at all, and what of each goes beyond a spec of the engine.
Never: looks at a price, or passes over what cannot be had without a reason.
Follows: what is asked of a machine is kept to the letter, or refused by its name before anything is bought.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from sky.domain import price_list
from sky.domain.errors import SkyError
from sky.domain.provider import Rules
from sky.domain.request_errors import RequestFailure
from sky.kit.nearby import hint
from sky.store.rows import providers
from sky.store.sql import Row
from sky.store.tx import Tx
from sky.verbs.spec_rules import ensure_default
from sky.wire import requests as wire
from sky.wire import v1

SPECS_MAX = 32
HERE = "local"
PORT_MAX = 65_535


class Turned(Struct, frozen=True):
    """Something that was asked for and is not to be had, and why."""

    what: str
    reason: str
    kind: str


class Asked(Struct, frozen=True):
    """What the engine is asked for: alternatives, with what each asks beyond a spec, and one image."""

    specs: tuple[v1.Spec, ...]
    narrow: tuple[dict[str, Any], ...]
    ordered: bool = False
    image: str | None = None
    turned: tuple[Turned, ...] = ()

    def pinned(self, picks: Sequence[tuple[int, Mapping[str, Any]]]) -> Asked:
        """Only these, in this order: each is the place of an alternative, and which offer of it is meant."""
        specs: list[v1.Spec] = []
        narrow: list[dict[str, Any]] = []
        for place, offer in picks[:SPECS_MAX]:
            spec = msgspec.structs.replace(
                self.specs[place],
                provider=v1.ProviderRef(kind=offer["provider_id"]),
                region=offer["region"],
            )
            specs.append(spec)
            more = {"instance_type": offer["instance_type"], "market": offer["market"], "place": len(narrow)}
            narrow.append({**self.narrow[place], **more})
        return replace(self, specs=tuple(specs), narrow=tuple(narrow), ordered=True)


def asked(tx: Tx, task: wire.TaskConfig, rules: Rules) -> Asked:
    """What a task's machines mean here. Raises RequestFailure where none of them can be had at all."""
    specs: list[v1.Spec] = []
    narrow: list[dict[str, Any]] = []
    turned: list[Turned] = []
    image = task.machines[0].image
    for place, told in enumerate(task.machines):
        machine = _placed(tx, told, rules)
        for infra in _infras(tx, machine):
            wrong = _wrong(tx, machine, infra, image, rules)
            if wrong is not None:
                turned.append(wrong)
                continue
            specs.append(_spec(machine, infra))
            narrow.append(_beyond(machine, place))
    if not specs:
        what = "; ".join(dict.fromkeys(f"{one.what}: {one.reason}" for one in turned))
        kinds = {one.kind for one in turned}
        raise RequestFailure(kinds.pop() if len(kinds) == 1 else "ResourcesUnavailableError", what)
    if len(specs) > SPECS_MAX:
        msg = f"the task's machines are {len(specs)} alternatives here, at most {SPECS_MAX} are looked at"
        raise RequestFailure("InvalidTaskError", f"{msg}; name fewer, or their infra")
    return Asked(tuple(specs), tuple(narrow), task.ordered, image, tuple(turned))


def kept(cluster: Row) -> Asked:
    """What a cluster was made with."""
    resources: Mapping[str, Any] = cluster["resources"]
    specs = tuple(msgspec.convert(spec, v1.Spec) for spec in cluster["specs"])
    narrow: list[dict[str, Any]] = resources.get("narrow") or []
    return Asked(specs, tuple(narrow), bool(resources.get("ordered")), resources.get("image"))


def _placed(tx: Tx, machine: wire.Machine, rules: Rules) -> wire.Machine:
    """A machine whose infra is KIND/NAME, or KIND/NAME/REGION, as that provider's; others as they are."""
    kind, name = machine.infra, machine.region
    if kind is None or name is None or kind not in rules.kinds:
        return machine
    found = providers.called(tx.connection, kind, name)
    if found is None:
        return machine
    infra = found if name in rules.kinds else name  # a name that is also a kind's would mean the kind
    return msgspec.structs.replace(machine, infra=infra, region=machine.zone, zone=None)


def _infras(tx: Tx, machine: wire.Machine) -> Sequence[str]:
    """The infra that a machine names; without one, whatever this server has."""
    if machine.infra is not None:
        return (machine.infra,)
    return providers.kinds(tx.connection) or (HERE,)


def _wrong(tx: Tx, machine: wire.Machine, infra: str, image: str | None, rules: Rules) -> Turned | None:
    """Why a machine cannot be had from an infra, whatever is on sale there; None: it may be."""
    kind = infra if infra in rules.kinds else None
    if kind is None:
        row = providers.find(tx.connection, infra)
        kind = None if row is None else row["kind"]
    if kind is None or kind not in rules.kinds:
        return Turned(f"infra {infra!r}", why_unknown(tx, infra, rules), "ResourcesUnavailableError")
    if kind == infra:
        try:
            ensure_default(tx, kind, rules)
        except SkyError as refused:
            return Turned(f"infra {infra!r}", refused.message, "ResourcesUnavailableError")
    can = rules.kinds[kind].abilities
    for port in machine.ports:
        first, _, last = port.partition("-")
        if not 1 <= int(first) <= int(last or first) <= PORT_MAX:
            reason = f"a port is 1 to {PORT_MAX}, or a range of those such as 8000-8010"
            return Turned(f"ports: {port!r}", reason, "InvalidTaskError")
    beyond = (
        (machine.zone, "zone", "zones"),
        (machine.disk_tier if machine.disk_tier != "best" else None, "disk_tier", "tiers of disks"),
        (", ".join(machine.labels) or None, "labels", "labels"),
        (None if can.base_image else machine.image, "image", "images"),
        (None if can.open_ports else ", ".join(machine.ports) or None, "ports", "ports that are opened"),
    )
    missing = [(f"{field}: {value!r}", f"no {what}") for value, field, what in beyond if value is not None]
    if missing:
        said, lacks = ", ".join(one for one, _ in missing), " and ".join(one for _, one in missing)
        out = "it" if len(missing) == 1 else "them"
        reason = f"machines of {infra!r} have {lacks}; leave {out} out, or name another infra"
        return Turned(said, reason, "NotSupportedError")
    if machine.image != image:
        reason = f"all machines of a task have one image, and the first has {image!r}"
        return Turned(f"image: {machine.image!r}", reason, "InvalidTaskError")
    if machine.cpus_exact and machine.cpus is not None and machine.cpus != int(machine.cpus):
        return Turned(f"cpus: {machine.cpus:g}", "machines have whole cores", "ResourcesUnavailableError")
    return None


def why_unknown(tx: Tx, infra: str, rules: Rules) -> str:
    """Why an infra cannot be used that no provider of this server is."""
    here = {*rules.kinds, *providers.names(tx.connection)}
    if infra in price_list.clouds():
        return (
            f"it is not enabled on this server, which has {', '.join(sorted(here))}; `sky check` tells more"
        )
    return f"there is none of that name; {hint(infra, here | price_list.clouds())}"


def _spec(machine: wire.Machine, infra: str) -> v1.Spec:
    return v1.Spec(
        provider=v1.ProviderRef(kind=infra),
        accelerator=machine.accelerator,
        accelerator_count=machine.accelerator_count if machine.accelerator else 1,
        cpus=None if machine.cpus is None else math.ceil(machine.cpus),
        memory_gb=None if machine.memory_gb is None else math.ceil(machine.memory_gb),
        disk_gb=machine.disk_gb,
        region=machine.region,
        max_hourly_cost=machine.max_hourly_cost,
    )


def _beyond(machine: wire.Machine, place: int) -> dict[str, Any]:
    """What a machine asks beyond a spec, by the names of ``domain.compute.Alternative``."""
    more: dict[str, Any] = {
        "place": place,
        "market": "spot" if machine.use_spot else "on_demand",
        "instance_type": machine.instance_type,
        "cpus_exact": machine.cpus_exact and machine.cpus is not None,
        "memory_exact": machine.memory_exact and machine.memory_gb is not None,
    }
    return {name: value for name, value in more.items() if value is not None and value is not False}
