"""The steps of a paid job, as the daemon orders them and a node answers: pull, run, upload.

Decides: their names and shapes. Never: how a step is done (``agent/steps``).
Follows: a step travels as a function whose content begins with ``MAGIC`` and names it; its arguments and its
result are JSON, so that the daemon can read the result, which it could not if it were pickled.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

CODEC = "sky-step"
MAGIC = b"sky-step\n"
StepName = Literal["prepare", "run", "upload"]
HOST_IMAGE = "local"
"""The image that stands for none: the command runs as a process of the node itself."""
STOP_GRACE_SECONDS = 30
"""Between SIGTERM and SIGKILL of a command that is over its time."""


class Input(msgspec.Struct, frozen=True):
    """A file to download into a folder."""

    source: str
    mount: str


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """All that the steps of one job must know. ``outputs`` are folders; ``memory_gb`` and ``cpus`` limits;
    ``upload_token`` opens the upload of this job's files, and nothing else."""

    job: str
    image: str
    command: tuple[str, ...]
    env: dict[str, str]
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    max_runtime_seconds: int
    cpus: int
    memory_gb: int
    gpu_count: int
    upload_token: str
    host_allowed: bool
    private_inputs: bool = False
    """Whether inputs may come from addresses that are not public."""


class Failed(msgspec.Struct, frozen=True):
    """Why a step could not be done, for the customer."""

    code: str
    message: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a step returns. ``exit_code``, ``timed_out`` and ``out_of_memory`` are of the command; ``files``
    of the upload."""

    failed: Failed | None = None
    exit_code: int | None = None
    timed_out: bool = False
    out_of_memory: bool = False
    files: int | None = None


def function_content(name: StepName) -> bytes:
    """The content that names a step."""
    return MAGIC + name.encode()


def named(content: bytes) -> str | None:
    """The step that some content names; None when it names none."""
    return content[len(MAGIC) :].decode("ascii", "replace") if content.startswith(MAGIC) else None


def packed(value: Any) -> bytes:
    """A step's arguments or result as bytes."""
    return msgspec.json.encode(value)
