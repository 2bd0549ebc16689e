"""The table of commands: what ``sky`` can be followed by, and where each of these words is carried out.

Decides: the nouns, their order on the help page, the sentence beside each, and words people try instead.
Never: imports what it names; the help page and the choice of a module must cost next to nothing.
Follows: a noun is one module with an ``app``, and adding one is a line here.
"""

from __future__ import annotations

from typing import NamedTuple


class Noun(NamedTuple):
    """A word after ``sky``: the module (below ``sky.cli``) that serves it, and what it is for."""

    module: str
    summary: str
    instead: tuple[str, ...] = ()


NOUNS: dict[str, Noun] = {
    "run": Noun("run", "Run a function of a Python file on a compute, print its result.", ("call",)),
    "compute": Noun(
        "compute", "Create, list, resize, delete computes; reach their nodes.", ("cluster", "computes")
    ),
    "task": Noun("task", "List tasks, show one, retry, cancel, print a result.", ("tasks",)),
    "log": Noun("log", "Print what the nodes of a compute or a task wrote.", ("logs",)),
    "why": Noun("why", "Tell what was last decided about something, and why.", ("explain", "describe")),
    "offers": Noun("offers", "List machines that could be bought now, with prices.", ("offer", "prices")),
    "provider": Noun("provider", "List, add and remove places to get machines from.", ("providers", "cloud")),
    "job": Noun("job", "Submit paid jobs, follow them, have their files; with a key.", ("jobs",)),
    "sku": Noun("sku", "List what paid jobs can run on, with prices.", ("skus", "catalogue")),
    "template": Noun("template", "List paid jobs that are written down already.", ("templates",)),
    "upstream": Noun("upstream", "List the clouds behind what is sold.", ("upstreams",)),
    "admin": Noun("admin", "Sell: accounts, their money and keys; check the ledger.", ("account", "ledger")),
    "console": Noun("console", "Run a console of customers and play money, for development."),
    "server": Noun("server", "Start and stop the daemon, show its state and log.", ("daemon", "start")),
    "config": Noun(
        "config", "Show settings and their origin; check sky.toml.", ("settings", "configuration")
    ),
    "openapi": Noun("openapi", "Print the OpenAPI document of the HTTP interface.", ("schema", "spec")),
    "completion": Noun("completion", "Install or print completion for your shell.", ("completions",)),
}

EXITS = (
    (0, "it worked"),
    (1, "it failed: a task raised, a compute cannot be had"),
    (2, "the command line, a file or a value cannot be accepted as it is"),
    (3, "there is no such thing, or no daemon runs (`sky server status`)"),
    (4, "refused: what is there forbids it, or you may not"),
    (5, "no daemon answers"),
    (130, "interrupted with Ctrl-C"),
)


def near(word: str, known: list[str], limit: int = 1) -> list[str]:
    """The known words that ``word`` was probably meant to be, best first."""
    import difflib

    return difflib.get_close_matches(word, known, n=limit, cutoff=0.6)


def nouns_meant(word: str) -> list[str]:
    """Nouns, or a noun and a command, that a mistyped or foreign word may stand for."""
    by_habit = [name for name, noun in NOUNS.items() if word in noun.instead]
    by_habit += [INSTEAD[word]] if word in INSTEAD else []
    return by_habit or near(word, list(NOUNS))


OF_COMPUTE = (
    "create",
    "delete",
    "download",
    "exec",
    "forward",
    "get",
    "ls",
    "resize",
    "rm",
    "shell",
    "upload",
    "view",
)
"""Commands of ``sky compute`` that people try without the noun."""
INSTEAD = {
    **{name: f"compute {name}" for name in OF_COMPUTE},
    **dict.fromkeys(("nodes", "node"), "compute get"),
    **dict.fromkeys(("ssh", "attach"), "compute shell"),
    **dict.fromkeys(("ls", "list", "ps"), "compute list"),
    **dict.fromkeys(("cp", "files"), "compute upload"),
    **dict.fromkeys(("up", "launch"), "compute create"),
    **dict.fromkeys(("down", "terminate"), "compute delete"),
    "scale": "compute resize",
    "events": "log --events",
    "cancel": "task cancel",
    "result": "task result",
}
"""What they may have meant by a word that is no noun."""


def help_page(bold: bool) -> str:
    """The page of ``sky --help``: fits 80 columns."""

    def title(text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if bold else text

    width = max(map(len, NOUNS)) + 2
    lines = [
        f"{title('Usage:')} sky COMMAND …",
        "",
        "Turns any machines into compute that can be called, scripted and sold.",
        "",
        title("Commands:"),
        *(f"  {name:<{width}}{noun.summary}" for name, noun in NOUNS.items()),
        "",
        title("Options:"),
        f"  {'--help':<{width}}Show this page; after a command, the page of that command.",
        f"  {'--version':<{width}}Print the release.",
        "",
        title("Environment:"),
        "  SKY_URL     address of the daemon; without it, the one of SKY_HOME",
        "  SKY_TOKEN   token to show to a daemon that is not your own",
        "  SKY_API_KEY key of a customer, for `sky job`",
        "  SKY_HOME    folder of the daemon's state (default ~/.sky)",
        "  NO_COLOR    never colour anything",
        "  SKY_DEBUG   show where in the program an error came from",
        "",
        title("Exit codes:"),
        *(f"  {code:<5}{meaning}" for code, meaning in EXITS),
        "",
        title("Examples:"),
        "  $ sky compute create dev --nodes 2 --pip numpy",
        "  $ sky run --compute dev train.py:train --epochs 10",
        "  $ sky compute delete dev --yes",
    ]
    return "\n".join(lines)
