"""``sky completion``: words completed by the shell.

Decides: where the script goes, or that it is printed. Never: asks a daemon; completion is of commands and
options, and works without one. Follows: a shell that was started before does not know it yet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from sky.cli import output
from sky.cli.app import command, noun, tree
from sky.cli.errors import CliError, usage
from sky.cli.nouns import NOUNS

app = noun("completion")

Shell = Literal["bash", "zsh", "fish"]


@command(app, "sky completion install", "sky completion install --shell zsh --no-startup")
def install(
    *,
    shell: Annotated[Shell | None, Parameter(help="Your shell; else it is found out.")] = None,
    file: Annotated[Path | None, Parameter(help="Where the script goes; else where the shell looks.")] = None,
    startup: Annotated[bool, Parameter(help="Also name it in the shell's start-up file.")] = True,
) -> int:
    """Install completion for your shell."""
    try:
        with _found_out():
            written = tree(*NOUNS).install_completion(shell=shell, output=file, add_to_startup=startup)
    except OSError as error:
        raise CliError("failed", f"the script cannot be written: {error}", "choose another --file") from error
    output.say(str(written))
    output.note("a shell that you start now completes `sky`")
    return 0


@command(app, "sky completion show --shell bash", "source <(sky completion show --shell bash)")
def show(
    *, shell: Annotated[Shell | None, Parameter(help="For this shell; else yours is found out.")] = None
) -> int:
    """Print the completion script."""
    with _found_out():
        output.write(tree(*NOUNS).generate_completion(shell=shell))
    return 0


@contextlib.contextmanager
def _found_out() -> Generator[None]:
    from cyclopts.completion.detect import ShellDetectionError

    try:
        yield
    except ShellDetectionError as error:
        raise usage("your shell cannot be found out", "name it: --shell bash, zsh or fish") from error
