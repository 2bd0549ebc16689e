"""The closed sets of words that requests use: states, ways to look, what to choose by.

Decides: which words there are, and which states are final. Never: knows more states than the wire does.
Follows: each member is its own text, so it compares and prints as that.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

E = TypeVar("E", bound=StrEnum)


class ClusterStatus(StrEnum):
    """How a cluster stands."""

    INIT = "INIT"
    """Its machines are bought or made ready, or some of them are gone."""
    UP = "UP"
    """All its machines are ready."""
    STOPPED = "STOPPED"
    """It has no machines, and its disks are kept."""
    AUTOSTOPPING = "AUTOSTOPPING"
    """It was idle, and its machines are being given back."""


class JobStatus(StrEnum):
    """How a job of a cluster stands."""

    INIT = "INIT"
    """It waits for its cluster's machines."""
    PENDING = "PENDING"
    """It waits for room."""
    SETTING_UP = "SETTING_UP"
    """Its files are brought, and its setup runs."""
    RUNNING = "RUNNING"
    """Its script runs."""
    SUCCEEDED = "SUCCEEDED"
    """Its script ended with 0 on every node."""
    FAILED = "FAILED"
    """Its script ended otherwise on a node."""
    FAILED_SETUP = "FAILED_SETUP"
    """Its setup ended otherwise on a node."""
    FAILED_DRIVER = "FAILED_DRIVER"
    """It could not be run, for a reason that is not its own."""
    CANCELLED = "CANCELLED"
    """Somebody cancelled it, or its cluster went."""

    def is_terminal(self) -> bool:
        """Whether it is over."""
        return self not in (JobStatus.INIT, JobStatus.PENDING, JobStatus.SETTING_UP, JobStatus.RUNNING)

    @classmethod
    def terminal_statuses(cls) -> list[JobStatus]:
        """Those of jobs that are over."""
        return [status for status in cls if status.is_terminal()]

    @classmethod
    def nonterminal_statuses(cls) -> list[JobStatus]:
        """Those of jobs that are under way."""
        return [status for status in cls if not status.is_terminal()]


class RequestStatus(StrEnum):
    """How a request stands."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    """Between two tries of a launch."""
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    def is_finished(self) -> bool:
        """Whether it is over."""
        return self in (RequestStatus.SUCCEEDED, RequestStatus.FAILED, RequestStatus.CANCELLED)


class StatusRefreshMode(StrEnum):
    """How freshly a status is wanted."""

    NONE = "NONE"
    """As it is known."""
    AUTO = "AUTO"
    """Looked at again where it may have changed by itself."""
    FORCE = "FORCE"
    """Looked at again."""


class OptimizeTarget(StrEnum):
    """What machines are chosen by."""

    COST = "COST"
    TIME = "TIME"


def word_of(given: object) -> str | None:
    """The text of a member, or of a text that says the same in other letters. None stays None."""
    if given is None:
        return None
    return str(getattr(given, "value", given))
