"""A job that was asked for, from the request to its end: what `sky launch` and `sky exec` have in common.

Decides: what is streamed where, what is said behind it, and which exit code a job's end is.
Never: ends a job because this command ends. Follows: lines of the job are the result and go to standard
output, or to standard error where JSON was asked for; all else goes to standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO

from sky.cli import output
from sky.cli.cluster_jobs import follow_job
from sky.cli.scripted import LiveRequest, SetupBegins, plain, result
from sky.client import sdk

HOW_ENDED = {
    "FAILED": "failed",
    "FAILED_SETUP": "failed in its setup",
    "FAILED_DRIVER": "was lost, or could not be run",
    "CANCELLED": "was cancelled",
}


@dataclass(frozen=True)
class Manner:
    """How a job is to be followed. ``detach``: not at all; ``later``: not even its request."""

    detach: bool
    later: bool
    format: str


@dataclass(frozen=True)
class Ran:
    """What came of it. ``code``: the exit code of the command."""

    request_id: str
    cluster: str | None
    job_id: int | None
    code: int
    status: str | None = None
    handle: Any = None

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "request_id": self.request_id,
            "cluster_name": self.cluster,
            "job_id": self.job_id,
            "status": self.status,
            "exit_code": self.code,
            "handle": plain(self.handle),
        }


def carry_out(ask: Callable[[], str], cluster: str | None, manner: Manner, *, shown: bool = False) -> Ran:
    """Ask, show what happens, follow the job. ``shown``: the machines that would do were shown already.

    Raises what the request fails with.
    """
    request_id = ask()
    if manner.later:
        return Ran(str(request_id), cluster, None, 0)
    live = LiveRequest(sys.stderr, machines=not shown, setup=manner.detach)
    stream = sys.stderr if manner.format == "json" else sys.stdout
    try:
        with output.waiting(f"{cluster or 'the cluster'} is made ready …"):
            job_id, handle = sdk.stream_and_get(request_id, output_stream=live)
        name = handle["cluster_name"] if handle is not None else cluster
        if job_id is None or name is None or manner.detach:
            return Ran(str(request_id), name, job_id, 0, handle=handle)
        code = _follow(name, job_id, stream)
    except SetupBegins as begins:
        code = _follow(begins.cluster, begins.number, stream)
        job_id, handle = sdk.get(request_id)  # it is over, as its job is; or raises why it failed
        name = begins.cluster
    status = None
    if manner.format == "json":
        states = dict(result(sdk.job_status(name, [job_id]), "asking for the state"))
        status = plain(states.get(job_id))
    return Ran(str(request_id), name, job_id, code, status, handle)


def _follow(cluster: str, number: int, stream: TextIO) -> int:
    output.note(f"submitted as job {number} of {cluster}")
    return follow_job(cluster, number, stream=stream)


def tell(ran: Ran, manner: Manner) -> int:
    """What stands behind it all; the exit code."""
    if manner.format == "json":
        output.json(ran.as_json())
        return ran.code
    if manner.later:
        output.say(ran.request_id)
        output.note(f"submitted; `sky api logs {ran.request_id}` follows it")
    elif ran.cluster is not None and ran.job_id is not None and manner.detach:
        output.say(str(ran.job_id))
        output.note(f"job {ran.job_id} of {ran.cluster}: `sky logs {ran.cluster} {ran.job_id}` follows it")
    elif ran.cluster is not None and ran.job_id is None:
        output.note(f"cluster {ran.cluster} is up")
    elif ran.code:
        output.note(f"job {ran.job_id} of {ran.cluster} {_how(ran)}: `sky queue {ran.cluster}`")
    return ran.code


def _how(ran: Ran) -> str:
    """How a job ended that did not succeed."""
    asked = sdk.queue(ran.cluster or "", False, True)
    job = next((one for one in result(asked, "asking how it ended") if one["job_id"] == ran.job_id), None)
    if job is None:
        return "did not succeed"
    said = HOW_ENDED.get(plain(job["status"]), "has not ended")
    codes = list(dict.fromkeys(str(code) for code in job.get("exit_codes") or () if code))
    if not codes:
        return said
    return f"{said} with exit code{'s' if len(codes) > 1 else ''} {' and '.join(codes)}"
