"""A task as a value: what is to run, with which files and variables, on which machines.

Decides: how a task is made from a file, a mapping or in a program, changed, and written down again.
Never: sends anything, or asks anybody. Follows: all ways of making one take the same and refuse the same with
the same words, everything that is wrong at once.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, cast

from sky.client.exceptions import InvalidTaskError
from sky.client.outermost import outermost_class
from sky.client.tasks import fields, joining, local, reading, values
from sky.client.tasks.reading import Overrides
from sky.client.tasks.report import Report
from sky.client.tasks.resources import Resources
from sky.client.tasks.storage import Storage
from sky.kit.marked_yaml import Marked

Run = str | Callable[..., Any]
Variables = Mapping[str, str] | Iterable[tuple[str, str]]
_WRITTEN = tuple(fields.FIELDS)


@outermost_class
class Task:
    """What is to run. ``setup`` and ``run`` are scripts for bash; ``run`` may be a function: one of two
    parameters is called with the rank of a node and the addresses of all, and may return a script; one
    without parameters does the work itself. ``envs`` and ``secrets`` are variables for both. ``workdir`` is a
    folder that becomes the working folder, or ``{"url": …, "ref": …}``. ``file_mounts`` has what goes where,
    by its place on each machine.

    Raises InvalidTaskYAMLError with everything that is wrong.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        setup: str | None = None,
        run: Run | None = None,
        envs: Variables | None = None,
        secrets: Variables | None = None,
        workdir: str | Mapping[str, str] | None = None,
        num_nodes: int | None = None,
        file_mounts: Mapping[str, Any] | None = None,
        storage_mounts: Mapping[str, Storage] | None = None,
        volumes: Mapping[str, Any] | None = None,
        resources: Resources | Mapping[str, Any] | Iterable[Resources] | None = None,
        docker_image: str | None = None,
        event_callback: str | None = None,
        api_server_access: bool = True,
        service: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        report = Report()
        given: dict[str, Any] = {
            "name": name,
            "setup": setup,
            "run": run,
            "envs": envs,
            "secrets": secrets,
            "workdir": workdir,
            "num_nodes": num_nodes,
            "file_mounts": file_mounts,
            "storage_mounts": storage_mounts,
            "volumes": volumes,
            "resources": resources,
            "event_callback": event_callback,
            "service": service,
            "config": config,
        }
        found = values.fields(report, (), given, fields.FIELDS) or {}
        if docker_image is not None:
            message = f"say it as resources: Resources(image_id='docker:{docker_image}')"
            report.wrong(("docker_image",), message, docker_image)
        report.finish()
        self.api_server_access = api_server_access
        self.begin(found, report)
        _join(self)

    def begin(self, found: dict[str, Any], report: Report) -> None:
        """Have these fields, which were checked; every way of making a task ends here."""
        self._fields = found
        self._report = report

    # ── made from a file or a mapping ───────────────────────────────────────────────────────────

    @classmethod
    def from_yaml(
        cls,
        yaml_path: str | os.PathLike[str],
        *,
        env_overrides: Overrides = None,
        secrets_overrides: Overrides = None,
    ) -> Self:
        """The task of a file; variables given here stand instead of those in it. Raises InvalidTaskYAMLError
        naming file, line and field."""
        content = reading.content_of(yaml_path)
        return cls._of_content(content, os.fspath(yaml_path), env_overrides, secrets_overrides)

    @classmethod
    def from_yaml_str(
        cls, yaml_str: str, *, env_overrides: Overrides = None, secrets_overrides: Overrides = None
    ) -> Self:
        """The task of the text of a file. Raises InvalidTaskYAMLError."""
        return cls._of_content(
            reading.content_of_text(yaml_str), reading.TEXT, env_overrides, secrets_overrides
        )

    @classmethod
    def _of_content(cls, content: bytes, file: str, envs: Overrides, secrets: Overrides) -> Self:
        found = reading.documents(content, file)
        if len(found) > 1:
            report = Report(file, found[1])
            report.wrong((), "a second task begins here; sky.Dag.from_yaml reads a file of several")
            report.finish()
        return cls.of_document(found[0], file, envs, secrets)

    @classmethod
    def from_yaml_config(
        cls, config: Mapping[str, Any], env_overrides: Overrides = None, secrets_overrides: Overrides = None
    ) -> Self:
        """The task of a mapping with the fields of a task file. Raises InvalidTaskYAMLError."""
        report = Report()
        given = values.mapping(report, (), config, "a task is a mapping with fields such as run")
        report.finish()
        return cls.of_document(Marked(_plain(given)), None, env_overrides, secrets_overrides)

    @classmethod
    def of_document(cls, marked: Marked, file: str | None, envs: Overrides, secrets: Overrides) -> Self:
        """The task of one document of a file. Raises InvalidTaskYAMLError."""
        report = Report(file, marked if marked.lines else None)
        config = reading.settled(marked, report, envs, secrets)
        found = values.fields(report, (), config, fields.FIELDS) or {}
        report.finish()
        made = cls.__new__(cls)
        made.api_server_access = True
        made.begin(found, report)
        _join(made)
        return made

    def to_yaml_config(self) -> dict[str, Any]:
        """The fields that say something, as a task file has them. A function stands as itself."""
        written: dict[str, Any] = {}
        for name in _WRITTEN:
            value = self._fields.get(name)
            if name == "resources" and value is not None:
                several = [one.to_yaml_config() for one in cast("tuple[Resources, ...]", value)]
                value = several[0] if len(several) == 1 else several
            elif name in ("file_mounts", "storage_mounts") and value is not None:
                mounts = cast("dict[str, Any]", value)
                value = {
                    at: one.to_yaml_config() if isinstance(one, Storage) else one
                    for at, one in mounts.items()
                }
            elif not callable(value):
                value = copy.deepcopy(value)
            if value is not None and value not in ({}, []):
                written[name] = value
        return written

    # ── what it is ──────────────────────────────────────────────────────────────────────────────

    @property
    def name(self) -> str | None:
        """What its jobs are called."""
        return self._fields.get("name")

    @name.setter
    def name(self, value: str | None) -> None:
        self._set("name", value)

    @property
    def setup(self) -> str | None:
        """The script that prepares each node."""
        return self._fields.get("setup")

    @setup.setter
    def setup(self, value: str | None) -> None:
        self._set("setup", value)

    @property
    def run(self) -> Run | None:
        """What runs on each node."""
        return self._fields.get("run")

    @run.setter
    def run(self, value: Run | None) -> None:
        self._set("run", value)

    @property
    def workdir(self) -> str | dict[str, str] | None:
        """The folder that becomes the working folder."""
        return self._fields.get("workdir")

    @workdir.setter
    def workdir(self, value: str | Mapping[str, str] | None) -> None:
        self._set("workdir", value)

    @property
    def num_nodes(self) -> int:
        """On how many nodes it runs."""
        return self._fields.get("num_nodes", 1)

    @num_nodes.setter
    def num_nodes(self, value: int | None) -> None:
        self._set("num_nodes", value)

    @property
    def envs(self) -> dict[str, str]:
        """Variables of its scripts."""
        return dict(self._fields.get("envs") or {})

    @property
    def secrets(self) -> dict[str, str]:
        """Variables that are shown to nobody."""
        return dict(self._fields.get("secrets") or {})

    @property
    def envs_and_secrets(self) -> dict[str, str]:
        """All variables; a secret stands before another of its name."""
        return {**self.envs, **self.secrets}

    @property
    def file_mounts(self) -> dict[str, str] | None:
        """Paths and addresses, by where they go."""
        return {at: one for at, one in self._mounts().items() if isinstance(one, str)} or None

    def _mounts(self) -> dict[str, Any]:
        return self._fields.get("file_mounts") or {}

    @property
    def storage_mounts(self) -> dict[str, Storage]:
        """Storages, by where they go."""
        found: dict[str, Storage] = {}
        for name in ("file_mounts", "storage_mounts"):
            mounts = cast("dict[str, Any]", self._fields.get(name) or {})
            found.update({at: one for at, one in mounts.items() if isinstance(one, Storage)})
        return found

    @property
    def volumes(self) -> dict[str, Any]:
        """Disks by where they go."""
        return copy.deepcopy(self._fields.get("volumes") or {})

    @property
    def resources(self) -> set[Resources] | list[Resources]:
        """Every kind of machine that would do; a list when the first that can be had is wanted."""
        given = self.given_resources
        single = [one for several in given for one in several.alternatives()]
        ordered = any(one.is_ordered for one in given)
        return single if ordered else set(single)

    @property
    def given_resources(self) -> tuple[Resources, ...]:
        """Resources as they were given."""
        return self._fields.get("resources") or (Resources(),)

    @property
    def service(self) -> dict[str, Any] | None:
        """How replicas of it would serve."""
        return copy.deepcopy(self._fields.get("service"))

    def field(self, name: str) -> Any:
        """What a field of a task file says; None: nothing."""
        return copy.deepcopy(self._fields.get(name))

    @property
    def report(self) -> Report:
        """A fresh report that knows the file this was read from."""
        return Report(self._report.file, self._report.marked)

    # ── changed ─────────────────────────────────────────────────────────────────────────────────

    def _set(self, name: str, value: Any) -> Self:
        report = Report()
        found = None if value is None else fields.FIELDS[name](report, (name,), value)
        report.finish()
        self._fields = {key: item for key, item in self._fields.items() if key != name}
        if found is not None:
            self._fields[name] = found
        return self

    def set_resources(
        self, resources: Resources | Mapping[str, Any] | Sequence[Resources] | set[Resources]
    ) -> Self:
        """Run on these machines. Raises InvalidTaskYAMLError."""
        if isinstance(resources, list | tuple) and len(cast("Sequence[Any]", resources)) > 1:
            several = cast("Sequence[Any]", resources)
            configs = [one.to_yaml_config() if isinstance(one, Resources) else one for one in several]
            return self._set("resources", {"ordered": configs})
        return self._set("resources", resources)

    def set_resources_override(self, override: Mapping[str, Any]) -> Self:
        """The same machines with other values for some fields. Raises InvalidTaskYAMLError."""
        report = Report()
        fields_of_it = values.mapping(report, ("resources",), override, "an override is a mapping of fields")
        report.finish()
        changed = tuple(one.copy(**(fields_of_it or {})) for one in self.given_resources)
        return self._set("resources", changed)

    def update_envs(self, envs: Variables) -> Self:
        """Further variables, which stand before others of their names. Raises InvalidTaskYAMLError."""
        return self._set("envs", {**self.envs, **_checked("envs", envs)})

    def update_secrets(self, secrets: Variables) -> Self:
        """Further secrets, which stand before others of their names. Raises InvalidTaskYAMLError."""
        return self._set("secrets", {**self.secrets, **_checked("secrets", secrets)})

    def set_file_mounts(self, file_mounts: Mapping[str, str] | None) -> Self:
        """These paths and addresses instead of those before; storages stay. Raises InvalidTaskYAMLError."""
        kept = {at: one for at, one in self._mounts().items() if not isinstance(one, str)}
        given = {} if file_mounts is None else _checked("file_mounts", file_mounts)
        return self._set("file_mounts", {**kept, **given} or None)

    def update_file_mounts(self, file_mounts: Mapping[str, Any]) -> Self:
        """Further things that go somewhere. Raises InvalidTaskYAMLError."""
        return self._set("file_mounts", {**self._mounts(), **_checked("file_mounts", file_mounts)})

    def set_storage_mounts(self, storage_mounts: Mapping[str, Any] | None) -> Self:
        """These storages instead of those before. Raises InvalidTaskYAMLError."""
        self._set("file_mounts", self.file_mounts)
        return self._set("storage_mounts", storage_mounts)

    def set_service(self, service: Any) -> Self:
        """How replicas of it would serve; None: not at all. Raises InvalidTaskYAMLError."""
        written = getattr(service, "to_yaml_config", None)
        return self._set("service", service if written is None else written())

    def validate(self, *, workdir_only: bool = False) -> None:
        """Look whether the files it names are here. Asks nobody. Raises InvalidTaskYAMLError."""
        local.check(self, workdir_only=workdir_only)

    def __rshift__(self, other: Task) -> Task:
        """``a >> b``: b comes after a, inside of ``with sky.Dag()``. Raises InvalidTaskError elsewhere."""
        graph = joining.current()
        if graph is None:
            raise InvalidTaskError("a >> b says an order inside of `with sky.Dag():` only")
        graph.add_edge(self, other)
        return other

    def __repr__(self) -> str:
        ran = self.run
        shown = getattr(ran, "__name__", "a function") + "()" if callable(ran) else repr(_brief(ran))
        named = "" if self.name is None else f"{self.name}, "
        nodes = "" if self.num_nodes == 1 else f", num_nodes={self.num_nodes}"
        return f"Task({named}run={shown}{nodes})"


def _join(task: Task) -> None:
    graph = joining.current()
    if graph is not None:
        graph.add(task)


def _brief(script: Any) -> Any:
    if not isinstance(script, str):
        return script
    first = script.strip().partition("\n")[0]
    return first if len(first) < 40 and first == script.strip() else f"{first[:40]}…"


def _checked(name: str, given: Any) -> dict[str, Any]:
    """What is to be added to a field. Raises InvalidTaskYAMLError."""
    report = Report()
    found = fields.FIELDS[name](report, (name,), given)
    report.finish()
    return found or {}


def _plain(value: Any) -> Any:
    """A mapping as a file would give it: lists and mappings of their own, so that it is not changed."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("Sequence[Any]", value)]
    return value
