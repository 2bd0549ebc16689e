"""The entry of the ``sky`` command: answers what costs nothing at once, loads one noun for the rest.

Decides: what is answered without loading anything, how every error becomes one line and an exit code, what
Ctrl-C and a closed pipe mean. Never: parses options; each noun's module does, once it is known.
Follows: ``sky --help`` and ``sky --version`` load nothing but the table of nouns, and a traceback is shown
only to who asks for it with SKY_DEBUG.
"""

from __future__ import annotations

import os
import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING

from sky.cli.nouns import ELSEWHERE, NOUNS, help_page, nouns_meant

if TYPE_CHECKING:
    from sky.cli.errors import Ending

BROKEN_PIPE = 0
"""A reader that has seen enough (``| head``) is no failure."""


def main(arguments: list[str] | None = None) -> int:
    """Carry out one command line; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if not os.environ.get("SKY_DEBUG"):
        sys.excepthook = _last_word
    try:
        code = _at_once(words)
        if code is None:
            code = _with_noun(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer goes nowhere, and must not be said at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        sys.stderr.write("\n" if sys.stderr.isatty() else "")
        return 130
    return code


def _at_once(words: list[str]) -> int | None:
    """Answer what needs no noun; None when there is one."""
    if not words or words[0] in ("--help", "-h", "help"):
        if len(words) > 1 and words[1] in NOUNS:
            return _with_noun([*words[1:], "--help"])
        bold = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        print(help_page(bold))
        return 0
    if words[0] in ("--version", "-V", "-v"):
        from sky.kit.version import VERSION

        print(f"sky {VERSION}")
        return 0
    if words[0] in NOUNS:
        return None
    kind = "option" if words[0].startswith("-") else "command"
    meant = nouns_meant(words[0]) if kind == "command" else []
    hint = f"did you mean `sky {meant[0]}`?" if meant else "`sky --help` lists them"
    hint = ELSEWHERE.get(words[0], hint)
    return _refuse(words, f"there is no {kind} {words[0]!r}", hint)


def _refuse(words: list[str], message: str, hint: str) -> int:
    from sky.cli import errors

    return _tell(words, errors.ending(errors.usage(message, hint)))


def _tell(words: list[str], ending: Ending) -> int:
    from sky.cli import errors, output

    if errors.json_wanted(words):
        output.tell_error_as_json(ending.fields())
    else:
        output.tell_error(ending.text())
    return ending.exit_code


def _with_noun(words: list[str]) -> int:
    from sky.cli import app, errors, output
    from sky.client import attempts, progress
    from sky.client.errors import SkyError

    output.prepare()
    attempts.when_away(output.away)
    progress.when_lasting(output.waiting)
    if not os.environ.get("SKY_DEBUG"):
        threading.excepthook = _last_word_of_thread
    try:
        if words[0] == "run":
            from sky.cli.run import arranged

            words = ["run", *arranged(words[1:])]
        return app.run(words)
    except SkyError as error:
        code = _tell(words, errors.ending(error))
        if os.environ.get("SKY_DEBUG"):
            import traceback

            traceback.print_exception(error)
        return code


def _last_word_of_thread(args: threading.ExceptHookArgs) -> None:
    """The same for a thread, whose end is not the command's."""
    if args.exc_value is not None:
        _last_word(args.exc_type, args.exc_value, args.exc_traceback)


def _last_word(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """One line for what nobody foresaw; the interpreter ends with 1 by itself."""
    from sky.cli import errors

    said = " ".join(str(error).split())
    message = f"{kind.__name__}{': ' + said if said else ''}"
    hint = "this is a defect of the command; SKY_DEBUG=1 shows where it happened"
    _tell(sys.argv[1:], errors.Ending("internal", message, hint, errors.FAILED))


if __name__ == "__main__":
    sys.exit(main())
