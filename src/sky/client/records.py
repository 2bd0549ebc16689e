"""What requests answer with, as records that are mappings and have attributes.

Decides: the type of each request's result. Never: asks anybody anything. Follows: ``record["name"]`` and
``record.name`` are the same; a field that a newer server adds is there too; a word that is not known to this
release stays a text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeVar, cast

from sky.client.enums import ClusterStatus, JobStatus, RequestStatus
from sky.wire import requests as wire

T_co = TypeVar("T_co", covariant=True)


class RequestId(str, Generic[T_co]):
    """The id of a request; its type parameter is the type of its result.

    ``record`` is the request as it was when it was submitted: what can be done at once has its result
    there already, and is not asked for again.
    """

    __slots__ = ("record",)
    record: wire.RequestRecord | None

    def __new__(cls, text: str, record: wire.RequestRecord | None = None) -> RequestId[T_co]:
        made = super().__new__(cls, text)
        made.record = record
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return RequestId, (str(self),)


class Record(dict[str, Any]):
    """Named values, as items and as attributes."""

    shapes: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """How fields are read that are not what they look like."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        for name, shape in self.shapes.items():
            if self.get(name) is not None:
                self[name] = shape(self[name])

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(self)
            msg = f"a {type(self).__name__} has no {name!r}; it has {known}"
            raise AttributeError(msg) from None

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self})

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.items())
        return f"{type(self).__name__}({fields})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)


def _word(kind: type[StrEnum]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        return kind(value) if value in kind.__members__ else value

    return read


class ClusterHandle(Record):
    """What names a cluster: its machines, and how they are reached."""

    cluster_name: str
    launched_nodes: int

    @property
    def nodes(self) -> list[Record]:
        """Its nodes that are ready, by rank."""
        return [Record(node) for node in self.get("nodes") or ()]

    @property
    def head_ip(self) -> str | None:
        """The address of its first node; None while it has none."""
        return next((node["address"] for node in self.nodes), None)

    @property
    def launched_resources(self) -> Any:
        """What machines it has."""
        return self.get("resources")

    @property
    def cluster_name_on_cloud(self) -> str:
        """What its machines belong to, as its provider knows them."""
        return self.get("compute_id") or self.cluster_name

    def get_cluster_name(self) -> str:
        """Its name."""
        return self.cluster_name

    def external_ips(self) -> list[str]:
        """The addresses of its nodes, by rank."""
        return [node["address"] for node in self.nodes if node.get("address")]


class ClusterRecord(Record):
    """A cluster. Times are in seconds since 1970; ``autostop`` is in minutes, below 0 for never."""

    shapes: ClassVar = {"status": _word(ClusterStatus), "handle": ClusterHandle}
    name: str
    status: ClusterStatus
    launched_at: int
    handle: ClusterHandle | None
    autostop: int
    to_down: bool


class JobRecord(Record):
    """A job of a cluster. Times are in seconds since 1970."""

    shapes: ClassVar = {"status": _word(JobStatus)}
    job_id: int
    job_name: str | None
    status: JobStatus
    log_path: str


class CostRecord(Record):
    """What a cluster has cost. ``duration`` is in seconds of its machines; ``total_cost`` in USD."""

    shapes: ClassVar = {"status": _word(ClusterStatus)}
    name: str
    total_cost: float
    status: ClusterStatus | None


class RequestRecord(Record):
    """A request. Times are in seconds since 1970."""

    shapes: ClassVar = {"status": _word(RequestStatus)}
    request_id: str
    name: str
    status: RequestStatus


class ServerInfo(Record):
    """What a server is, and where."""

    endpoint: str
    status: str
    api_version: str
    version: str


# ── results ─────────────────────────────────────────────────────────────────────────────────────


def _each(kind: type[Record]) -> Callable[[Any], Any]:
    return lambda told: [kind(one) for one in told or ()]


def launched(told: Any) -> tuple[int | None, ClusterHandle | None]:
    """The job and the cluster of a launch."""
    handle = told.get("handle")
    return told.get("job_id"), None if handle is None else ClusterHandle(handle)


def _job_states(told: Any) -> dict[int, JobStatus | None]:
    return {int(number): None if state is None else JobStatus(state) for number, state in told.items()}


def by_port(told: Any) -> dict[int, str]:
    """Addresses by the port."""
    return {int(port): url for port, url in told.items()}


def as_records(told: Any) -> Any:
    """Whatever is told, its objects as records."""
    if isinstance(told, dict):
        return Record({name: as_records(value) for name, value in cast("dict[str, Any]", told).items()})
    if isinstance(told, list):
        return [as_records(one) for one in cast("list[Any]", told)]
    return told


def _named_lists(told: Any) -> dict[str, Any]:
    return {name: as_records(rows) for name, rows in told.items()}


_READERS: dict[str, Callable[[Any], Any]] = {
    "launch": launched,
    "exec": launched,
    "start": lambda told: None if told is None else ClusterHandle(told),
    "status": _each(ClusterRecord),
    "queue": _each(JobRecord),
    "job_status": _job_states,
    "cost_report": _each(CostRecord),
    "endpoints": by_port,
    "list_accelerators": _named_lists,
    "list_accelerator_counts": dict,
}


def result_of(record: wire.RequestRecord) -> Any:
    """The result of a request that succeeded, as its own type."""
    return _READERS.get(record.name, as_records)(record.result)


def request_record(record: wire.RequestRecord) -> RequestRecord:
    """A request as it is shown."""
    fields: dict[str, Any] = {name: getattr(record, name) for name in record.__struct_fields__}
    error = record.error
    if error is not None:
        fields["error"] = Record({"type": error.type, "message": error.message, "details": error.details})
    return RequestRecord(fields)
