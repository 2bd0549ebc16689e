"""What somebody asked ``sky.Compute`` for, and the request that asks the daemon for it.

Decides: how the parameters become one spec, and how long such a compute may take to be ready.
Never: looks at what there is. Follows: the request is made once, with its key, so that repeating it after a
lost answer or an interruption means the same compute and never a second one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sky.client import calls, definition, flows
from sky.client.errors import CapabilityMismatch
from sky.client.http import Http
from sky.client.includes import name_of, store
from sky.client.request import Call
from sky.client.resources import (
    HERE,
    AnyPlugin,
    Executor,
    Image,
    Local,
    Nodes,
    Options,
    Provider,
    Retry,
    Spec,
    Volume,
    Worker,
    bounds_of,
    plugin_of,
    refuse_text,
)
from sky.wire import v1

Providers = Provider | Spec | str | Sequence[Provider | Spec | str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """The parameters of a compute, as they were given."""

    provider: Providers = None
    accelerator: str | None = None
    cpus: int | None = None
    memory_gb: int | None = None
    nodes: Nodes = 1
    image: Image = field(default_factory=Image)
    volumes: Sequence[Volume] = ()
    plugins: Sequence[AnyPlugin] = ()
    executor: Executor = "process"
    concurrency: int | None = None
    retry: Retry = field(default_factory=Retry)
    options: Options = field(default_factory=Options)
    allocation: v1.Allocation = "spot_if_available"
    selection: v1.Selection = "cheapest"
    max_hourly_cost: float | None = None
    delete_on_exit: bool
    ttl: int = 600

    @property
    def several_nodes(self) -> bool:
        """Whether there may be more than one node."""
        bounds = bounds_of(self.nodes)
        return max(bounds.desired, bounds.max or 0) > 1

    @property
    def plugin_kinds(self) -> tuple[str, ...]:
        """The kinds of its plugins, in order."""
        return tuple(plugin_of(plugin).kind for plugin in self.plugins)

    @property
    def ready_within_s(self) -> float:
        """Seconds until it has to be ready: to buy, to connect and to install; 0: it may take for ever."""
        options = self.options
        if options.provision_timeout == 0:
            return 0.0
        return options.provision_timeout + options.ssh_connect_timeout + self.image.bootstrap_timeout

    def request(self, http: Http, name: str | None) -> Call[v1.Compute]:
        """The request for this compute, what it includes uploaded first."""
        includes_sha256: str | None = None
        if self.image.includes:
            includes_sha256 = flows.run(http, store(self.image.includes, self.image.excludes))
        return calls.create_compute(v1.ComputeCreate(spec=self.spec(includes_sha256), name=name))

    def spec(self, includes_sha256: str | None = None) -> v1.ComputeSpec:
        """As the daemon takes it."""
        return v1.ComputeSpec(
            specs=tuple(spec.to_wire() for spec in self._specs()),
            nodes=bounds_of(self.nodes),
            selection=self.selection,
            allocation=self.allocation,
            image=self.image.to_wire(includes_sha256),
            worker=Worker(executor=self.executor, concurrency=self.concurrency).to_wire(),
            options=self.options,
            plugins=tuple(plugin_of(plugin) for plugin in self.plugins),
            retry=self.retry,
            volumes=tuple(self.volumes),
            delete_on_exit=self.delete_on_exit,
            ttl=self.ttl,
        )

    def otherwise(self, there: v1.ComputeSpec) -> str:
        """What of this the compute of the same name that is there does not have, in words; empty: nothing."""
        wanted, has = bounds_of(self.nodes), there.nodes
        said: list[str] = []
        if self.nodes != 1 and _bounds_text(wanted) != _bounds_text(has):
            said.append(f"its nodes are {_bounds_text(has)}, not {_bounds_text(wanted)}")
        missing = [package for package in self.image.pip if package not in there.image.pip]
        if missing:
            said.append(f"its image does not name {', '.join(missing)}")
        includes = self.image.includes
        if includes and name_of(includes, self.image.excludes) != there.image.includes_sha256:
            said.append("its included files are not as they are here now")
        return " and ".join(said)

    def _specs(self) -> tuple[Spec, ...]:
        given = self.provider
        if given is None:
            given = Local()
        several = (given,) if isinstance(given, Provider | Spec | str) else tuple(given)
        return tuple(one if isinstance(one, Spec) else self._spec_of(one) for one in several)

    def _spec_of(self, provider: Provider | str) -> Spec:
        plain = Spec(provider=provider)
        return dataclasses.replace(
            plain,
            accelerator=self.accelerator,
            cpus=self.cpus,
            memory_gb=self.memory_gb,
            max_hourly_cost=self.max_hourly_cost,
        )


def drawn(
    name: str | None, said: Mapping[str, Any], machine: Mapping[str, Any]
) -> tuple[str | None, Blueprint]:
    """The name and the parameters of a compute: what was ``said``, over what ``sky.toml`` says of that name.

    None is what was not said. A ``machine`` asked for is asked of every alternative of the file.
    """
    given = {key: value for key, value in said.items() if value is not None}
    asked = {key: value for key, value in machine.items() if value is not None}
    if isinstance(given.get("provider"), str) and name is None:
        table = definition.parameters(given["provider"])
        name = given.pop("provider") if table is not None else None
    else:
        table = definition.parameters(name) if name is not None else None
    table = table or {}
    refuse_text(given.get("plugins", ()), "plugins")
    if asked and "provider" in table and "provider" not in given:
        table["provider"] = [dataclasses.replace(spec, **asked) for spec in table["provider"]]
    kept: dict[str, Any] = {"delete_on_exit": name is None}
    return name, Blueprint(**{**kept, **table, **given, **asked})


def check_python(there: v1.Compute) -> None:
    """Raises CapabilityMismatch for a compute whose nodes cannot open what this Python packs."""
    has = there.spec.image.python
    if has is not None and has.split(".")[:2] != HERE.split("."):
        label = there.name or there.id
        raise CapabilityMismatch(
            f"compute {label} runs Python {has} and this program runs on {HERE}: functions do not travel "
            f"between minor versions. Use another name, or run this with Python {has}",
            "capability_mismatch",
            422,
            details={"field": "image.python", "value": has, "expected": HERE},
        )


def _bounds_text(nodes: v1.NodeBounds) -> str:
    return str(nodes.desired) if nodes.max is None else f"{nodes.min or 0} to {nodes.max}"
