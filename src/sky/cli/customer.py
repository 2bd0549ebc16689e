"""How a command reaches a seller of paid jobs.

Decides: where the key comes from: SKY_API_KEY, or a file. Never: takes a key from the command line, where
others could read it; starts a daemon. Follows: whatever the SDK can do with that key, a command can.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sky.cli import output
from sky.cli.errors import USAGE, CliError, usage
from sky.client.jobs import KEY_VARIABLE, Jobs

KEY_BYTES_MAX = 4096
COMMAND_PATIENCE_S = 30.0
"""How long a seller may be away, or ask to wait, in the middle of a command."""

KeyFile = Annotated[
    Path | None, Parameter(metavar="FILE", help="File with the key; else SKY_API_KEY has it.")
]


@contextmanager
def buying(key_file: Path | None) -> Generator[Jobs]:
    """The seller, with the customer's key."""
    key = _read(key_file) if key_file is not None else os.environ.get(KEY_VARIABLE)
    if not key:
        hint = f"set {KEY_VARIABLE}, or name a file with --key-file; the seller gives keys"
        raise CliError("missing_key", "no key was given", hint, USAGE)
    with Jobs(key=key, patience_s=COMMAND_PATIENCE_S) as jobs:
        yield jobs


@contextmanager
def looking() -> Generator[Jobs]:
    """The seller, for what anybody may read."""
    with Jobs(patience_s=COMMAND_PATIENCE_S) as jobs:
        yield jobs


def _read(file: Path) -> str:
    try:
        about = file.stat()
        if about.st_size > KEY_BYTES_MAX:
            raise usage(f"{file} is too large to be a key", "the file has the key and nothing else")
        if about.st_mode & (stat.S_IRGRP | stat.S_IROTH):
            output.note(f"others can read {file}: `chmod 600 {file}` keeps the key yours")
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"{file} cannot be read: {error}", "name the file that has the key") from error
    if not text:
        raise usage(f"{file} is empty", "name the file that has the key")
    return text


# ── how things look ─────────────────────────────────────────────────────────────────────────────


def moment(seconds: int) -> datetime:
    """A time of the interface as Python has it."""
    return datetime.fromtimestamp(seconds, UTC)


def dollars(text: str) -> str:
    """An amount with the decimals that say something, two at least."""
    whole, _, part = text.partition(".")
    return f"${whole}.{part.rstrip('0').ljust(2, '0')}"
