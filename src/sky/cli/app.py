"""Turns words into a call of a command's function, and refuses what is mistyped with what was meant.

Decides: how every command line is parsed, how its help page is laid out, what a wrong word is told.
Never: knows a command; modules declare theirs with ``noun`` and ``command``.
Follows: help pages look alike, fit 80 columns and end with examples, and a usage error is one line.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import App, CycloptsError, Parameter
from cyclopts import exceptions as wrong

from sky.cli import output
from sky.cli.errors import CliError, usage
from sky.cli.help import Pages
from sky.cli.nouns import NOUNS

if TYPE_CHECKING:
    from rich.console import Console

Command = TypeVar("Command", bound=Callable[..., Any])

Output = Annotated[
    output.Format,
    Parameter(
        name=["--output", "-o"],
        metavar="FORMAT",
        help="table for people, json for programs: the HTTP interface's own.",
    ),
]
Wait = Annotated[bool, Parameter(help="Wait until it is done, showing progress.")]
Yes = Annotated[bool, Parameter(name=["--yes", "-y"], negative=(), help="Do not ask.")]
DryRun = Annotated[bool, Parameter(negative=(), help="Only tell what would be changed.")]
Many = Parameter(negative_iterable=(), show_default=False)
"""Marks an option that may be given several times."""
TAKE_COMMANDS = frozenset({"launch", "exec"})
"""Nouns whose words may be a command with options of its own."""
PAGE_COLUMNS_MAX = 100
PROMPT = "  $ "


_apps: dict[str, App] = {}


def noun(name: str, *examples: str) -> App:
    """The application of one noun, for its commands to be added to: one, however many modules add to it."""
    if name not in _apps:
        _apps[name] = App(name=name, help=NOUNS[name].summary, help_format="plaintext", version_flags=[])
    if examples:
        _apps[name].help_epilogue = _examples(examples)
    return _apps[name]


def below(app: App, name: str, summary: str, *examples: str) -> App:
    """A word below a noun that has commands of its own."""
    made = App(
        name=name,
        help=summary,
        help_format="plaintext",
        help_epilogue=_examples(examples),
        version_flags=[],
    )
    app.command(made)
    return made


def command(
    app: App, *examples: str, name: str | None = None, instead: Sequence[str] = ()
) -> Callable[[Command], Command]:
    """Adds a function to a noun, with examples for its page and words people try instead of its name."""

    def add(function: Command) -> Command:
        app.command(function, name=name, help_epilogue=_examples(examples), synonym=tuple(instead))
        return function

    return add


def later(app: App, where: str, summary: str, *examples: str, name: str, instead: Sequence[str] = ()) -> None:
    """As ``command``, for a function (``module:name``) whose module is loaded when it is called."""
    app.command(where, name=name, help=summary, help_epilogue=_examples(examples), synonym=tuple(instead))


def only(name: str, *examples: str) -> Callable[[Command], Command]:
    """Makes a function the whole of a noun; the module's ``app`` is then ``noun(name)``."""

    def add(function: Command) -> Command:
        app = noun(name)
        app.help = inspect.getdoc(function)
        app.help_epilogue = _examples(examples)
        app.default(function)
        return function

    return add


def _examples(lines: Sequence[str]) -> str:
    return "Examples:\n" + "\n".join(PROMPT + line for line in lines)


def run(words: list[str]) -> int:
    """Carry out a command line that begins with a noun; returns the exit code."""
    return call(tree(words[0]), words)


def tree(*names: str) -> App:
    """The application, with these nouns loaded."""
    root = App(
        name="sky",
        version_flags=[],
        help_format="plaintext",
        help_formatter=Pages(),
        print_error=False,
        exit_on_error=False,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for name in names:
        module, _, served = NOUNS[name].module.partition(":")
        root.command(f"sky.cli.{module}:{served or 'app'}", name=name)
    return root


def call(app: App, words: list[str]) -> int:
    """Parse and carry out; a usage error becomes ours."""
    # Loading what draws pages costs more than most commands do.
    page = console() if len(words) < 2 or {"--help", "-h"}.intersection(words) else None
    try:
        ended = app(words, console=page, error_console=page)
    except CycloptsError as error:
        raise refusal(error) from error
    return ended if isinstance(ended, int) else 0


def console() -> Console:
    """Where help pages are printed: plain when piped."""
    from rich.console import Console

    return Console(
        file=sys.stdout,
        width=min(output.width(), PAGE_COLUMNS_MAX),
        force_terminal=output.movable(),
        color_system="standard" if output.coloured() else None,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
    )


def refusal(error: CycloptsError) -> CliError:
    """A usage error in our words: what is wrong, and the nearest thing that is right."""
    page = f"`sky {' '.join(error.command_chain or ())} --help`".replace("  ", " ").replace(" `", "`")
    text = " ".join(str(error).split()).rstrip(".")
    said, _, meant = text.partition(". Did you mean ")
    hint = f"did you mean {meant.partition('?')[0].replace(chr(34), '`')}?" if meant else page
    match error:
        case wrong.UnknownCommandError():
            message = said.partition(". Available commands:")[0]
            return usage(_lower(message), hint if meant else f"{page} lists the commands")
        case wrong.UnusedCliTokensError():
            extra = [repr(token) for token in error.unused_tokens or ()]
            many = "is one word" if len(extra) == 1 else f"are {len(extra)} words"
            return usage(f"{', '.join(extra)} {many} too many", f"{page} shows what is expected")
        case wrong.UnknownOptionError() if (error.command_chain or ("",))[0] in TAKE_COMMANDS:
            other = hint if meant else f"{page} lists those there are"
            return usage(_lower(said), f"what belongs to a command stands behind --; {other}")
        case wrong.CoercionError() | wrong.UnknownOptionError():
            return usage(_lower(said), hint if meant else f"{page} shows what is expected")
        case wrong.MissingArgumentError():
            name = error.argument.name if error.argument is not None else "an argument"
            return usage(
                f"{name} is missing or has no value", hint if meant else f"{page} shows what it takes"
            )
        case _:
            return usage(_lower(text), f"{page} shows what is expected")


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
