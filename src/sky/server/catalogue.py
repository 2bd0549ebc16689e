"""Reads the file of what is sold.

Decides: the form of that file, and what is wrong with one. Never: sells half of one: it is whole or refused.
Follows: whoever mistypes something is told everything that is wrong at once: file, line, field, value, and
what would be right. Run as a program, it checks a file: ``python -m sky.server.catalogue FILE``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_args

import msgspec
from msgspec import Meta

from sky.domain.catalogue import Catalogue, JobTemplate, Mount, Place, Sku
from sky.domain.money import parse_usd
from sky.kit import marked_yaml
from sky.kit.marked_yaml import Marked, YamlError
from sky.kit.nearby import hint
from sky.providers.registry import standard
from sky.wire.jobs import RUNTIME_SECONDS_MAX, Overridable, Tier
from sky.wire.steps import HOST_IMAGE

SHIPPED = Path(__file__).with_name("catalogue.yaml")
SLUG = r"^[a-z0-9][a-z0-9._-]{0,62}$"
ERRORS_SHOWN_MAX = 20
VALUE_CHARS_MAX = 60
EXIT_WRONG = 2
_PINNED = re.compile(r"\S+@sha256:[0-9a-f]{64}")
_AT = re.compile(r"^(?P<said>.*?)(?: - at `(?:key in )?\$(?P<path>[^`]*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\[(\d+)\]|\[\.\.\.\]")
_SLUG_SAID = f"'{SLUG}'"

Slug = Annotated[str, Meta(pattern=SLUG)]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
Step = str | int
Shape = TypeVar("Shape", bound=msgspec.Struct)


class CatalogueError(Exception):
    """The file cannot be used; the message says where and why."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the file: a field that is not known is refused."""


class PlacePart(_Part, frozen=True):
    """A cloud where a SKU can run."""

    cloud: Slug
    instance_type: str | None = None
    context: str | None = None
    regions: tuple[str, ...] = ()


class SkuPart(_Part, frozen=True):
    """A kind of machine. A price is a decimal string in USD per hour."""

    id: Slug
    price_usd_per_hour: str
    tier: Tier | Literal[""]
    vcpus: Count
    memory_gb: Count
    providers: tuple[PlacePart, ...] = ()
    gpu: str = ""
    accelerator: str = ""
    gpu_count: Count = 0
    gpu_memory_gb: Count = 0
    interruptible: bool = False
    interconnect: Literal["pcie", "nvlink"] | None = None
    network: Literal["ethernet", "infiniband"] | None = None
    available: bool = True


class MountPart(_Part, frozen=True):
    """A folder of a template."""

    mount: Annotated[str, Meta(pattern=r"^/[^:,\s]{1,500}$")]
    description: str


class TemplatePart(_Part, frozen=True):
    """A job that is written down already."""

    id: Slug
    title: str
    description: str
    sku: Slug
    max_runtime_seconds: Annotated[int, Meta(ge=1, le=RUNTIME_SECONDS_MAX)]
    image: str = ""
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}
    inputs: tuple[MountPart, ...] = ()
    outputs: tuple[MountPart, ...] = ()
    overridable: tuple[Overridable, ...] = ()
    unavailable_reason: str | None = None
    image_licence: str | None = None
    image_source: str | None = None


FIELDS = ("skus", "templates", "note")
PARTS = {"providers": PlacePart, "inputs": MountPart, "outputs": MountPart}
"""Fields that are lists of parts."""


@dataclass(frozen=True, slots=True)
class Listed:
    """What a file lists, and what in it may be meant otherwise."""

    catalogue: Catalogue
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wrong:
    """One thing that is wrong, at a place of the file."""

    path: tuple[Step, ...]
    message: str
    shown: bool = True


def read(path: Path) -> Catalogue:
    """The catalogue in a file. Raises CatalogueError."""
    return listed(path).catalogue


def marked_file(path: Path) -> Marked:
    """A YAML file with its places. Raises CatalogueError."""
    try:
        with open(path, "rb") as file:
            return marked_yaml.parse(file.read(marked_yaml.BYTES_MAX + 1))
    except OSError as error:
        raise CatalogueError(f"{path} cannot be read: {error.strerror}") from error
    except YamlError as error:
        raise CatalogueError(f"{path}:{error.line}: {error}" if error.line else f"{path}: {error}") from error


def listed(path: Path, kinds: Collection[str] | None = None) -> Listed:
    """The catalogue in a file; clouds that are none of ``kinds`` are warned of. Raises CatalogueError."""
    marked = marked_file(path)
    skus, templates, note, wrong = _parts(marked)
    wrong += [*_twice("skus", skus), *_twice("templates", templates)]
    for number, sku in skus.items():
        wrong += _wrong_sku(("skus", number), sku)
    known = _ids(marked, "skus")
    for number, template in templates.items():
        wrong += wrong_template(("templates", number), template, known)
    if wrong:
        raise CatalogueError("\n".join(told(path, marked, wrong)))
    catalogue = Catalogue(
        {part.id: _sku(part) for part in skus.values()},
        {part.id: template_of(part) for part in templates.values()},
        note,
    )
    return Listed(catalogue, tuple(_warnings(path, marked, skus, kinds)))


# ── the form ────────────────────────────────────────────────────────────────────────────────────


def _parts(marked: Marked) -> tuple[dict[int, SkuPart], dict[int, TemplatePart], str, list[Wrong]]:
    """What has the right form, by its number, and all that has not."""
    value: object = marked.value
    if not isinstance(value, dict):
        return {}, {}, "", [Wrong((), "the file is a mapping with the fields skus, templates and note")]
    whole = cast("dict[str, Any]", value)
    wrong = [
        Wrong((name,), f"there is no such field; {hint(name, FIELDS)}", shown=False)
        for name in whole
        if name not in FIELDS
    ]
    note = whole.get("note") or ""
    if not isinstance(note, str):
        wrong.append(Wrong(("note",), "it is a text"))
        note = ""
    if "skus" not in whole:
        wrong.append(Wrong((), "skus is missing: the list of what is sold"))
    skus = _list(whole.get("skus"), SkuPart, "skus", wrong)
    templates = _list(whole.get("templates"), TemplatePart, "templates", wrong)
    return skus, templates, note, wrong


def _list(items: Any, shape: type[Shape], name: str, wrong: list[Wrong]) -> dict[int, Shape]:
    if items is None:
        return {}
    if not isinstance(items, list):
        wrong.append(Wrong((name,), "it is a list"))
        return {}
    found: dict[int, Shape] = {}
    for number, item in enumerate(cast("list[Any]", items)):
        unfit = list(misfits(item, shape, (name, number)))
        wrong += unfit
        if not unfit:
            found[number] = msgspec.convert(item, shape)
    return found


def misfits(item: Any, shape: type[msgspec.Struct], around: tuple[Step, ...]) -> Iterator[Wrong]:
    """What of an entry has not the right form, field by field: msgspec alone stops at the first."""
    if not isinstance(item, dict):
        yield Wrong(around, "it is a mapping")
        return
    given = cast("dict[str, Any]", item)
    fields = {field.name: field for field in msgspec.structs.fields(shape)}
    meant = {name: hint(str(name), fields) for name in given if name not in fields}
    for name, near in meant.items():
        yield Wrong((*around, name), f"there is no such field; {near}", shown=False)
    for name, field in fields.items():
        if name not in given:
            if field.required and not any(repr(name) in near for near in meant.values()):
                yield Wrong(around, f"{name} is missing", shown=False)
            continue
        part = PARTS.get(name)
        if part is not None and isinstance(given[name], list):
            for number, inner in enumerate(cast("list[Any]", given[name])):
                yield from misfits(inner, part, (*around, name, number))
            continue
        try:
            msgspec.convert(given[name], field.type)
        except msgspec.ValidationError as error:
            yield _misfit(str(error), (*around, name), field.type)


def _misfit(text: str, around: tuple[Step, ...], wanted: Any) -> Wrong:
    """What msgspec said of a field, with its place, and what the field was meant to be."""
    match = _AT.match(text)
    said, where = (match["said"], match["path"] or "") if match else (text, "")
    steps: list[Step] = [
        found[1] if found[1] is not None else int(found[2])
        for found in _STEP.finditer(where)
        if found[1] is not None or found[2] is not None
    ]
    if around[-1] == "price_usd_per_hour" and "got `" in said:
        said = 'it is a text in quotes, such as "1.30"'
    elif choices := [word for word in _choices(wanted) if word]:
        said = f"it is one of {', '.join(choices)}"
    elif _SLUG_SAID in said:
        said = "it begins with a small letter or digit; 63 of a-z 0-9 . _ - at most"
    return Wrong((*around, *steps), said[:1].lower() + said[1:])


def _choices(wanted: Any) -> Iterator[str]:
    """The words that a field may have, of a field that may have some words only."""
    for inner in get_args(wanted):
        if isinstance(inner, str):
            yield inner
        else:
            yield from _choices(inner)


# ── what it means ───────────────────────────────────────────────────────────────────────────────


def _ids(marked: Marked, name: str) -> set[str]:
    """The ids of a list, those of entries that are wrong otherwise too."""
    items: Any = marked.at((name,))
    entries = cast("list[Any]", items) if isinstance(items, list) else []
    found = (cast("dict[str, Any]", item).get("id") for item in entries if isinstance(item, dict))
    return {text for text in found if isinstance(text, str)}


def _twice(name: str, parts: dict[int, Any]) -> Iterator[Wrong]:
    seen: dict[str, int] = {}
    for number, part in parts.items():
        if part.id in seen:
            yield Wrong((name, number, "id"), f"another entry has this id: {name}[{seen[part.id]}]")
        seen.setdefault(part.id, number)


def _wrong_sku(at: tuple[Step, ...], part: SkuPart) -> Iterator[Wrong]:
    try:
        parse_usd(part.price_usd_per_hour)
    except ValueError as error:
        yield Wrong((*at, "price_usd_per_hour"), str(error), shown=False)
    seen: set[tuple[str, str]] = set()
    for number, place in enumerate(part.providers):
        for region in place.regions or ("",):
            if (place.cloud, region) in seen:
                yield Wrong((*at, "providers", number), f"{place.cloud} {region} is here twice", shown=False)
            seen.add((place.cloud, region))
    if not part.available:
        return
    if not part.tier:
        yield Wrong((*at, "tier"), "what is sold has a tier: hyperscaler, neocloud or marketplace")
    if not part.providers:
        yield Wrong((*at, "providers"), "what is sold has at least one provider; or set available: false")
    if part.gpu_count > 1 and part.interconnect is None:
        yield Wrong((*at, "interconnect"), "it is missing: pcie or nvlink, for there are several GPUs")
    if part.gpu_count and not part.accelerator:
        yield Wrong((*at, "accelerator"), "it is missing, such as A10G, for there are GPUs")


def wrong_template(at: tuple[Step, ...], part: TemplatePart, skus: Collection[str]) -> Iterator[Wrong]:
    """What is wrong with a template that has the right form."""
    if part.sku not in skus:
        yield Wrong((*at, "sku"), f"there is no such sku; {hint(part.sku, skus)}")
    mounts = [mount.mount for mount in (*part.inputs, *part.outputs)]
    if len(set(mounts)) < len(mounts):
        yield Wrong((*at, "inputs"), "a mount is named twice", shown=False)
    if part.image and part.image != HOST_IMAGE and not _PINNED.fullmatch(part.image):
        yield Wrong((*at, "image"), f"it is pinned as NAME@sha256:DIGEST, or is {HOST_IMAGE!r}")
    if part.unavailable_reason is not None:
        return
    if not part.image:
        yield Wrong((*at, "image"), "it is missing; or say unavailable_reason")
    if not part.command:
        yield Wrong((*at, "command"), "it is missing; or say unavailable_reason")


def _warnings(
    path: Path, marked: Marked, skus: dict[int, SkuPart], kinds: Collection[str] | None
) -> Iterator[str]:
    told: set[str] = set()
    for number, part in skus.items():
        for index, place in enumerate(part.providers):
            kind = place.context or place.cloud
            if kinds is not None and kind not in kinds and kind not in told:
                told.add(kind)
                line = marked.line(("skus", number, "providers", index))
                where = _where(("skus", number, "providers", index))
                yield f"{path}:{line}: {where}: {kind!r} is no kind of provider here; {hint(kind, kinds)}"


def told(path: Path, marked: Marked, wrong: Sequence[Wrong]) -> Iterator[str]:
    """Each thing on a line of its own, as compilers write them, in the order of the file."""
    in_order = sorted(wrong, key=lambda one: marked.line(one.path))
    for one in in_order[:ERRORS_SHOWN_MAX]:
        value = marked.at(one.path)
        shown = "" if not one.shown or not one.path or value is None else f"{repr(value)[:VALUE_CHARS_MAX]}: "
        where = _where(one.path)
        yield f"{path}:{marked.line(one.path)}: {where + ': ' if where else ''}{shown}{one.message}"
    if len(in_order) > ERRORS_SHOWN_MAX:
        yield f"{path}: {len(in_order) - ERRORS_SHOWN_MAX} more things are wrong"


def _where(path: tuple[Step, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def _sku(part: SkuPart) -> Sku:
    return Sku(
        id=part.id,
        gpu=part.gpu,
        accelerator=part.accelerator,
        gpu_count=part.gpu_count,
        gpu_memory_gb=part.gpu_memory_gb,
        vcpus=part.vcpus,
        memory_gb=part.memory_gb,
        price_micro=parse_usd(part.price_usd_per_hour),
        tier=part.tier,
        interruptible=part.interruptible,
        places=tuple(Place(p.cloud, p.instance_type, p.context, p.regions) for p in part.providers),
        available=part.available,
        interconnect=part.interconnect,
        network=part.network,
    )


def template_of(part: TemplatePart) -> JobTemplate:
    """A template as it is written."""
    return JobTemplate(
        id=part.id,
        title=part.title,
        description=part.description,
        image=part.image,
        command=part.command,
        env=part.env,
        sku=part.sku,
        max_runtime_seconds=part.max_runtime_seconds,
        inputs=tuple(Mount(m.mount, m.description) for m in part.inputs),
        outputs=tuple(Mount(m.mount, m.description) for m in part.outputs),
        overridable=part.overridable,
        reason=part.unavailable_reason,
        image_licence=part.image_licence,
        image_source=part.image_source,
    )


def main(arguments: Sequence[str]) -> int:
    """Check a file and say what is wrong with it; returns the exit code."""
    try:
        found = listed(Path(arguments[0]), {kind.kind for kind in standard().kinds()})
    except CatalogueError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_WRONG
    skus, templates = found.catalogue.skus, found.catalogue.templates
    sys.stderr.writelines(f"warning: {text}\n" for text in found.warnings)
    sys.stdout.write(f"{arguments[0]}: {len(skus)} skus, {len(templates)} templates\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
