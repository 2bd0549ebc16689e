"""Asking a person before something is ended or paid for.

Decides: what counts as yes, and that nobody is asked where nobody sits.
Never: takes silence for consent where something would be lost; a line that is empty may begin something.
Follows: a script says --yes and is not held up.
"""

from __future__ import annotations

import sys

from sky.cli import output
from sky.cli.errors import REFUSED, CliError


def somebody_is_there() -> bool:
    """Whether a question can be asked, and answered."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, otherwise: str, *, begins: bool = False) -> None:
    """Go on only when a person says yes. ``otherwise``: what has not happened when they do not. ``begins``:
    something begins and nothing ends, so that an empty line is a yes; the end of the input is none."""
    if not somebody_is_there():
        raise CliError("not_confirmed", f"{question} nobody can be asked here", "add --yes", REFUSED)
    output.clear_progress()
    sys.stderr.write(f"{output.clean(question)} {'[Y/n]' if begins else '[y/N]'} ")
    sys.stderr.flush()
    said = sys.stdin.readline()
    if said.strip().lower() not in ("y", "yes") and not (begins and said and not said.strip()):
        raise CliError("not_confirmed", otherwise, None, REFUSED)
