"""The short forms in which people write a compute, and the tables of ``sky.toml`` that hold such computes.

Decides: what ``nodes = "1:4"``, ``provider = "local"`` and ``ttl = "10m"`` stand for, and where the file is
looked for (the current folder, then its parents).
Never: judges what the daemon judges.
Follows: the commands and ``sky.Compute("dev")`` read one file in one way.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, cast

import msgspec

from sky.client.errors import InvalidRequest, SkyError
from sky.client.resources import HERE, Image, Local, Nodes, Plugin, Provider, Spec
from sky.wire import v1

FILE_NAME = "sky.toml"
PARENTS_MAX = 64
FILE_BYTES_MAX = 1024 * 1024
MACHINE_FIELDS = frozenset(v1.Spec.__struct_fields__) - {"provider"}
IMAGE_SHORTCUTS = frozenset({"python", "pip", "pip_indexes", "apt", "env", "includes", "excludes", "base"})
SHORT_FIELDS = MACHINE_FIELDS | IMAGE_SHORTCUTS | {"provider"}
DURATION = re.compile(r"(\d+)\s*([smhd]?)")
UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
DEFAULT_PROVIDER = "local"


class Malformed(SkyError):
    """A short form that stands for nothing; ``hint`` shows one that does."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.hint)


# ── the file ────────────────────────────────────────────────────────────────────────────────────


def find(folder: Path | None = None) -> Path | None:
    """The nearest ``sky.toml``, from this folder upwards."""
    here = (folder or Path.cwd()).absolute()
    for place in (here, *here.parents)[:PARENTS_MAX]:
        if (place / FILE_NAME).is_file():
            return place / FILE_NAME
    return None


def parameters(name: str, folder: Path | None = None) -> dict[str, Any] | None:
    """What ``sky.Compute`` takes, as the table ``[compute.NAME]`` of the nearest file says it; None without
    such a table. Raises InvalidRequest naming file and field when there is a mistake in it."""
    path = find(folder)
    table = _table(path, name) if path is not None else None
    if path is None or table is None:
        return None
    try:
        full = expand(table)
        spec = msgspec.convert(full, v1.ComputeSpec)
    except (Malformed, msgspec.ValidationError) as wrong:
        hint = f"{wrong.hint}; " if isinstance(wrong, Malformed) else ""
        raise _wrong(
            path, f"[compute.{name}]: {wrong} ({hint}`sky config validate` checks the file)"
        ) from wrong
    return _as_parameters(spec, path.parent, frozenset(full))


def _table(path: Path, name: str) -> dict[str, Any] | None:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise _wrong(path, f"is larger than {FILE_BYTES_MAX} bytes")
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("compute")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as unread:
        raise _wrong(path, f"cannot be read: {unread}") from unread
    table: object = cast("dict[str, Any]", tables).get(name) if isinstance(tables, dict) else None
    return cast("dict[str, Any]", table) if isinstance(table, dict) else None


def _wrong(path: Path, said: str) -> InvalidRequest:
    return InvalidRequest(f"{path}: {said}", "invalid_request", 400, details={"file": str(path)})


def _as_parameters(spec: v1.ComputeSpec, folder: Path, said: frozenset[str]) -> dict[str, Any]:
    image = spec.image
    given: dict[str, Any] = {
        "provider": [_spec_of(one) for one in spec.specs],
        "nodes": _nodes_of(spec.nodes),
        "image": Image(
            python=image.python,
            pip=image.pip,
            pip_indexes=image.pip_indexes,
            apt=image.apt,
            env=image.env,
            # Relative to the file, wherever below it one is. A slash at the end means what is inside.
            includes=tuple(f"{folder / one}{'/' if one.endswith('/') else ''}" for one in image.includes),
            excludes=image.excludes,
            base=image.base,
            shell_vars=image.shell_vars,
            metrics=image.metrics,
            bootstrap_timeout=image.bootstrap_timeout,
        ),
        "executor": spec.worker.executor,
        "concurrency": spec.worker.concurrency,
        "plugins": tuple(Plugin(one.kind, one.params) for one in spec.plugins),
    }
    for name in ("selection", "allocation", "options", "retry", "volumes", "delete_on_exit", "ttl"):
        if name in said:
            given[name] = getattr(spec, name)
    return given


def _spec_of(spec: v1.Spec) -> Spec:
    kind = spec.provider.kind
    accelerator = spec.accelerator
    if accelerator is not None and spec.accelerator_count != 1:
        accelerator = f"{accelerator}:{spec.accelerator_count}"
    return Spec(
        provider=Local() if kind == DEFAULT_PROVIDER else Provider(kind),
        accelerator=accelerator,
        cpus=spec.cpus,
        memory_gb=spec.memory_gb,
        disk_gb=spec.disk_gb,
        region=spec.region,
        architecture=spec.architecture,
        max_hourly_cost=spec.max_hourly_cost,
    )


def _nodes_of(nodes: v1.NodeBounds) -> Nodes:
    return nodes.desired if nodes.max is None else (nodes.min or 0, nodes.max)


# ── short forms to the interface's own ──────────────────────────────────────────────────────────


def seconds(text: str | int, what: str) -> int:
    """A time as whole seconds: ``600``, ``10m``, ``2h``, ``1d``."""
    found = DURATION.fullmatch(str(text).strip())
    if found is None:
        raise Malformed(f"{what} {text!r} is not a time", "write seconds, or 30s, 10m, 2h, 1d")
    return int(found[1]) * UNITS_S[found[2]]


def bounds(value: object, what: str = "--nodes") -> dict[str, int]:
    """How many nodes: ``2``, ``"1:4"``, ``[1, 4]``, or a table with desired, min, max."""
    hint = "write a number such as 2, or a range such as 1:4"
    match value:
        case bool():
            pass
        case int():
            return {"desired": value}
        case str() if re.fullmatch(r"-?\d+", value):
            return {"desired": int(value)}
        case str() if re.fullmatch(r"\d+:\d+", value):
            low, _, high = value.partition(":")
            return _range(int(low), int(high), what, hint)
        case [int(low), int(high)]:
            return _range(low, high, what, hint)
        case dict():
            return cast("dict[str, int]", value)
        case _:
            pass
    raise Malformed(f"{what} {value!r} is not a number of nodes", hint)


def _range(low: int, high: int, what: str, hint: str) -> dict[str, int]:
    if low > high:
        raise Malformed(f"{what} {low}:{high} begins above its end", hint)
    return {"desired": low, "min": low, "max": high}


def expand(short: dict[str, Any]) -> dict[str, Any]:
    """The interface's own form of a definition that may use short forms."""
    # A name nobody knows stays, for the check to refuse it.
    full = {name: value for name, value in short.items() if name not in SHORT_FIELDS}
    machine = {name: short[name] for name in MACHINE_FIELDS if name in short}
    providers = short.get("provider", [])
    if "specs" not in short or providers or machine:
        several = isinstance(providers, list | tuple)
        kinds = list(cast("list[Any]", providers)) if several else [providers]
        full["specs"] = [
            *full.get("specs", ()),
            *({"provider": kind, **machine} for kind in (kinds or [DEFAULT_PROVIDER])),
        ]
    if isinstance(full["specs"], list):
        full["specs"] = [_machine(spec) for spec in cast("list[Any]", full["specs"])]
    full["nodes"] = bounds(short.get("nodes", 1), "nodes")
    image = {name: short[name] for name in IMAGE_SHORTCUTS if name in short}
    if isinstance(full.get("image", {}), dict):
        full["image"] = {"python": HERE, **full.get("image", {}), **image}
        indexes = full["image"].get("pip_indexes")
        if isinstance(indexes, list | tuple):
            several = cast("list[Any]", indexes)
            full["image"]["pip_indexes"] = [{"url": i} if isinstance(i, str) else i for i in several]
    if isinstance(full.get("worker", {}), dict):
        full["worker"] = {"executor": "process", **full.get("worker", {})}
    if isinstance(full.get("ttl"), str):
        full["ttl"] = seconds(full["ttl"], "ttl")
    if isinstance(full.get("plugins"), list):
        full["plugins"] = [{"kind": p} if isinstance(p, str) else p for p in full["plugins"]]
    return full


def _machine(spec: object) -> object:
    if not isinstance(spec, dict):
        return spec
    machine = dict(cast("dict[str, Any]", spec))
    if isinstance(machine.get("provider"), str):
        machine["provider"] = {"kind": machine["provider"]}
    accelerator = machine.get("accelerator")
    if isinstance(accelerator, str) and ":" in accelerator:
        name, _, count = accelerator.rpartition(":")
        if not count.isdigit():
            raise Malformed(
                f"accelerator {accelerator!r} has no count behind its colon", "write A100 or A100:4"
            )
        machine |= {"accelerator": name, "accelerator_count": int(count)}
    return machine
