"""How the command ends: exit codes, and one line for every error with what to do next, or one JSON object.

Decides: which error has which exit code and which hint. Never: prints a traceback or catches anything.
Follows: a script can act on the exit code, and a person on the hint; the codes are on the page of
``sky --help`` (``nouns.EXITS``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from sky.client import endpoints, errors, exceptions

OK = 0
FAILED = 1
USAGE = 2
MISSING = 3
REFUSED = 4
UNREACHABLE = 5
INTERRUPTED = 130


class CliError(errors.SkyError):
    """Something the command itself found wrong. ``exit_code`` is the process's."""

    def __init__(self, code: str, message: str, hint: str | None = None, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint
        self.exit_code = exit_code


def usage(message: str, hint: str | None = None) -> CliError:
    """The command line, a file or a value cannot be accepted."""
    return CliError("usage", message, hint, USAGE)


class Ending(NamedTuple):
    """What is said about an error, and the exit code."""

    code: str
    message: str
    hint: str | None
    exit_code: int

    def text(self) -> str:
        """One line, and one more with the hint where there is one."""
        line = f"error: {self.code}: {self.message}"
        return f"{line}\nhint: {self.hint}" if self.hint else line

    def fields(self) -> dict[str, str | None]:
        """The same for a program."""
        return {"code": self.code, "message": self.message, "hint": self.hint}


def json_wanted(words: Sequence[str]) -> bool:
    """Whether a command line asks for JSON, however it is spelled; also one that cannot be parsed."""
    own = words[: words.index("--")] if "--" in words else words
    asked = any(pair[0] in ("-o", "--output") and pair[1] == "json" for pair in pairwise(own))
    return asked or any(word in ("--output=json", "-o=json", "-ojson") for word in own)


_HINTS = {
    "not_found": "list what is there with `sky compute list`, `sky task list` or `sky provider list`",
    "revision_conflict": "somebody changed it in between; look at it again and repeat",
    "idempotency_conflict": "repeat the command: it makes a new key",
    "lease_held": "another process holds it; wait until it lets go, or use another compute",
    "compute_not_accepting": "`sky compute get` shows its state; `sky why` tells how it came to that",
    "compute_not_connected": "no node is ready; `sky why` tells what they wait for",
    "compute_not_resizable": "`sky compute get` shows its state",
    "unsupported_provider": "`sky provider kinds` and `sky provider list` show what can be named",
    "capability_mismatch": "ask for less, or for another provider: `sky offers` shows what could be bought",
    "secret_in_definition": "put credentials on a provider: `sky provider add … --credential NAME=-`",
    "task_indeterminate": "it may have run; `sky task retry ID --acknowledge-duplication` runs it again",
    "duplication_not_acknowledged": "add --acknowledge-duplication if running it twice does no harm",
    "release_pending": "repeat the command in a moment",
    "unauthorized": "set SKY_TOKEN to a token of that daemon (its state folder has one, in `token`)",
    "forbidden": "this token may not do that",
    "cursor_expired": "events that old are no longer kept; leave the cursor out",
    "provider_in_use": "delete the computes that use it first: `sky compute list`",
    "busy": "the daemon has too much to do; repeat the command in a moment",
    "storage_full": "make room on the daemon's disk",
    "missing_key": "the key is `uck_` and 40 characters; the seller gives another one",
    "invalid_key": "the seller gives another one: `sky admin key create ACCOUNT`",
    "scope_denied": "ask the seller for a key with the scope jobs",
    "insufficient_balance": "have the account topped up, or ask for a shorter --max-runtime",
    "quota_exceeded": "wait for a job to end, or cancel one: `sky job list --status running`",
    "unknown_sku": "`sky sku list` shows what is sold",
    "sku_unavailable": "`sky sku list` shows what is sold",
    "upstream_unavailable": "`sky upstream list` shows which clouds can be used here",
    "missing_sku": "name one with --sku: `sky sku list`, or a --template: `sky template list`",
    "unknown_template": "`sky template list` shows those there are",
    "field_not_overridable": "`sky template list` shows what a submit may change",
    "missing_max_runtime": "say how long it may run with --max-runtime 15m",
    "missing_image": "name a container image with --image",
    "missing_command": "write what to run after --",
    "account_suspended": "ask the seller",
    "compute_not_enabled": "ask the seller: `sky admin account enable ACCOUNT`",
    "rate_limited": "repeat the command later",
    "internal": "the daemon's log says more: `sky server logs`",
}
_TO_DO = re.compile(r"(?:; |\. )((?:an admin gives it with )?`sky .*)")
_USAGE_CODES = frozenset({"invalid_request", "precondition_required"})
_REFUSED_STATUSES = frozenset({401, 402, 403, 409, 410, 412, 413, 422, 428, 429})


def _of_api(error: errors.ApiError) -> Ending:
    if error.code in _USAGE_CODES or (isinstance(error, errors.JobRefused) and error.status == 400):
        exit_code = USAGE
    elif error.status == 404:
        exit_code = MISSING
    elif error.code in ("task_failed", "task_indeterminate"):
        exit_code = FAILED
    else:
        exit_code = REFUSED if error.status in _REFUSED_STATUSES else FAILED
    # How to look with HTTP is for those who do; the hint says how to look from here.
    message, command = _with_what_to_do(error.message.partition("; list them with GET ")[0])
    hint = error.details.get("hint") or command or _HINTS.get(error.code)
    return Ending(error.code, message, hint, exit_code)


def _with_what_to_do(said: str) -> tuple[str, str | None]:
    """A message, and the command that it ends with, as a hint."""
    found = _TO_DO.search(said)
    return (said, None) if found is None else (said[: found.start()].rstrip("."), found[1])


def _of_daemon(error: errors.DaemonError) -> Ending:
    first, _, rest = str(error).partition("\n")
    match error:
        case errors.DaemonUnreachable():
            message = first.partition(". Is the daemon running?")[0].partition(": start one with")[0]
            # A daemon that is named is nobody's to start from here, and goes before one that is.
            named = endpoints.named(endpoints.home_dir())
            own = "start a daemon with `sky server start`, or name one in SKY_URL"
            hint = own if named.url is None else f"{named.by} names it; {named.undo} to use your own daemon"
            return Ending("daemon_unreachable", message, hint, UNREACHABLE)
        case errors.DaemonStartFailed():
            # What follows the first line is the end of the daemon's log: its last line is the reason.
            reason = next((line.strip() for line in reversed(rest.splitlines()) if line.strip()), "")
            message = f"{first.partition('; its log')[0]}{': ' + reason if reason else ''}"
            hint = "`sky server logs` shows all of it" if rest else None
            return Ending("daemon_start_failed", message, hint, FAILED)
        case _:
            return Ending("daemon_stop_failed", first, None, FAILED)


_EXITS_OF_REQUESTS: tuple[tuple[type[errors.SkyError], int], ...] = (
    (exceptions.ClusterDoesNotExist, MISSING),
    (exceptions.JobNotFoundError, MISSING),
    (exceptions.RequestNotFound, MISSING),
    (exceptions.StorageNotFoundError, MISSING),
    (exceptions.InvalidTaskError, USAGE),
    (exceptions.InvalidCloudError, USAGE),
    (exceptions.StorageSpecError, USAGE),
    (exceptions.InvalidArgument, USAGE),
    (exceptions.InvalidEndpointError, USAGE),
    (exceptions.ClusterNotUpError, REFUSED),
    (exceptions.ClusterNameTakenError, REFUSED),
    (exceptions.ClusterOwnerIdentityMismatchError, REFUSED),
    (exceptions.ResourcesMismatchError, REFUSED),
    (exceptions.NotSupportedError, REFUSED),
    (exceptions.PermissionDeniedError, REFUSED),
    (exceptions.APINotSupportedError, REFUSED),
    (exceptions.ApiServerAuthenticationError, REFUSED),
    (exceptions.ApiServerConnectionError, UNREACHABLE),
    (exceptions.RequestFailed, FAILED),
)
"""Exit codes of what requests fail with: the first class that fits."""


def _of_request(error: errors.SkyError) -> Ending | None:
    """What is said about an error of requests; None for another."""
    exit_code = next((code for kind, code in _EXITS_OF_REQUESTS if isinstance(error, kind)), None)
    if exit_code is None:
        return None
    name = error.type if isinstance(error, exceptions.RequestFailed) else type(error).__name__
    code = "daemon_unreachable" if exit_code == UNREACHABLE else _code_of(name)
    said = error.message if isinstance(error, exceptions.RequestFailed) else str(error)
    message, hint = _with_what_to_do(said)
    return Ending(code, message.rstrip("."), hint, exit_code)


def _code_of(name: str) -> str:
    """``cluster_not_up`` for ClusterNotUpError."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return words.lower().removesuffix("_error")


_CALL_CODES: tuple[tuple[type[errors.SkyError], str, str | None], ...] = (
    (errors.TaskIndeterminate, "task_indeterminate", _HINTS["task_indeterminate"]),
    (errors.TaskCancelled, "cancelled", None),
    (errors.TaskTimedOut, "timed_out", None),
    (errors.CallError, "task_failed", None),
    (
        errors.ComputeFailed,
        "compute_failed",
        "`sky why` tells what was tried",
    ),
    (errors.PackError, "cannot_pack", None),
    (errors.TransferFailed, "transfer_failed", "repeat the command: the storage may have been disturbed"),
)


def ending(error: errors.SkyError) -> Ending:
    """What to say about an error, and the exit code it ends with."""
    of_request = _of_request(error)
    if of_request is not None:
        return of_request
    match error:
        case CliError():
            return Ending(error.code, str(error), error.hint, error.exit_code)
        case errors.ApiError():
            return _of_api(error)
        case errors.DaemonError():
            return _of_daemon(error)
        case _:
            for kind, code, hint in _CALL_CODES:
                if isinstance(error, kind):
                    cause = error.details.get("cause") if isinstance(error, errors.TaskFailed) else None
                    return Ending(str(cause or code), str(error), hint, FAILED)
            return Ending("failed", str(error), None, FAILED)
