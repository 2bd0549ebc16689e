"""The files of a job on this computer: which, and where each goes.

Decides: that all files of a job lie below one folder as they lay where the job ran, and that one file is
named as it was asked for. Never: writes outside of that folder.
"""

from __future__ import annotations

from pathlib import Path

from sky.cli import output
from sky.cli.errors import FAILED, MISSING, CliError, usage
from sky.cli.nouns import near
from sky.client.job_files import below
from sky.client.job_flows import TERMINAL
from sky.client.jobs import Artifact, Job


def download_all(job: Job, path: str | None, to: str) -> list[tuple[Artifact, Path]]:
    """Have one file of a job, or all; and where each is."""
    files = job.artifacts()
    if path is not None:
        file = _named(job, files, path)
        return [(file, _fetch(file, to))]
    if not files:
        if job.status not in TERMINAL:
            hint = f"wait for it with `sky job wait {job.id}`"
            raise CliError("not_ended", f"{job.id} is {job.status} and has no files yet", hint, FAILED)
        raise CliError(
            "not_found", f"{job.id} kept no files", "name folders to keep when submitting", MISSING
        )
    got: list[tuple[Artifact, Path]] = []
    for number, file in enumerate(files, 1):
        output.progress(f"{number} of {len(files)}: {file.path}")
        got.append((file, _fetch(file, below(to, file.path))))
    output.clear_progress()
    return got


def _named(job: Job, files: tuple[Artifact, ...], path: str) -> Artifact:
    by_path = {file.path: file for file in files}
    if path not in by_path:
        meant = near(path, list(by_path))
        hint = f"did you mean `{meant[0]}`?" if meant else f"`sky job artifacts {job.id}` lists its files"
        raise CliError("not_found", f"{job.id} kept no file {path!r}", hint, MISSING)
    return by_path[path]


def _fetch(file: Artifact, goal: str | Path) -> Path:
    try:
        with output.waiting(f"downloading {file.path} …"):
            return file.download(goal)
    except OSError as error:
        if isinstance(error, ConnectionError):
            raise
        raise usage(f"{goal} cannot be written: {error.strerror}", "name another place with --to") from error
