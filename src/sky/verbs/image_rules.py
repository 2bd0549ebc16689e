"""What the image of a compute's spec must keep: which provider can make it, and that it is whole.

Decides: which images are refused before anything is written, and with which words.
Never: looks into what is installed or included. Follows: what only a node can know (a package that does not
exist, an interpreter that is not there) fails the compute soon, in the installer's words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from sky.domain.errors import CapabilityMismatch, InvalidRequest
from sky.domain.provider import Abilities, Rules
from sky.store import blobs
from sky.store.rows import providers
from sky.store.tx import Tx
from sky.wire import v1

INDEX_LOGIN = (
    "installers on a node get the user and password of an index from the .netrc file of whoever runs the "
    "daemon, by the host's name"
)
"""Where the credentials of package indexes belong."""
_APT = re.compile(r"[a-z0-9][a-z0-9.+-]*[a-z0-9+](?::[a-z0-9-]+)?(?:=[\w.+:~-]+)?(?:/[\w.-]+)?")
_PYTHON = re.compile(r"3\.\d{1,2}(?:\.\d{1,2})?")


def check_image(tx: Tx, image: v1.Image, *, ref: str, kind: str, rules: Rules) -> None:
    """Everything that can be known to be wrong with ``image`` on machines of the provider ``ref``."""
    can = rules.kinds[kind].abilities
    if image.base is not None and not can.base_image:
        raise _mismatch("spec.image.base", kind, _no_base(kind, rules))
    if image.apt:
        _check_apt(tx, image.apt, ref, kind, can)
    if (image.includes or image.includes_sha256 is not None) and not can.includes:
        msg = f"machines of provider {kind!r} cannot get files along; leave them out or name another provider"
        raise _mismatch("spec.image.includes", kind, msg)
    if image.python is not None and not _PYTHON.fullmatch(image.python):
        raise _invalid("spec.image.python", image.python, "a version of Python such as 3.12 or 3.12.4")
    if image.includes and image.includes_sha256 is None:
        expected = (
            "includes_sha256 with them: store a gzipped tar of these files with PUT /v1/blobs/{sha256} and "
            "name it there"
        )
        raise _invalid("spec.image.includes", list(image.includes), expected)
    if image.includes_sha256 is not None and blobs.use(tx, image.includes_sha256) is None:
        expected = "a stored blob; upload it first with PUT /v1/blobs/{sha256}"
        raise _invalid("spec.image.includes_sha256", image.includes_sha256, expected)


def _check_apt(tx: Tx, packages: Iterable[str], ref: str, kind: str, can: Abilities) -> None:
    for index, package in enumerate(packages):
        if not _APT.fullmatch(package):
            expected = "the name of a Debian package, with =version or /release if need be"
            raise _invalid(f"spec.image.apt[{index}]", package, expected)
    if can.apt:
        return
    setting = can.apt_setting
    if setting is None:
        msg = f"machines of provider {kind!r} do not install apt packages; leave them out or name another"
        raise _mismatch("spec.image.apt", kind, msg)
    configs = providers.configs(tx.connection, ref)
    if not configs or not all(config.get(setting) is True for config in configs):
        msg = (
            f"provider {ref!r} is not allowed to install system packages on its machines. Where that is "
            f"wanted (the daemon's own computer, as root), allow it and name that provider: "
            f"sky provider add NAME --kind {kind} --config {setting}=true"
        )
        raise _mismatch("spec.image.apt", kind, msg)


def _no_base(kind: str, rules: Rules) -> str:
    takers = sorted(name for name, info in rules.kinds.items() if info.abilities.base_image)
    told = f"kinds that do: {', '.join(takers)}" if takers else "no kind of this daemon does"
    return f"machines of provider {kind!r} do not start from a container image; {told}; or leave it out"


def _mismatch(field: str, kind: str, why: str) -> CapabilityMismatch:
    return CapabilityMismatch(f"{field}: {why}", details={"field": field, "provider": kind})


def _invalid(field: str, value: object, expected: str) -> InvalidRequest:
    details: Mapping[str, Any] = {"field": field, "value": value, "expected": expected}
    return InvalidRequest(f"{field}: {value!r} is not accepted; expected {expected}", details=dict(details))
