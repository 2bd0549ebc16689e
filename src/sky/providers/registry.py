"""Which kinds of provider there are, and how a row becomes an object that can buy.

Decides: the kinds by name (built in, and installed under the entry points ``skyfleet.providers``), and
whether a configuration and credentials fit a kind. Never: keeps the objects it makes, or calls out.
Follows: a wrong configuration is refused when the provider is added, with the field that is wrong, and
long before anybody asks it for a machine. A kind that cannot be loaded breaks nothing but itself.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import msgspec

from sky.providers.aws.provider import AwsProvider
from sky.providers.base import Context, Kind, Provider, Refused, Setup
from sky.providers.container.provider import ContainerProvider
from sky.providers.fake.provider import FakeProvider, separate_worlds
from sky.providers.kubernetes import kind as kubernetes
from sky.providers.local.provider import LocalProvider
from sky.providers.skypilot import kind as skypilot
from sky.providers.ssh.provider import SshProvider

ENTRY_POINTS = "skyfleet.providers"
FAKE_VARIABLE = "SKY_FAKE_PROVIDER"
_ATTRIBUTES = ("kind", "credential_fields", "offers_ttl_seconds", "config_fields", "capabilities")
_CALLS = ("offers", "launch", "machines", "find", "terminate")
_DISK_CALLS = ("disks", "remove_disk")
_LOAD_ERRORS = (ImportError, AttributeError, SyntaxError, TypeError, ValueError, OSError, RuntimeError)
_MISSING = re.compile(r"^Object missing required field `(.*)`$")
_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<where>[^`]*)`)?$", re.DOTALL)


class Registry:
    """The kinds by name. ``broken`` holds, by name, why an installed kind could not be loaded."""

    def __init__(self, kinds: Iterable[Kind], broken: Mapping[str, str] | None = None) -> None:
        self._kinds = {kind.kind: kind for kind in kinds}
        self.broken = dict(broken or {})

    def kinds(self) -> tuple[Kind, ...]:
        """All that can be used, by name."""
        return tuple(self._kinds[name] for name in sorted(self._kinds))

    def kind(self, name: str) -> Kind:
        """The kind of that name. Raises Refused (``unsupported_provider``) with the ones there are."""
        kind = self._kinds.get(name)
        if kind is not None:
            return kind
        if name in self.broken:
            raise Refused(
                f"the kind of provider '{name}' is installed and cannot be loaded: {self.broken[name]}",
                "unsupported_provider",
                field="kind",
            )
        raise Refused(
            f"there is no kind of provider '{name}'{_near(name, self._kinds)}; known: {_listed(self._kinds)}",
            "unsupported_provider",
            field="kind",
        )

    def build(
        self,
        kind: str,
        provider_id: str,
        name: str,
        config: Mapping[str, Any],
        credentials: Mapping[str, str],
        context: Context,
    ) -> Provider:
        """A provider from its row. Raises Refused when the kind, config or credentials are wrong."""
        known = self.kind(kind)
        checked = check_config(known, config)
        check_credentials(known, credentials)
        return known.create(Setup(provider_id, name, checked, dict(credentials), context))


def standard(environ: Mapping[str, str] = os.environ) -> Registry:
    """Everything built in or installed. The simulated kind only when ``SKY_FAKE_PROVIDER`` is 1."""
    kinds: dict[str, Kind] = {
        LocalProvider.kind: Kind.of(LocalProvider),
        ContainerProvider.kind: Kind.of(ContainerProvider),
        kubernetes.KIND.kind: kubernetes.KIND,
        SshProvider.kind: Kind.of(SshProvider),
        AwsProvider.kind: Kind.of(AwsProvider),
        skypilot.KIND.kind: skypilot.KIND,
    }
    if environ.get(FAKE_VARIABLE) == "1":
        kinds[FakeProvider.kind] = separate_worlds()
    broken: dict[str, str] = {}
    for entry in entry_points(group=ENTRY_POINTS):
        if entry.name in kinds:
            broken[entry.name] = f"another provider of that name is already there ({entry.value} is ignored)"
            continue
        try:
            kinds[entry.name] = _load(entry)
        except _LOAD_ERRORS as error:
            broken[entry.name] = f"{entry.value}: {type(error).__name__}: {error}"
    return Registry(kinds.values(), broken)


def check_config(kind: Kind, config: Mapping[str, Any]) -> msgspec.Struct:
    """The configuration as the kind's own struct. Raises Refused (``invalid_request``) with the field."""
    known = {item.encode_name for item in msgspec.structs.fields(kind.config_fields)}
    for name in config:
        if name not in known:
            raise Refused(
                f"config: a provider of kind '{kind.kind}' has no field '{name}'{_near(name, known)}; "
                f"known: {_listed(known)}",
                "invalid_request",
                field=f"config.{name}",
            )
    try:
        return msgspec.convert(dict(config), kind.config_fields)
    except msgspec.ValidationError as error:
        what, where = _parts(str(error))
        path = f"config.{where}" if where else "config"
        missing = _MISSING.match(what)
        if missing is not None:
            path, what = f"{path}.{missing[1]}", f"is missing; a provider of kind '{kind.kind}' needs it"
        raise Refused(f"{path}: {what}", "invalid_request", field=path) from error


def check_credentials(kind: Kind, credentials: Mapping[str, str]) -> None:
    """Raises Refused when a credential is named that the kind does not take. Values are never shown."""
    for name in credentials:
        if name not in kind.credential_fields:
            raise Refused(
                f"credentials: a provider of kind '{kind.kind}' takes no '{name}'"
                f"{_near(name, kind.credential_fields)}; it takes: {_listed(kind.credential_fields)}",
                "invalid_request",
                field=f"credentials.{name}",
            )


def _load(entry: EntryPoint) -> Kind:
    found = entry.load()
    missing = [name for name in (*_ATTRIBUTES, *_CALLS) if not hasattr(found, name)]
    if not missing and found.capabilities.keeps_disks:
        missing = [name for name in _DISK_CALLS if not hasattr(found, name)]
    if missing:
        raise TypeError(f"it lacks {', '.join(missing)}")
    if found.kind != entry.name:
        raise ValueError(f"it calls itself '{found.kind}' and is registered as '{entry.name}'")
    return Kind.of(found)


def _parts(text: str) -> tuple[str, str]:
    """What msgspec says and, apart from it, the path it says it about."""
    match = _AT.match(text)
    if match is None:
        return text, ""
    return match["what"], match["where"] or ""


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" (did you mean '{near[0]}'?)" if near else ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
