"""A storage by its name, and how its files come to the machines of a task.

Decides: what a mapping in ``file_mounts`` may say. Never: looks at a source or asks a server.
Follows: what is kept is what a task file says, so that it can be written down again.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, cast

from sky.client.tasks import values
from sky.client.tasks.report import Report
from sky.client.tasks.values import Check
from sky.kit.marked_yaml import Path

NAME_CHARS_MAX = 64


class StorageMode(Enum):
    """How files of a storage are there: as a copy, or as the storage itself."""

    COPY = "COPY"
    MOUNT = "MOUNT"
    MOUNT_CACHED = "MOUNT_CACHED"


def _name(report: Report, path: Path, value: Any) -> str | None:
    given = values.text(report, path, value)
    if given is not None and not 0 < len(given) <= NAME_CHARS_MAX:
        report.wrong(path, f"the name of a storage has 1 to {NAME_CHARS_MAX} characters", value)
        return None
    return given


def _source(report: Report, path: Path, value: Any) -> Any:
    if isinstance(value, list | tuple):
        several = cast("list[Any]", value)
        return [values.text(report, (*path, index), one) for index, one in enumerate(several)]
    return values.text(report, path, value)


FIELDS: dict[str, Check] = {
    "name": _name,
    "source": _source,
    "store": values.text,
    "stores": values.anything,
    "persistent": values.flag,
    "mode": values.choice(*(mode.value for mode in StorageMode)),
    "config": values.anything,
}


class Storage:
    """Files under a name that a server keeps. ``source``: a local file or folder, or several, whose content
    it gets; None: as it is. ``persistent``: kept when the cluster is gone. Raises InvalidTaskYAMLError."""

    def __init__(
        self,
        name: str | None = None,
        source: str | Sequence[str] | None = None,
        stores: Any = None,
        persistent: bool | None = True,
        mode: StorageMode | str = StorageMode.MOUNT,
        *,
        store: str | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        given = {
            "name": name,
            "source": source,
            "stores": stores,
            "store": store,
            "persistent": persistent,
            "mode": mode.value if isinstance(mode, StorageMode) else mode,
            "config": config,
        }
        report = Report()
        found = checked(report, ("storage",), given)
        report.finish()
        self._config = found or {}

    @classmethod
    def from_yaml_config(cls, config: Mapping[str, Any]) -> Storage:
        """The storage of a mapping. Raises InvalidTaskYAMLError."""
        report = Report()
        found = checked(report, ("storage",), config)
        report.finish()
        return cls(**(found or {}))

    def to_yaml_config(self) -> dict[str, Any]:
        """The fields that say something, as a task file has them."""
        return copy.deepcopy(self._config)

    @property
    def name(self) -> str | None:
        """Its name."""
        return self._config.get("name")

    @property
    def source(self) -> str | list[str] | None:
        """Where its content comes from."""
        return copy.deepcopy(self._config.get("source"))

    @property
    def stores(self) -> Any:
        """Where a cloud is to keep it."""
        return self._config.get("stores") or self._config.get("store")

    @property
    def persistent(self) -> bool:
        """Whether it is kept when the cluster is gone."""
        return self._config.get("persistent", True)

    @property
    def mode(self) -> StorageMode:
        """How its files are there."""
        return StorageMode(self._config.get("mode", StorageMode.MOUNT.value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Storage) and other.to_yaml_config() == self._config

    def __hash__(self) -> int:
        return hash((self.name, str(self.source)))

    def __repr__(self) -> str:
        return f"Storage({self.name or self.source!r}, {self.mode.value})"


def checked(report: Report, path: Path, value: Any) -> dict[str, Any] | None:
    """The fields of a storage; it has a name, a source, or both."""
    if isinstance(value, Storage):
        return value.to_yaml_config()
    found = values.fields(report, path, value, FIELDS)
    if found is not None and "name" not in found and "source" not in found:
        report.wrong(path, "it has a name, or a source, or both")
        return None
    if found is not None and found.get("persistent") is True:
        del found["persistent"]
    return found
