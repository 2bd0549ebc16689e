"""Which container engine this computer has, whether it works, and what engines say in plain words.

Decides: podman before docker, and what counts as working: it answers a question about itself.
Never: starts a container. Follows: an engine whose commands are installed and whose service is not running
is none, and the reason says so.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

PROBE_SECONDS_MAX = 30.0
REASON_CHARS_MAX = 400
_QUESTIONS: tuple[tuple[Literal["podman", "docker"], tuple[str, ...]], ...] = (
    ("podman", ("info", "--format", "{{.Host.Security.Rootless}}")),
    ("docker", ("version", "--format", "{{.Server.Version}}")),
)
_LOGIN = ("unauthorized", "authentication required", "denied", "no basic auth")
_MISSING = ("manifest unknown", "not found", "name unknown", "does not exist", "unknown manifest")
_UNREACHABLE = (
    "no such host",
    "connection refused",
    "timeout",
    "timed out",
    "unreachable",
    "no route",
    "tls",
)


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that answers. ``rootless``: it may do no more than the user it runs as."""

    name: Literal["podman", "docker"]
    program: str
    rootless: bool


def missing(environment: Mapping[str, str]) -> str | None:
    """Why there can be no engine, as far as that is seen without asking one; None: there may be one."""
    names = [name for name, _ in _QUESTIONS]
    if any(shutil.which(name, path=environment.get("PATH")) for name in names):
        return None
    return "; ".join(f"{name} is not installed" for name in names)


def find(environment: Mapping[str, str]) -> Engine | str:
    """The engine to use, or why there is none. Takes up to a second, and blocks."""
    reasons: list[str] = []
    for name, question in _QUESTIONS:
        program = shutil.which(name, path=environment.get("PATH"))
        if program is None:
            reasons.append(f"{name} is not installed")
            continue
        try:
            answer = subprocess.run(
                [program, *question],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PROBE_SECONDS_MAX,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            reasons.append(f"{name} does not work: {error}")
            continue
        said = answer.stdout.decode("utf-8", "replace").strip()
        if answer.returncode == 0 and said:
            return Engine(name, program, rootless=said == "true")
        reasons.append(f"{name} does not work: {reason(answer.stderr)}")
    return "; ".join(reasons)


def reason(stderr: bytes) -> str:
    """What an engine gave as its reason for failing."""
    lines = [line.strip() for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    begins = [n for n, line in enumerate(lines) if line.startswith(("Error", "error", "Cannot", "docker:"))]
    text = " ".join(lines[begins[-1] if begins else -1 :]) or "it does not say why"
    return text.removeprefix("Error: ").removeprefix("docker: ")[:REASON_CHARS_MAX]


def reference(image: str) -> str:
    """An image with its registry: names without one are Docker Hub's, as with Docker itself."""
    first, slash, _ = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return image
    return f"docker.io/{image}" if slash else f"docker.io/library/{image}"


def why_not_pulled(said: str) -> str:
    """What an engine's reason for a failed pull means, to be told before it; empty: it is plain enough."""
    low = said.lower()
    if any(word in low for word in _LOGIN):
        return "the registry does not give it without a login, or there is none of that name: "
    if any(word in low for word in _UNREACHABLE):
        return "its registry cannot be reached: "
    if any(word in low for word in _MISSING):
        return "there is no such image: "
    if "digest" in low:
        return "what the registry has is not what its digest says: "
    return ""
