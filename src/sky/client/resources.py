"""What a compute is made of, as its user writes it: providers, machines, images, plugins.

Decides: names, defaults and shorthands (``"A100:8"``, ``(min, max)``), and how they become the wire's shapes.
Never: checks what only the daemon can know; it refuses with the field's path, before anything is bought.
Follows: the Python of an image is this Python unless said otherwise, since functions travel between equals.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sky.client.errors import CapabilityMismatch, InvalidRequest
from sky.wire import plugins, v1

Executor = Literal["process", "thread", "loky"]
Nodes = int | tuple[int, int]
Retry = v1.RetryPolicy
Options = v1.Options
PipIndex = v1.PipIndex
Metric = v1.MetricSpec
Volume = v1.Volume

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The minor version of Python that packs the calls."""


@dataclass(frozen=True, slots=True)
class Provider:
    """Where machines come from: a kind the daemon knows, or the name of a provider that was added."""

    kind: str


@dataclass(frozen=True, slots=True)
class Local(Provider):
    """Machines that are processes on the daemon's own computer."""

    kind: str = "local"


@dataclass(frozen=True, slots=True)
class Spec:
    """One kind of machine that would do. ``memory_gb`` and ``disk_gb`` in GB, costs in USD per hour."""

    provider: Provider | str = field(default_factory=Local)
    accelerator: str | None = None
    cpus: int | None = None
    memory_gb: int | None = None
    disk_gb: int | None = None
    region: str | None = None
    architecture: v1.Architecture | None = None
    max_hourly_cost: float | None = None

    def to_wire(self) -> v1.Spec:
        """As the daemon takes it. ``"A100:8"`` is eight of them."""
        name, _, count = (self.accelerator or "").partition(":")
        if count and not count.isdigit():
            message = f"accelerator {self.accelerator!r}: after the colon stands how many, as in 'A100:8'"
            raise InvalidRequest(message, "invalid_request", 400, details={"field": "accelerator"})
        return v1.Spec(
            provider=v1.ProviderRef(kind=_kind_of(self.provider)),
            accelerator=name or None,
            accelerator_count=int(count) if count else 1,
            cpus=self.cpus,
            memory_gb=self.memory_gb,
            disk_gb=self.disk_gb,
            region=self.region,
            architecture=self.architecture,
            max_hourly_cost=self.max_hourly_cost,
        )


@dataclass(frozen=True, slots=True)
class Plugin:
    """Something that prepares every node and call, by kind, with its parameters; see ``sky.plugins``."""

    kind: str
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])


AnyPlugin = str | Plugin | plugins.Plugin
"""A kind of plugin, one with parameters, or one of ``sky.plugins``."""


@dataclass(frozen=True, slots=True)
class Image:
    """What must be on a node before a call can run there.

    ``pip`` and ``apt`` are requirement lines; ``pip_indexes`` addresses of package indexes, whose passwords
    stay in a ``.netrc``; ``env`` is the environment of calls; ``python`` a minor version;
    ``bootstrap_timeout`` in seconds.

    ``includes`` are files and folders of this computer that go along. Each stands under its own name in the
    folder that calls start in, and can be imported; of a folder written with a slash at its end, or ``.``,
    what is in it does. ``excludes`` are patterns as in a ``.gitignore``, from each of these folders; version
    control, caches and virtual environments stay behind anyway, and so do links.
    """

    python: str | None = None
    pip: Sequence[str] = ()
    pip_indexes: Sequence[str | PipIndex] = ()
    apt: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    includes: Sequence[str | os.PathLike[str]] = ()
    excludes: Sequence[str] = ()
    base: str | None = None
    shell_vars: Mapping[str, str] = field(default_factory=dict[str, str])
    metrics: Sequence[Metric] | None = None
    bootstrap_timeout: int = 900

    def __post_init__(self) -> None:
        # A text is a sequence too: of its letters.
        for name in ("pip", "pip_indexes", "apt", "includes", "excludes"):
            refuse_text(getattr(self, name), f"image.{name}")

    def to_wire(self, includes_sha256: str | None = None) -> v1.Image:
        """As the daemon takes it. Raises CapabilityMismatch for a Python that cannot run our calls."""
        if self.python is not None and ".".join(self.python.split(".")[:2]) != HERE:
            raise CapabilityMismatch(
                f"the image asks for Python {self.python} and this program runs on {HERE}: functions do not "
                f"travel between minor versions. Leave python out, or run this with Python {self.python}",
                "capability_mismatch",
                422,
                details={"field": "image.python", "value": self.python, "expected": HERE},
            )
        return v1.Image(
            base=self.base,
            python=self.python or HERE,
            pip=tuple(self.pip),
            pip_indexes=tuple(PipIndex(url=one) if isinstance(one, str) else one for one in self.pip_indexes),
            apt=tuple(self.apt),
            env=dict(self.env),
            shell_vars=dict(self.shell_vars),
            includes=tuple(os.fspath(one) for one in self.includes),
            includes_sha256=includes_sha256,
            excludes=tuple(self.excludes),
            metrics=None if self.metrics is None else tuple(self.metrics),
            bootstrap_timeout=self.bootstrap_timeout,
        )


@dataclass(frozen=True, slots=True)
class Worker:
    """How a node runs calls: ``concurrency`` at once (None: one per CPU), each in a process or a thread."""

    executor: Executor = "process"
    concurrency: int | None = None
    buffer: int = 0
    reuse: bool = True

    def to_wire(self) -> v1.Worker:
        """As the daemon takes it."""
        return v1.Worker(
            executor=self.executor, concurrency=self.concurrency, buffer=self.buffer, reuse=self.reuse
        )


def bounds_of(nodes: Nodes) -> v1.NodeBounds:
    """``4`` is four nodes; ``(0, 8)`` is as many as the calls need, between these."""
    if isinstance(nodes, tuple):
        least, most = nodes
        return v1.NodeBounds(desired=least, min=least, max=most)
    return v1.NodeBounds(desired=nodes)


def refuse_text(given: Iterable[object], field: str) -> None:
    """Raises InvalidRequest for one text where several belong."""
    if isinstance(given, str):
        message = f"{field}: {given!r} is one text where a list belongs; write [{given!r}]"
        raise InvalidRequest(
            message, "invalid_request", 400, details={"field": field, "value": given, "expected": "a list"}
        )


def plugin_of(plugin: AnyPlugin) -> v1.PluginRef:
    """A plugin, or the kind of one without parameters."""
    if isinstance(plugin, str):
        return v1.PluginRef(kind=plugin)
    if isinstance(plugin, plugins.Plugin):
        return v1.PluginRef(kind=plugin.kind, params=plugin.params())
    return v1.PluginRef(kind=plugin.kind, params=dict(plugin.params))


def _kind_of(provider: Provider | str) -> str:
    return provider if isinstance(provider, str) else provider.kind
