"""``sky completion``: words completed by the shell.

Decides: where the script goes, or that it is printed. Never: asks a daemon; completion is of commands and
options, and works without one. Follows: a shell that was started before does not know it yet. What zsh is
given works wherever it is read, before completion is set up in a start-up file or after.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.completion.detect import ShellDetectionError, detect_shell

from sky.cli import output
from sky.cli.app import command, noun, tree
from sky.cli.errors import CliError, usage
from sky.cli.nouns import NOUNS

app = noun("completion")

Shell = Literal["bash", "zsh", "fish"]
ZSH_END = """
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _cyclopts_sky sky
"""
"""Says for which command the function above is; without it, zsh learns that from its own folders alone."""


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
            meant = shell or detect_shell()
            written = tree(*NOUNS).install_completion(
                shell=meant, output=file, add_to_startup=startup and meant != "zsh"
            )
            if meant == "zsh":
                _finish_zsh(written, startup=startup)
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
        meant = shell or detect_shell()
        output.write(tree(*NOUNS).generate_completion(shell=meant) + (ZSH_END if meant == "zsh" else ""))
    return 0


def _finish_zsh(script: Path, *, startup: bool) -> None:
    """Have the script say what it is for, and a start-up file read it."""
    with open(script, "a", encoding="utf-8") as file:
        file.write(ZSH_END)
    if not startup:
        return
    rc = Path(os.environ.get("ZDOTDIR") or Path.home()) / ".zshrc"
    line = os.fsencode(f"source {shlex.quote(str(script.absolute()))}\n")
    had = rc.read_bytes() if rc.exists() else b""  # in whatever encoding its owner writes
    if line not in had:
        with open(rc, "ab") as file:
            file.write((b"" if not had or had.endswith(b"\n") else b"\n") + line)


@contextlib.contextmanager
def _found_out() -> Generator[None]:
    try:
        yield
    except ShellDetectionError as error:
        raise usage("your shell cannot be found out", "name it: --shell bash, zsh or fish") from error
