"""What a compute should be, gathered from where a person may say it: options, a JSON file, ``sky.toml``.

Decides: the short forms people may write (``nodes = "1:4"``, ``provider = "local"``, ``ttl = "10m"``), how
options override a file, and how a refused value is named in the words it was given in.
Never: judges what the daemon judges (providers, offers, prices). Follows: whatever the source, the result is
one ``ComputeSpec`` that was checked against the interface's own rules before anything is sent.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
from cyclopts import Parameter

from sky.cli.app import Many
from sky.cli.errors import CliError, usage
from sky.cli.nouns import near
from sky.client import definition
from sky.client.definition import MACHINE_FIELDS
from sky.wire import v1

SPEC_FILE_BYTES_MAX = 4 * 1024 * 1024
COMPUTE_FIELDS = frozenset(v1.ComputeSpec.__struct_fields__)
VALUE_CHARS_MAX = 60


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options that describe a compute; None where nothing was said."""

    provider: Annotated[
        tuple[str, ...], Many, Parameter(help="Where machines come from; several are alternatives [local].")
    ] = ()
    nodes: Annotated[
        str | None,
        Parameter(
            metavar="N|MIN:MAX", allow_leading_hyphen=True, help="How many nodes; a range scales itself [1]."
        ),
    ] = None
    accelerator: Annotated[str | None, Parameter(metavar="NAME[:COUNT]", help="Such as A100:4.")] = None
    cpus: Annotated[int | None, Parameter(help="CPUs of each node, at least.")] = None
    memory_gb: Annotated[int | None, Parameter(help="Memory of each node, at least.")] = None
    disk_gb: Annotated[int | None, Parameter(help="Disk of each node, at least.")] = None
    region: Annotated[str | None, Parameter(help="Region to buy in.")] = None
    architecture: Annotated[v1.Architecture | None, Parameter(help="Kind of processor.")] = None
    max_hourly_cost: Annotated[
        float | None, Parameter(metavar="USD", help="Most that one node may cost per hour.")
    ] = None
    allocation: Annotated[v1.Allocation | None, Parameter(help="Which market to buy in.")] = None
    selection: Annotated[v1.Selection | None, Parameter(help="Which offer to take.")] = None
    python: Annotated[str | None, Parameter(metavar="X.Y", help="Python of the nodes.")] = None
    pip: Annotated[tuple[str, ...], Many, Parameter(metavar="PACKAGE", help="Package to install.")] = ()
    pip_indexes: Annotated[
        tuple[str, ...],
        Many,
        Parameter(name="--pip-index", metavar="URL", help="Package index to look in first."),
    ] = ()
    apt: Annotated[
        tuple[str, ...], Many, Parameter(metavar="PACKAGE", help="System package to install.")
    ] = ()
    includes: Annotated[
        tuple[str, ...],
        Many,
        Parameter(name="--include", metavar="PATH", help="File or folder that goes along."),
    ] = ()
    excludes: Annotated[
        tuple[str, ...],
        Many,
        Parameter(name="--exclude", metavar="PATTERN", help="What stays behind, as in a .gitignore."),
    ] = ()
    env: Annotated[tuple[str, ...], Many, Parameter(metavar="NAME=VALUE", help="Environment variable.")] = ()
    executor: Annotated[str | None, Parameter(metavar="KIND", help="thread, process or loky.")] = None
    concurrency: Annotated[int | None, Parameter(help="Calls at once on a node.")] = None
    plugin: Annotated[tuple[str, ...], Many, Parameter(metavar="KIND", help="Plugin to switch on.")] = ()
    ttl: Annotated[
        str | None, Parameter(metavar="TIME", help="How long machines go on unheard, then end: 600, 10m, 2h.")
    ] = None
    delete_on_exit: Annotated[
        bool, Parameter(negative=(), help="Delete it when nobody holds it any more.", show_default=False)
    ] = False


NOTHING_SAID = Options()


@contextlib.contextmanager
def _in_our_words() -> Generator[None]:
    """Within this, a short form that stands for nothing is a mistake on the command line."""
    try:
        yield
    except definition.Malformed as wrong:
        raise usage(str(wrong), wrong.hint) from wrong


def seconds(text: str | int, what: str) -> int:
    """A time as whole seconds: ``600``, ``10m``, ``2h``, ``1d``."""
    with _in_our_words():
        return definition.seconds(text, what)


def bounds(value: object, what: str = "--nodes") -> dict[str, int]:
    """How many nodes: ``2``, ``"1:4"``, ``[1, 4]``, or a table with desired, min, max."""
    with _in_our_words():
        return definition.bounds(value, what)


def expand(short: dict[str, Any]) -> dict[str, Any]:
    """The interface's own form of a definition that may use short forms."""
    with _in_our_words():
        return definition.expand(short)


def from_options(options: Options) -> dict[str, Any]:
    """The short form of what was said with options, and nothing that was not said."""
    said: dict[str, Any] = {}
    for one in fields(Options):
        value = getattr(options, one.name)
        if value is not None and value != () and value is not False:
            said[one.name] = value
    if "env" in said:
        said["env"] = dict(_assignment(text) for text in options.env)
    if "plugin" in said:
        said["plugins"] = said.pop("plugin")
    worker = {name: said.pop(name) for name in ("executor", "concurrency") if name in said}
    if worker:
        said["worker"] = worker
    return said


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise usage(f"--env {text!r} sets nothing", "write --env NAME=VALUE")
    return name, value


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """A definition with options put over it. A machine asked for replaces every alternative of the file."""
    result = {**base, **over}
    if over.keys() & (MACHINE_FIELDS | {"provider"}) and "specs" in base:
        if "provider" in over:
            del result["specs"]
        else:
            machine = {name: result.pop(name) for name in MACHINE_FIELDS if name in over}
            specs = cast("list[dict[str, Any]]", base["specs"])
            result["specs"] = [{**spec, **machine} for spec in specs]
    for table in ("image", "worker"):
        if isinstance(base.get(table), dict) and isinstance(over.get(table), dict):
            result[table] = {**base[table], **over[table]}
    return result


# ── checking ────────────────────────────────────────────────────────────────────────────────────


class Refused(CliError):
    """A field of a definition cannot be accepted. ``path`` leads to it, by names and list indices."""

    def __init__(self, path: tuple[str, ...], message: str, hint: str | None) -> None:
        where = ".".join(path)
        super().__init__("usage", f"{where}: {message}" if where else message, hint, 2)
        self.path = path


def spec_of(full: dict[str, Any]) -> v1.ComputeSpec:
    """The checked definition. Raises Refused naming the field, the rule, and the nearest right name."""
    try:
        spec = msgspec.convert(full, v1.ComputeSpec)
    except msgspec.ValidationError as error:
        raise refused(str(error), v1.ComputeSpec, full) from error
    nodes = spec.nodes
    if nodes.min is not None and nodes.max is not None and nodes.min > nodes.max:
        raise Refused(("nodes",), f"min {nodes.min} is above max {nodes.max}", "swap them")
    return spec


def node_bounds(text: str) -> v1.NodeBounds:
    """How many nodes an argument asks for, checked."""
    given = bounds(text, "NODES")
    try:
        return msgspec.convert(given, v1.NodeBounds)
    except msgspec.ValidationError as error:
        rule = str(refused(str(error), v1.NodeBounds, given)).partition(": ")[2]
        raise usage(f"NODES: {rule}", f"give 0 to {v1.NODES_MAX}") from error


def checked(full: dict[str, Any], said: dict[str, Any]) -> v1.ComputeSpec:
    """As ``spec_of``, with what was said by an option called by that option's name."""
    try:
        return spec_of(full)
    except Refused as error:
        name = next((part for part in reversed(error.path) if part in said), None)
        if name is None:
            raise
        message = str(error).removeprefix(".".join(error.path) + ": ")
        raise usage(f"--{name.replace('_', '-')}: {message}", error.hint) from error


def refused(text: str, kind: type[msgspec.Struct], value: object = None) -> Refused:
    """What a validation error about ``value`` says, as a path and a sentence."""
    rule, _, path_text = text.partition(" - at `")
    path = _path(path_text.rstrip("`"))
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", rule)
    if unknown is None:
        missing = re.fullmatch(r"Object missing required field `(.*)`", rule)
        given = "" if missing else f", got {_at(value, path)}"
        said = f"lacks {missing[1]}" if missing else _lower(rule).partition(", got")[0] + given
        return Refused(path, said, None)
    known = _fields_at(kind, path)
    meant = near(unknown[1], known)
    hint = f"did you mean `{meant[0]}`?" if meant else f"known: {', '.join(sorted(known))}"
    return Refused((*path, unknown[1]), "there is no such field", hint)


def _path(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[^.\[\]$]+", text))


def _at(value: Any, path: tuple[str, ...]) -> str:
    for part in path:
        if isinstance(value, dict):
            value = cast("dict[str, Any]", value).get(part)
        elif isinstance(value, list | tuple) and part.isdigit():
            value = cast("list[Any]", value)[int(part)]
    return repr(cast("object", value))[:VALUE_CHARS_MAX]


def _fields_at(kind: Any, path: tuple[str, ...]) -> list[str]:
    for part in path:
        known = {f.name: f.type for f in msgspec.structs.fields(kind)}
        inner = known.get(part)
        if inner is not None:
            kind = next(iter(_structs_in(inner)), kind)
    return [f.name for f in msgspec.structs.fields(kind)]


def _structs_in(kind: Any) -> list[Any]:
    """The structs that an annotation is made of."""
    if hasattr(kind, "__struct_fields__"):
        return [kind]
    return [found for part in getattr(kind, "__args__", ()) for found in _structs_in(part)]


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def read_spec(path: Path) -> tuple[dict[str, Any], str | None]:
    """The definition in a JSON file, and its name: the body of ``POST /v1/computes``, or its ``spec``."""
    try:
        if path.stat().st_size > SPEC_FILE_BYTES_MAX:
            raise usage(f"{path} is larger than {SPEC_FILE_BYTES_MAX} bytes", "a definition is a small file")
        content = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise usage(f"{path} cannot be read: {error.strerror}", "name a JSON file with --spec") from error
    except msgspec.DecodeError as error:
        raise usage(f"{path} is not JSON: {error}", None) from error
    if not isinstance(content, dict):
        raise usage(f"{path} is not a JSON object", "it should hold a spec: {{specs, nodes, image, …}}")
    whole = cast("dict[str, Any]", content)
    if "spec" not in whole:
        return whole, None
    strange = sorted(whole.keys() - {"spec", "name"})
    if strange:
        raise usage(f"{path}: {strange[0]}: there is no such field", "known: spec, name")
    if not isinstance(whole["spec"], dict):
        raise usage(f"{path}: spec is not an object", None)
    return cast("dict[str, Any]", whole["spec"]), whole.get("name")
