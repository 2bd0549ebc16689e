"""What a compute's spec must keep, beyond the types of its fields.

Decides: which specs are refused before anything is written, and with which words.
Never: asks a provider, or changes a spec. Follows: what is accepted here, some provider could serve.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sky.domain.errors import (
    CapabilityMismatch,
    InvalidRequest,
    SecretInDefinition,
    UnsupportedPlugin,
    UnsupportedProvider,
)
from sky.domain.nearby import hint
from sky.domain.provider import Abilities, Rules
from sky.kit import ids, secrets
from sky.store.rows import providers
from sky.store.tx import Tx
from sky.verbs.image_rules import INDEX_LOGIN, check_image
from sky.wire import v1
from sky.wire.plugins import COLLECTIVE, KINDS, names_of, parse


def invalid(field: str, value: object, expected: str) -> InvalidRequest:
    """A refusal that names the field, its value and what would be right."""
    return InvalidRequest(
        f"{field}: {value!r} is not accepted; expected {expected}",
        details={"field": field, "value": value, "expected": expected},
    )


def check_bounds(bounds: v1.NodeBounds, field: str) -> None:
    """``min`` ≤ ``desired`` ≤ ``max``, and no nodes only where that is said on purpose."""
    low = bounds.desired if bounds.min is None else bounds.min
    high = bounds.desired if bounds.max is None else bounds.max
    if low > high:
        raise invalid(f"{field}.min", low, f"at most max, which is {high}")
    if not low <= bounds.desired <= high:
        raise invalid(f"{field}.desired", bounds.desired, f"between min and max, {low} to {high}")
    if bounds.desired == 0 and bounds.min is None:
        raise invalid(
            f"{field}.desired", 0, "at least 1 (or min: 0, for a compute that may scale to nothing)"
        )
    if high == 0:
        raise invalid(f"{field}.max", 0, "at least 1")


def check_spec(tx: Tx, spec: v1.ComputeSpec, rules: Rules) -> None:
    """Everything that can be known to be wrong with ``spec`` before anything is bought."""
    if not spec.specs:
        raise invalid("spec.specs", [], "at least one alternative, such as [{'provider': {'kind': 'local'}}]")
    check_bounds(spec.nodes, "spec.nodes")
    _check_secrets(spec)
    for index, plugin in enumerate(spec.plugins):
        _check_plugin(plugin, f"spec.plugins[{index}]", [earlier.kind for earlier in spec.plugins[:index]])
    for index, alternative in enumerate(spec.specs):
        ref = alternative.provider.kind
        kind = _kind_of(tx, ref, f"spec.specs[{index}].provider.kind", rules)
        _check_abilities(spec, kind, rules.kinds[kind].abilities)
        check_image(tx, spec.image, ref=ref, kind=kind, rules=rules)
    _check_unbuilt(spec)


def _check_plugin(plugin: v1.PluginRef, field: str, earlier: list[str]) -> None:
    kind = plugin.kind
    if kind not in KINDS:
        msg = f"{field}.kind: no plugin {kind!r}; {hint(kind, KINDS)}"
        raise UnsupportedPlugin(msg, details={"plugin": kind, "known": sorted(KINDS)})
    if kind in earlier:
        raise invalid(f"{field}.kind", kind, "each plugin once")
    try:
        parse(kind, plugin.params)
    except msgspec.ValidationError as error:
        msg = f"{field}.params: {error}; the plugin {kind!r} takes {', '.join(names_of(kind))}"
        raise InvalidRequest(msg, details={"field": f"{field}.params", "plugin": kind}) from None


def _check_secrets(spec: v1.ComputeSpec) -> None:
    for field, why in secrets.find(msgspec.to_builtins(spec), "spec"):
        instead = "put credentials on a provider (`sky provider add`) or into the environment of the node"
        if field.startswith("spec.image.pip"):
            instead = f"leave it out: {INDEX_LOGIN}"
        msg = f"{field}: {why}, and a spec is served back to whoever reads it; {instead}"
        raise SecretInDefinition(msg, details={"field": field})


def _kind_of(tx: Tx, ref: str, field: str, rules: Rules) -> str:
    if ref in rules.kinds:
        ensure_default(tx, ref, rules)
        return ref
    row = providers.find(tx.connection, ref)
    if row is None or row["kind"] not in rules.kinds:
        names = providers.names(tx.connection)
        msg = f"{field}: no provider {ref!r}; {hint(ref, {*rules.kinds, *names})}"
        raise UnsupportedProvider(msg, details={"provider": ref, "known": sorted({*rules.kinds, *names})})
    return row["kind"]


def ensure_default(tx: Tx, kind: str, rules: Rules) -> None:
    """A kind that needs no credentials serves as it is: its row is made when it is first named."""
    if providers.count_of_kind(tx.connection, kind):
        return
    info = rules.kinds[kind]
    if info.credential_fields:
        msg = f"no provider of kind {kind!r} was added yet; add one: `sky provider add`, POST /v1/providers"
        raise UnsupportedProvider(msg, details={"provider": kind})
    # The name may be taken by a provider of another kind; then the kind's own is found by its kind alone.
    taken = providers.named(tx.connection, kind)
    add_provider(tx, kind if taken is None else f"{kind}-default", kind, {}, None, info.offers_ttl_seconds)


def add_provider(
    tx: Tx, name: str, kind: str, config: dict[str, Any], credentials: bytes | None, ttl_seconds: int
) -> str:
    """Write a provider's row and have its offers fetched."""
    provider_id = ids.new("provider")
    row = {
        "id": provider_id,
        "name": name,
        "kind": kind,
        "config": config,
        "credentials": credentials,
        "offers_ttl_seconds": ttl_seconds,
    }
    providers.add(tx, row)
    return provider_id


def _check_abilities(spec: v1.ComputeSpec, kind: str, can: Abilities) -> None:
    wanted = (
        (bool(spec.volumes) and not can.volumes, "spec.volumes", "mount volumes"),
        (
            _joins_nodes(spec) and not can.cluster,
            "spec.plugins",
            "connect nodes to each other, which torch and jax on several nodes need",
        ),
        (
            spec.options.cluster is True and not can.cluster,
            "spec.options.cluster",
            "connect nodes to each other",
        ),
    )
    for missing, field, what in wanted:
        if missing:
            msg = (
                f"{field}: machines of provider {kind!r} cannot {what}; leave it out or name another provider"
            )
            raise CapabilityMismatch(msg, details={"field": field, "provider": kind})


def _joins_nodes(spec: v1.ComputeSpec) -> bool:
    """Whether calls of several nodes are to find each other."""
    several = max(spec.nodes.desired, spec.nodes.max or 0) > 1
    return several and any(plugin.kind in COLLECTIVE for plugin in spec.plugins)


def _check_unbuilt(spec: v1.ComputeSpec) -> None:
    """What no node does yet is refused, rather than accepted and not done."""
    options = spec.options
    unbuilt = (
        (options.health_command is not None, "spec.options.health_command"),
        (options.health_function is not None, "spec.options.health_function"),
        (bool(spec.image.metrics), "spec.image.metrics"),
        (spec.image.warm, "spec.image.warm"),
        (spec.image.skyward in ("github", "pypi"), "spec.image.skyward"),
    )
    for asked, field in unbuilt:
        if asked:
            msg = f"{field}: no provider of this release can do that; leave it out"
            raise CapabilityMismatch(msg, details={"field": field})
