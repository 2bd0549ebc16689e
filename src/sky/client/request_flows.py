"""What is done with requests, written once for both drivers.

Decides: which operations each takes, and what a refusal of the server means to who uses requests.
Never: sends, sleeps or prints. Follows: each flow may be begun again after it broke off.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from http.client import RemoteDisconnected
from typing import Any

from sky.client import calls_requests as calls
from sky.client import exceptions, trust
from sky.client.errors import AccessDenied, ApiError, DaemonUnreachable, NotFound, SkyError
from sky.client.flows import Flow, ask
from sky.client.records import RequestId, result_of
from sky.client.request import Call, as_nothing
from sky.kit.version import VERSION
from sky.wire import requests as wire

WAIT_S = 30.0
"""How long one look waits for a request's end; it is looked at again until it is over."""
SILENT = frozenset(
    {
        *("status", "queue", "job_status", "cancel", "autostop", "cost_report", "endpoints"),
        *(
            "api_cancel",
            "enabled_clouds",
            "list_accelerators",
            "list_accelerator_counts",
            "storage_ls",
            "storage_delete",
        ),
    }
)
"""Requests that say nothing but their result: it is not asked what they said."""


def submit(name: str, body: wire.Body) -> Flow[RequestId[Any]]:
    """Ask for something; the id of the request."""
    told = yield from ask(calls.submit(name, body))
    return RequestId(told.request_id, told.record)


def known_end(request_id: str) -> wire.RequestRecord | None:
    """A request that was over when it was submitted; None: it has to be asked for."""
    known: wire.RequestRecord | None = getattr(request_id, "record", None)
    return known if known is not None and known.finished_at is not None else None


def silent_end(request_id: str | None) -> wire.RequestRecord | None:
    """The same for one that says nothing; None: it may have something to say."""
    known = None if request_id is None else known_end(request_id)
    return known if known is not None and known.name in SILENT else None


def await_end(request_id: str) -> Flow[wire.RequestRecord]:
    """A request, once it is over."""
    known = known_end(request_id)
    if known is not None:
        return known
    # The first look waits for nothing: a server that has answered it may be away for long after that.
    record = yield from ask(calls.get_request(request_id, 0.0))
    while record.finished_at is None:
        record = yield from ask(calls.get_request(request_id, WAIT_S))
    return record


def get(request_id: str) -> Flow[Any]:
    """A request's result. Raises its error."""
    return settled((yield from await_end(request_id)))


def settled(record: wire.RequestRecord) -> Any:
    """The result of a request that is over. Raises its error."""
    if record.error is not None:
        told = record.error
        raise exceptions.of_record(told.type, told.message, told.details, record.request_id)
    return result_of(record)


def newest() -> Flow[str]:
    """The id of the newest request. Raises RequestNotFound."""
    found = yield from ask(calls.list_requests(all_status=True, limit=1))
    if not found.items:
        raise exceptions.RequestNotFound("there is no request yet; `sky launch` and the like make one")
    return found.items[0].request_id


def cancel(ids: Sequence[str] | None, *, all_users: bool) -> Flow[tuple[str, ...]]:
    """End requests; those that were ended by it."""
    told = yield from ask(calls.cancel_requests(ids, all_users=all_users))
    return told.request_ids


def newest_job(cluster_name: str) -> Flow[int]:
    """The number of a cluster's newest job. Raises JobNotFoundError."""
    states = yield from get((yield from submit("job_status", wire.JobStatusBody(cluster_name=cluster_name))))
    if not states:
        msg = f"cluster {cluster_name!r} has no job yet; `sky exec {cluster_name} …` submits one"
        raise exceptions.JobNotFoundError(msg, {"cluster": cluster_name})
    return max(states)


def job_of_log_path(log_path: str) -> tuple[str, int]:
    """The cluster and the job whose output a record's ``log_path`` names. Raises InvalidArgument."""
    found = re.fullmatch(r"(?:.*/)?sky_logs/([^/]+)/([0-9]+)/?", log_path)
    if found is None:
        msg = f"{log_path!r} is not the log_path of a job, such as '~/sky_logs/dev/1': queue() tells them"
        raise exceptions.InvalidArgument(msg)
    return found[1], int(found[2])


def has_page(path: str) -> Flow[None]:
    """Whether the server serves that page. Raises NotSupportedError."""
    try:
        yield from ask(Call("GET", path, as_nothing))
    except NotFound as missing:
        msg = f"this server serves no page {path}: its release is without a dashboard, or without that page"
        raise exceptions.NotSupportedError(msg) from missing


# ── refusals ────────────────────────────────────────────────────────────────────────────────────


def meaning(error: SkyError, endpoint: str) -> SkyError:
    """What an error of a connection to a server means to who uses requests."""
    if isinstance(error, exceptions.ApiServerConnectionError | exceptions.ApiServerAuthenticationError):
        return error
    if isinstance(error, DaemonUnreachable):
        return exceptions.ApiServerConnectionError(endpoint, _cause(error))
    if not isinstance(error, ApiError):
        return error
    details = error.details
    if (named := details.get("type")) in exceptions.BY_NAME or named == "APINotSupportedError":
        return exceptions.of_record(named, error.message, details, None)
    if isinstance(error, AccessDenied):
        if error.status == 401:
            return exceptions.ApiServerAuthenticationError(endpoint, error.message)
        return exceptions.PermissionDeniedError(error.message, details)
    if isinstance(error, NotFound):
        return _missing(error)
    if str(details.get("field", "")).startswith("request_id"):
        return exceptions.RequestNotFound(error.message, details)
    if details.get("field") == wire.VERSION_HEADER or details.get("expected") == "one of the known fields":
        return _too_old(error)
    return error


def _missing(error: NotFound) -> SkyError:
    details = error.details
    if "job_id" in details:
        return exceptions.JobNotFoundError(error.message, details)
    if "cluster" in details:
        return exceptions.ClusterDoesNotExist(error.message, details)
    if "request" in details:
        return exceptions.RequestNotFound(error.message, details)
    return _too_old(error) if "path" in details else error


def _too_old(error: ApiError) -> SkyError:
    """One side does not know what the other one said: which one, and what to upgrade."""
    if error.details.get("field") == wire.VERSION_HEADER:
        return exceptions.APINotSupportedError(error.message)
    theirs = error.api_version
    if theirs is not None and theirs >= calls.spoken():
        return error
    speaks = "an older version" if theirs is None else f"version {theirs}"
    return exceptions.APINotSupportedError(
        f"the server does not know what was asked for ({error.message}). It speaks {speaks} of the interface,"
        f" and this client version {calls.spoken()} (release {VERSION}); upgrade the server, or leave it out"
    )


def _cause(error: DaemonUnreachable) -> str:
    cause = error.__cause__
    if cause is None:
        return ""
    if isinstance(cause, RemoteDisconnected):
        return "it closed the connection; the address of a server that speaks TLS begins with https://"
    return trust.refused(cause) or str(cause) or type(cause).__name__
