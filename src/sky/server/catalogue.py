"""Reads the file of what is sold.

Decides: the form of that file, and what is wrong with one. Never: sells half of one: it is whole or refused.
Follows: whoever mistypes a field is told the file, the field, the value and what would be right.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import yaml
from msgspec import Meta

from sky.domain.catalogue import Catalogue, JobTemplate, Mount, Place, Sku
from sky.domain.money import parse_usd
from sky.wire.jobs import RUNTIME_SECONDS_MAX, Overridable, Tier

SHIPPED = Path(__file__).with_name("catalogue.yaml")
SLUG = r"^[a-z0-9][a-z0-9._-]{0,62}$"

Slug = Annotated[str, Meta(pattern=SLUG)]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]


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

    mount: str
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


class CatalogueFile(_Part, frozen=True):
    """The whole file."""

    skus: tuple[SkuPart, ...]
    templates: tuple[TemplatePart, ...] = ()
    note: str = ""


def read(path: Path) -> Catalogue:
    """The catalogue in a file. Raises CatalogueError."""
    try:
        text = path.read_text(encoding="utf-8")
        plain = yaml.safe_load(text)
        found = msgspec.convert(plain, CatalogueFile)
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogueError(f"{path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise CatalogueError(f"{path} is no YAML: {error}") from error
    except msgspec.ValidationError as error:
        raise CatalogueError(f"{path}: {error}") from error
    skus = {part.id: _sku(path, part) for part in found.skus}
    templates = {part.id: _template(part) for part in found.templates}
    if len(skus) < len(found.skus) or len(templates) < len(found.templates):
        raise CatalogueError(f"{path}: two entries have the same id")
    return Catalogue(skus, templates, found.note)


def _sku(path: Path, part: SkuPart) -> Sku:
    where = f"{path}: sku {part.id}"
    try:
        price = parse_usd(str(Decimal(part.price_usd_per_hour)))
    except (ValueError, ArithmeticError) as error:
        raise CatalogueError(f"{where}: price_usd_per_hour: {error}") from error
    if part.available and (not part.tier or not part.providers):
        raise CatalogueError(f"{where}: what is sold has a tier and at least one provider")
    if part.available and part.gpu_count > 1 and part.interconnect is None:
        raise CatalogueError(f"{where}: interconnect is missing: pcie or nvlink, for it has several GPUs")
    if part.gpu_count and not part.accelerator and part.available:
        raise CatalogueError(f"{where}: accelerator is missing, such as A10G, for it has GPUs")
    return Sku(
        id=part.id,
        gpu=part.gpu,
        accelerator=part.accelerator,
        gpu_count=part.gpu_count,
        gpu_memory_gb=part.gpu_memory_gb,
        vcpus=part.vcpus,
        memory_gb=part.memory_gb,
        price_micro=price,
        tier=part.tier,
        interruptible=part.interruptible,
        places=tuple(Place(p.cloud, p.instance_type, p.context, p.regions) for p in part.providers),
        available=part.available,
        interconnect=part.interconnect,
        network=part.network,
    )


def _template(part: TemplatePart) -> JobTemplate:
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
