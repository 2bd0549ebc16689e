"""Which machines would do for a task, as a value.

Decides: how resources are copied, compared, written down, and which single alternatives they stand for.
Never: changes: whoever wants others makes a copy. Follows: the constructor takes what a task file takes, and
refuses the same with the same words, all at once.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from sky.client.outermost import outermost_class
from sky.client.tasks import machines, priced
from sky.client.tasks.clouds import Cloud
from sky.client.tasks.machines import FIELDS, parted
from sky.client.tasks.report import Report
from sky.kit.marked_yaml import Path

SHOWN = ("infra", "instance_type", "cpus", "memory", "accelerators", "use_spot", "disk_size", "ports")
_PLACE = ("cloud", "region", "zone")
_DISK_GB = 256
"""What disks have when nothing is said."""


@outermost_class
class Resources:
    """Machines that would do. Every parameter may be left out.

    ``infra``: ``"aws/us-east-1/us-east-1a"``, ``"k8s/CONTEXT"``, ``"ssh/POOL"``, ``"local"``; or ``cloud``,
    ``region`` and ``zone``. ``cpus`` and ``memory`` (GB): ``4`` is exactly that, ``"4+"`` at least.
    ``accelerators``: ``"A100:8"``, ``{"A100": 8}``, a list of alternatives in order of preference, or a set
    of equal ones. ``disk_size`` in GB, or ``"1TB"``; ``max_hourly_cost`` in USD; ``autostop``: ``True``,
    minutes, ``"10m"``, or a mapping. ``any_of`` and ``ordered`` are lists of mappings of the same fields.

    Raises InvalidTaskYAMLError with everything that is wrong.
    """

    __slots__ = ("_config",)
    _config: dict[str, Any]

    def __init__(
        self,
        cloud: Cloud | str | None = None,
        instance_type: str | None = None,
        cpus: float | str | None = None,
        memory: float | str | None = None,
        accelerators: Any = None,
        accelerator_args: Mapping[str, Any] | None = None,
        infra: str | None = None,
        use_spot: bool | None = None,
        job_recovery: Mapping[str, Any] | str | None = None,
        region: str | None = None,
        zone: str | None = None,
        image_id: Mapping[str, str] | str | None = None,
        disk_size: int | str | None = None,
        disk_tier: str | None = None,
        network_tier: str | None = None,
        local_disk: str | None = None,
        max_hourly_cost: float | str | None = None,
        ports: int | str | Sequence[int | str] | None = None,
        labels: Mapping[str, str] | None = None,
        autostop: bool | int | str | Mapping[str, Any] | None = None,
        hooks: Any = None,
        priority: int | None = None,
        priority_class: str | None = None,
        volumes: Sequence[Any] | None = None,
        *,
        any_of: Sequence[Mapping[str, Any]] | None = None,
        ordered: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        given = dict(locals())
        report = Report()
        names = (*FIELDS, "any_of", "ordered")
        config = machines.resources(report, ("resources",), {name: given[name] for name in names})
        report.finish()
        self._config = config or {}

    @classmethod
    def checked(cls, report: Report, path: Path, config: Any) -> Resources | None:
        """The resources of a mapping; what is wrong with it goes into the report."""
        found = machines.resources(report, path, config)
        return None if found is None else _of(found)

    @classmethod
    def from_yaml_config(cls, config: Mapping[str, Any] | None) -> set[Resources] | list[Resources]:
        """Every alternative of a mapping: as a list, when one is preferred. Raises InvalidTaskYAMLError."""
        report = Report()
        made = cls.checked(report, ("resources",), config or {})
        report.finish()
        single = [] if made is None else made.alternatives()
        return single if made is not None and made.is_ordered else set(single)

    def to_yaml_config(self) -> dict[str, Any]:
        """The fields that say something, as a task file has them."""
        return copy.deepcopy(self._config)

    def copy(self, **override: Any) -> Resources:
        """The same with other values; None takes one away. Raises InvalidTaskYAMLError."""
        config = self.to_yaml_config()
        if override.get("infra") is None and any(name in override for name in _PLACE):
            told = dict(zip(_PLACE, parted(config.pop("infra", None)), strict=True))
            config.update({name: value for name, value in told.items() if value is not None})
        if override.get("accelerators") is not None or "any_of" in override or "ordered" in override:
            config = {name: value for name, value in config.items() if name not in ("any_of", "ordered")}
        config.update(override)
        return type(self)(**config)

    def validate(self) -> None:
        """Check it again; whatever was made is right, so this raises nothing. Asks nobody."""
        report = Report()
        machines.resources(report, ("resources",), self._config)
        report.finish()

    def get_cost(self, seconds: float) -> float:
        """What one such machine costs for a time, in USD, as the server has its price now. Raises
        ResourcesUnavailableError when it has no such machine."""
        return priced.hourly_cost(self) * seconds / 3600

    # ── alternatives ────────────────────────────────────────────────────────────────────────────

    @property
    def is_ordered(self) -> bool:
        """Whether the first alternative that can be had is wanted, instead of the cheapest."""
        return "ordered" in self._config or isinstance(self._config.get("accelerators"), list)

    def alternatives(self) -> list[Resources]:
        """The single kinds of machines that these stand for, each with at most one kind of accelerator."""
        config = self.to_yaml_config()
        several: list[dict[str, Any]] = config.pop("ordered", None) or config.pop("any_of", None) or [{}]
        found: dict[Resources, None] = {}
        for one in several:
            for single in _singles(machines.leaning(config, one)):
                found[_of(single)] = None
        return list(found)

    # ── fields ──────────────────────────────────────────────────────────────────────────────────

    @property
    def infra(self) -> str | None:
        """The place, as ``cloud/region/zone``."""
        return self._config.get("infra")

    @property
    def cloud(self) -> str | None:
        """The cloud of the place."""
        return parted(self.infra)[0]

    @property
    def region(self) -> str | None:
        """The region of the place."""
        return parted(self.infra)[1]

    @property
    def zone(self) -> str | None:
        """The zone of the place."""
        return parted(self.infra)[2]

    @property
    def instance_type(self) -> str | None:
        """What the cloud calls such a machine."""
        return self._config.get("instance_type")

    @property
    def cpus(self) -> str | None:
        """``"4"`` or ``"4+"``."""
        return self._config.get("cpus")

    @property
    def memory(self) -> str | None:
        """In GB: ``"16"`` or ``"16+"``."""
        return self._config.get("memory")

    @property
    def accelerators(self) -> dict[str, int] | list[dict[str, int]] | None:
        """Their counts by name; a list when there are several in order of preference."""
        return copy.deepcopy(self._config.get("accelerators"))

    @property
    def accelerator_args(self) -> dict[str, Any] | None:
        """What else is said of the accelerators."""
        return copy.deepcopy(self._config.get("accelerator_args"))

    @property
    def use_spot(self) -> bool:
        """Whether machines that may be taken back will do, for less."""
        return self._config.get("use_spot", False)

    @property
    def use_spot_specified(self) -> bool:
        """Whether that was said."""
        return "use_spot" in self._config

    @property
    def job_recovery(self) -> Any:
        """How a job is started again."""
        return copy.deepcopy(self._config.get("job_recovery"))

    @property
    def image_id(self) -> dict[str, str] | str | None:
        """The image, or one for each region."""
        return copy.deepcopy(self._config.get("image_id"))

    @property
    def disk_size(self) -> int:
        """In GB."""
        return self._config.get("disk_size", _DISK_GB)

    @property
    def disk_tier(self) -> str | None:
        """How fast the disk is."""
        return self._config.get("disk_tier")

    @property
    def network_tier(self) -> str | None:
        """How fast the network is."""
        return self._config.get("network_tier")

    @property
    def local_disk(self) -> str | None:
        """Which disk inside the machine is wanted."""
        return self._config.get("local_disk")

    @property
    def max_hourly_cost(self) -> float | None:
        """In USD, of one machine."""
        return self._config.get("max_hourly_cost")

    @property
    def ports(self) -> list[str] | None:
        """Ports and ranges that are open."""
        return copy.deepcopy(self._config.get("ports"))

    @property
    def labels(self) -> dict[str, str] | None:
        """Labels of the machines."""
        return copy.deepcopy(self._config.get("labels"))

    @property
    def autostop(self) -> dict[str, Any] | bool | None:
        """When an idle cluster stops: a mapping, or False for never; None: nothing is said."""
        return copy.deepcopy(self._config.get("autostop"))

    @property
    def hooks(self) -> Any:
        """Commands at turns of a cluster's life."""
        return copy.deepcopy(self._config.get("hooks"))

    @property
    def priority(self) -> int | None:
        """How urgent it is."""
        return self._config.get("priority")

    @property
    def priority_class(self) -> str | None:
        """The name of how urgent it is."""
        return self._config.get("priority_class")

    @property
    def volumes(self) -> list[Any] | None:
        """Disks to be attached."""
        return copy.deepcopy(self._config.get("volumes"))

    # ── as a value ──────────────────────────────────────────────────────────────────────────────

    def is_empty(self) -> bool:
        """Whether nothing is said: any machine will do."""
        return not self._config

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Resources) and other._config == self._config

    def __hash__(self) -> int:
        return hash(json.dumps(self._config, sort_keys=True, default=str))

    def __repr__(self) -> str:
        parts = [f"{name}={_brief(self._config[name])}" for name in SHOWN if name in self._config]
        several = len(self.alternatives())
        if several > 1:
            parts.append(f"{several} alternatives")
        return f"Resources({', '.join(parts)})"


def _of(config: dict[str, Any]) -> Resources:
    made = Resources.__new__(Resources)
    object.__setattr__(made, "_config", config)
    return made


def _singles(config: dict[str, Any]) -> list[dict[str, Any]]:
    accelerators = config.get("accelerators")
    if isinstance(accelerators, dict):
        given = cast("dict[str, int]", accelerators)
        accelerators = [{name: count} for name, count in given.items()]
    if not accelerators:
        return [config]
    return [{**config, "accelerators": one} for one in cast("list[dict[str, int]]", accelerators)]


def _brief(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}:{count}" for name, count in cast("dict[str, Any]", value).items())
    if isinstance(value, list):
        return "[" + ",".join(_brief(one) for one in cast("list[Any]", value)) + "]"
    return str(value)
