"""A Git repository as a working folder.

Decides: how a branch, tag or commit comes to this computer: by git, with its user's own rights, without
history. Never: asks for a password, or brings the repository's own records along.
Follows: what was fetched is a folder for a while, and travels like any other.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

FETCH_S = 600.0


class NotFetched(Exception):
    """A repository cannot be had; the message says why."""


@contextmanager
def fetched(url: str, ref: str | None) -> Generator[Path]:
    """The files of a repository at a branch, tag or commit; None: at its head. Raises NotFetched."""
    with tempfile.TemporaryDirectory(prefix="sky-repository-") as folder:
        _git(folder, "init", "--quiet")
        _git(folder, "fetch", "--quiet", "--depth", "1", "--", url, ref or "HEAD")
        _git(folder, "checkout", "--quiet", "--detach", "FETCH_HEAD")
        shutil.rmtree(Path(folder) / ".git")
        yield Path(folder)


def _git(folder: str, *arguments: str) -> None:
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        ran = subprocess.run(
            ["git", "-C", folder, *arguments],
            capture_output=True,
            env=environment,
            stdin=subprocess.DEVNULL,
            timeout=FETCH_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise NotFetched("git is not installed here") from error
    except subprocess.TimeoutExpired as error:
        raise NotFetched(f"git was not done after {FETCH_S:.0f} s") from error
    if ran.returncode:
        lines = ran.stderr.decode(errors="replace").strip().splitlines() or [
            f"git ended with {ran.returncode}"
        ]
        raise NotFetched(next((line for line in lines if line.startswith("fatal:")), lines[-1]))
