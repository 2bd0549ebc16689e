"""The table of commands: what ``sky`` can be followed by, and where each of these words is carried out.

Decides: the nouns, their order on the help page, the sentence beside each, and words people try instead.
Never: imports what it names; the help page and the choice of a module must cost next to nothing.
Follows: a noun is one module with an ``app``, and adding one is a line here.
"""

from __future__ import annotations

from typing import NamedTuple


class Noun(NamedTuple):
    """A word after ``sky``: the module (below ``sky.cli``) that serves it, and what it is for.

    ``module``: with ``:name`` where the module serves several words.
    """

    module: str
    summary: str
    instead: tuple[str, ...] = ()


CALLED: dict[str, Noun] = {
    "run": Noun("run", "Run a function of a Python file on a compute, print its result.", ("call",)),
    "compute": Noun("compute", "Create, list, resize, delete computes; reach their nodes.", ("computes",)),
    "task": Noun("task", "List tasks, show one, retry, cancel, print a result.", ("tasks",)),
    "log": Noun("log", "Print what the nodes of a compute or a task wrote."),
}
SCRIPTED: dict[str, Noun] = {
    "launch": Noun("launch", "Run a task on a cluster, which is made if need be.", ("up",)),
    "exec": Noun("execute", "Run a task on a cluster that is up, without its setup."),
    "status": Noun("clusters:status_app", "Show clusters.", ("clusters", "cluster")),
    "start": Noun("cluster_acts:start_app", "Start stopped clusters.", ("restart", "resume")),
    "stop": Noun("cluster_acts:stop_app", "Stop clusters, and keep their disks.", ("pause",)),
    "down": Noun("cluster_acts:down_app", "Take clusters down.", ("terminate", "destroy")),
    "autostop": Noun("cluster_acts:autostop_app", "Say what happens to clusters when they are idle."),
    "queue": Noun("cluster_jobs:queue_app", "Show the jobs of clusters."),
    "logs": Noun("cluster_jobs:logs_app", "Print what a job of a cluster prints."),
    "cancel": Noun("cluster_jobs:cancel_app", "Cancel jobs of a cluster."),
    "ssh": Noun("ssh", "Open a terminal on a node of a cluster.", ("shell",)),
    "cost-report": Noun("clusters:costs_app", "Show what clusters have cost.", ("costs", "cost")),
    "check": Noun("clouds:check_app", "Try which clouds can be used.", ("clouds",)),
    "gpus": Noun("clouds:gpus_app", "List accelerators, their machines and prices.", ("gpu", "accelerators")),
    "show-gpus": Noun("clouds:show_gpus_app", "The same as `sky gpus list`."),
    "storage": Noun("storage", "List and delete storages.", ("storages", "bucket")),
    "api": Noun("api_server", "Start, stop, log in to a server; follow its requests.", ("requests",)),
    "dashboard": Noun("dashboard", "Open the dashboard in a browser.", ("ui",)),
}
SOLD: dict[str, Noun] = {
    "job": Noun("job", "Submit paid jobs, follow them, have their files; with a key.", ("jobs",)),
    "sku": Noun("sku", "List what paid jobs can run on, with prices.", ("skus", "catalogue")),
    "template": Noun("template", "List paid jobs that are written down already.", ("templates",)),
    "upstream": Noun("upstream", "List the clouds behind what is sold.", ("upstreams",)),
    "admin": Noun("admin", "Sell: accounts, their money and keys; check the ledger.", ("account", "ledger")),
    "console": Noun("console", "Run a console of customers and play money, for development."),
}
OPERATED: dict[str, Noun] = {
    "why": Noun("why", "Tell what was last decided about something, and why.", ("explain", "describe")),
    "offers": Noun("offers", "List machines that could be bought now, with prices.", ("offer", "prices")),
    "provider": Noun("provider", "List, add and remove places to get machines from.", ("providers", "cloud")),
    "server": Noun("server", "Start and stop the daemon, show its state and log.", ("daemon",)),
    "user": Noun("users", "Say who may use a server, and in which role.", ("users", "whoami", "role")),
    "token": Noun("users:token_app", "Make, list, rotate and revoke tokens of users.", ("tokens",)),
    "config": Noun(
        "config", "Show settings and their origin; check sky.toml.", ("settings", "configuration")
    ),
    "doctor": Noun("doctor", "Find what is wrong with this installation; how to mend it.", ("diagnose",)),
    "mcp": Noun("mcp", "Serve the Model Context Protocol, for programs with a model."),
    "openapi": Noun("openapi", "Print the OpenAPI document of the HTTP interface.", ("schema", "spec")),
    "completion": Noun("completion", "Install or print completion for your shell.", ("completions",)),
}
GROUPS: tuple[tuple[str, dict[str, Noun]], ...] = (
    ("Functions on computes:", CALLED),
    ("Tasks on clusters:", SCRIPTED),
    ("Paid jobs:", SOLD),
    ("All of them:", OPERATED),
)
"""What the help page shows together."""
NOUNS: dict[str, Noun] = {name: noun for _, group in GROUPS for name, noun in group.items()}

EXITS = (
    (0, "it worked"),
    (1, "it failed: a task raised, a compute or a cluster cannot be had"),
    (2, "the command line, a file or a value cannot be accepted as it is"),
    (3, "there is no such thing, or no daemon runs (`sky server status`)"),
    (4, "refused: what is there forbids it, or you may not"),
    (5, "no daemon answers"),
    (100, "the job of a cluster failed; 101: it has not ended; 103: cancelled"),
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
    "forward",
    "get",
    "ls",
    "resize",
    "rm",
    "upload",
    "view",
)
"""Commands of ``sky compute`` that people try without the noun."""
INSTEAD = {
    **{name: f"compute {name}" for name in OF_COMPUTE},
    **dict.fromkeys(("nodes", "node"), "compute get"),
    "attach": "compute shell",
    **dict.fromkeys(("ls", "list", "ps"), "compute list"),
    **dict.fromkeys(("cp", "files"), "compute upload"),
    **{name: f"api {name}" for name in ("login", "logout", "info")},
    "scale": "compute resize",
    "events": "log --events",
    "result": "task result",
    "version": "--version",
}
"""What they may have meant by a word that is no noun."""
ELSEWHERE = {
    "jobs": "`sky job` is for paid jobs; `sky launch` runs a task on a cluster, `sky queue` lists its jobs",
    "serve": "launch what serves with `resources: ports:`; `sky status NAME --endpoints` tells where it is",
    "local": "this computer is a cloud as it is: `sky launch --infra local`",
    **dict.fromkeys(("volumes", "volume"), "`file_mounts` of a task bring storages: `sky storage ls`"),
}
"""What stands here for commands that SkyPilot has, and this has not."""


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
        *(
            line
            for heading, group in GROUPS
            for line in (
                title(heading),
                *(f"  {name:<{width}}{noun.summary}" for name, noun in group.items()),
                "",
            )
        ),
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
        "  $ sky launch -c dev task.yaml",
        "  $ sky down dev",
    ]
    return "\n".join(lines)
