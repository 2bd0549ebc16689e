"""What ``sky mcp`` offers to a model: each tool is one command of ours, with the words it is called with.

Decides: which commands can be called, what each may be given, and which of them change something.
Never: lets a value stand where an option could: values follow a sign of equality, or fit a pattern that no
option fits. Follows: what a tool tells is what the command prints; a tool that only reads says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Arguments = Mapping[str, Any]

LIMIT_MAX = 200
LIMIT = 50
LINES_MAX = 1_000
LINES = 100
TEXT_CHARS_MAX = 20_000
NAME = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"
WORD = r"^[A-Za-z0-9][A-Za-z0-9._:/+-]{0,127}$"
TYPES: dict[str, Any] = {"string": str, "integer": int, "boolean": bool, "number": int | float}


@dataclass(frozen=True)
class Tool:
    """A command under a name. ``writes``: it changes something; ``destroys``: it ends something."""

    title: str
    description: str
    properties: dict[str, dict[str, Any]]
    words: Callable[[Arguments], list[str]]
    required: tuple[str, ...] = ()
    writes: bool = False
    destroys: bool = False
    again: bool = True
    """Whether doing it twice is as doing it once."""


def _text(description: str, pattern: str = WORD) -> dict[str, Any]:
    return {"type": "string", "description": description, "pattern": pattern}


def _choice(description: str, *values: str) -> dict[str, Any]:
    return {"type": "string", "description": description, "enum": list(values)}


def _number(description: str, least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "description": description, "minimum": least, "maximum": most}


def _flag(description: str) -> dict[str, Any]:
    return {"type": "boolean", "description": description}


_CLUSTER = _text("Name of a cluster.", NAME)
_LIMIT = _number(f"How many at most; {LIMIT} where nothing is said.", 1, LIMIT_MAX)
_COMMAND = {
    "type": "string",
    "description": "A command for bash.",
    "minLength": 1,
    "maxLength": TEXT_CHARS_MAX,
}
_DRY = _flag("Only tell what would be done, and at which price.")
_STATES = ("queued", "running", "succeeded", "failed", "cancelled", "timed_out", "indeterminate")


def _given(said: Arguments, **options: str) -> list[str]:
    """The options whose values were given: ``limit="--limit"`` is ``--limit=5``; a flag stands alone."""
    words: list[str] = []
    for name, option in options.items():
        value = said.get(name)
        if isinstance(value, bool) or value is None:
            words += [option] if value else []
        else:
            words.append(f"{option}={value}")
    return words


def _limited(said: Arguments) -> str:
    return f"--limit={said.get('limit', LIMIT)}"


def _named(said: Arguments, *names: str) -> list[str]:
    return [str(said[name]) for name in names if name in said]


def _machines(said: Arguments) -> list[str]:
    return _given(said, infra="--infra", gpus="--gpus", cpus="--cpus", memory="--memory", nodes="--num-nodes")


_JSON = ["-o", "json"]
_MACHINE = {
    "infra": _text("Where: aws, aws/us-east-1, ssh/POOL, local."),
    "gpus": _text("Such as A100:8."),
    "cpus": _text("CPUs of each node: 4, or 4+."),
    "memory": _text("GB of memory of each node: 16, or 16+."),
    "nodes": _number("On how many nodes.", 1, 1_000),
}

READING: dict[str, Tool] = {
    "status": Tool(
        "Clusters",
        "Clusters with their state, machines and price; all of the user's, or one.",
        {"cluster": _CLUSTER},
        lambda said: ["status", *_JSON, *_named(said, "cluster")],
    ),
    "queue": Tool(
        "Jobs of clusters",
        "The jobs of one cluster or of all, newest first, with their states.",
        {"cluster": _CLUSTER, "skip_finished": _flag("Only those that have not ended.")},
        lambda said: [
            "queue", *_JSON, *_given(said, skip_finished="--skip-finished"), *_named(said, "cluster"),
        ],
    ),
    "logs": Tool(
        "Log of a cluster's job",
        "The last lines that a job of a cluster printed; the newest job where none is named.",
        {
            "cluster": _CLUSTER,
            "job": _number("Number of the job.", 1, 10**9),
            "lines": _number(f"How many of the last lines; {LINES} where nothing is said.", 1, LINES_MAX),
        },
        lambda said: [
            "logs", "--no-follow", f"--tail={said.get('lines', LINES)}", *_named(said, "cluster", "job"),
        ],
        ("cluster",),
    ),
    "costs": Tool(
        "Costs of clusters",
        "What clusters have cost, in USD, also those that are gone.",
        {"days": _number("Clusters of the last so many days; 30 where nothing is said.", 1, 3_650)},
        lambda said: ["cost-report", *_JSON, *_given(said, days="--days")],
    ),
    "requests": Tool(
        "Requests",
        "Requests to the server, newest first: those under way, or all.",
        {"all": _flag("Also those that have ended."), "limit": _LIMIT},
        lambda said: ["api", "status", *_JSON, _limited(said), *_given(said, all="--all")],
    ),
    "computes": Tool(
        "Computes",
        "Computes (fleets for functions), newest first, with their states.",
        {"all": _flag("Also those that are deleted."), "limit": _LIMIT},
        lambda said: ["compute", "list", *_JSON, _limited(said), *_given(said, all="--all")],
    ),
    "nodes": Tool(
        "Nodes of a compute",
        "One compute with each of its nodes: machine, state, price, last error.",
        {"compute": _text("Name or id of a compute.", NAME)},
        lambda said: ["compute", "get", *_JSON, *_named(said, "compute")],
        ("compute",),
    ),
    "tasks": Tool(
        "Tasks",
        "Calls of functions on computes, newest first.",
        {
            "compute": _text("Only those of this compute (name or id).", NAME),
            "state": _choice("Only those in this state.", *_STATES),
            "limit": _LIMIT,
        },
        lambda said: [
            "task", "list", *_JSON, _limited(said), *_given(said, compute="--compute", state="--state"),
        ],
    ),
    "offers": Tool(
        "Offers",
        "Machines that could be bought now, cheapest first, in USD an hour. Buys nothing.",
        {
            "gpu": _text("Only with it: A100, or A100:8."),
            "cpus": _text("Cores: 8, or 8+."),
            "memory": _text("Memory in GB: 32, or 32+."),
            "region": _text("Only in this region."),
            "spot": _flag("Compare prices of the spot market."),
            "max_price": {"type": "number", "description": "USD an hour, at most.", "minimum": 0},
            "by_list": _flag("Prices of several clouds by list, of a certain day, without asking them."),
            "limit": _LIMIT,
        },
        lambda said: [
            "offers", *_JSON, _limited(said),
            *_given(
                said, gpu="--gpu", cpus="--cpus", memory="--memory", region="--region", spot="--spot",
                max_price="--max-price", by_list="--offline",
            ),
        ],
    ),
    "providers": Tool(
        "Providers",
        "The places that machines are had from, with their last errors.",
        {},
        lambda said: ["provider", "list", *_JSON],
    ),
    "why": Tool(
        "Why",
        "What was last decided about a compute, cluster, provider, node or task, why, and its last events.",
        {"of": _text("Its name or id.", NAME)},
        lambda said: ["why", *_JSON, *_named(said, "of")],
        ("of",),
    ),
    "jobs": Tool(
        "Paid jobs",
        "Paid jobs of the account whose key SKY_API_KEY has, newest first; or one, with its cost.",
        {"job": _text("Id of a job.", NAME), "limit": _LIMIT},
        lambda said: (
            ["job", "get", *_JSON, *_named(said, "job")] if "job" in said
            else ["job", "list", *_JSON, _limited(said)]
        ),
    ),
    "doctor": Tool(
        "Doctor",
        "What is wrong with this installation, and the commands that mend it.",
        {},
        lambda said: ["doctor", *_JSON],
    ),
}  # fmt: skip
WRITING: dict[str, Tool] = {
    "launch": Tool(
        "Launch a cluster",
        "BUYS MACHINES: runs a command on a cluster, which is made if need be and costs money until it is "
        "taken down. Ask first with dry_run, and tell the user the price. Returns a request; `requests` and "
        "`queue` tell what becomes of it.",
        {
            "cluster": _CLUSTER,
            "command": _COMMAND,
            **_MACHINE,
            "idle_minutes": _number("Take it down when it was idle for so long.", 0, 525_600),
            "dry_run": _DRY,
        },
        lambda said: [
            "launch", "--yes", f"--cluster={said['cluster']}", *_machines(said),
            *(["--down"] if "idle_minutes" in said else []),
            *_given(said, idle_minutes="--idle-minutes-to-autostop"),
            *(["--dryrun"] if said.get("dry_run") else ["--async", *_JSON]), "--", said["command"],
        ],
        ("cluster", "command"),
        writes=True,
        again=False,
    ),
    "exec": Tool(
        "Run on a cluster",
        "Runs a command on a cluster that is up, as a job. Returns a request.",
        {"cluster": _CLUSTER, "command": _COMMAND, "nodes": _MACHINE["nodes"]},
        lambda said: [
            "exec", f"--cluster={said['cluster']}", *_given(said, nodes="--num-nodes"), "--async", *_JSON,
            "--", said["command"],
        ],
        ("cluster", "command"),
        writes=True,
        destroys=True,
        again=False,
    ),
    "cancel": Tool(
        "Cancel a job",
        "ENDS A JOB of a cluster that waits or runs. The cluster stays, and goes on costing.",
        {"cluster": _CLUSTER, "job": _number("Number of the job.", 1, 10**9)},
        lambda said: ["cancel", "--yes", *_JSON, *_named(said, "cluster", "job")],
        ("cluster", "job"),
        writes=True,
        destroys=True,
    ),
    "down": Tool(
        "Take a cluster down",
        "DESTROYS A CLUSTER: its jobs end, its machines and disks with all that is on them are given back.",
        {"cluster": _CLUSTER},
        lambda said: ["down", "--yes", "--async", *_JSON, *_named(said, "cluster")],
        ("cluster",),
        writes=True,
        destroys=True,
    ),
}  # fmt: skip


def offered(writes: bool) -> dict[str, Tool]:
    """The tools by name."""
    return {**READING, **(WRITING if writes else {})}


def described(name: str, tool: Tool) -> dict[str, Any]:
    """A tool as a client is told of it."""
    return {
        "name": name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": {
            "type": "object",
            "properties": tool.properties,
            "required": list(tool.required),
            "additionalProperties": False,
        },
        "annotations": {
            "title": tool.title,
            "readOnlyHint": not tool.writes,
            "destructiveHint": tool.destroys,
            "idempotentHint": tool.again,
            "openWorldHint": tool.writes,
        },
    }


def wrong_with(tool: Tool, said: Arguments) -> str | None:
    """Why a tool cannot be called like that; None: it can."""
    for name in tool.required:
        if name not in said:
            return f"{name} is missing: {tool.properties[name]['description']}"
    for name, value in said.items():
        if name not in tool.properties:
            known = ", ".join(tool.properties) or "none"
            return f"there is no argument {name!r}; known: {known}"
        reason = _misfit(tool.properties[name], value)
        if reason is not None:
            return f"{name}: {reason}. {tool.properties[name]['description']}"
    return None


def _misfit(rule: Mapping[str, Any], value: Any) -> str | None:
    kind = TYPES[rule["type"]]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        return f"{value!r} is no {rule['type']}"
    if isinstance(value, str) and not re.fullmatch(rule.get("pattern", r"[\s\S]*"), value):
        return f"{value!r} does not fit {rule['pattern']}"
    if "enum" in rule and value not in rule["enum"]:
        return f"{value!r} is none of {', '.join(rule['enum'])}"
    if not isinstance(value, str):
        if not rule.get("minimum", value) <= value <= rule.get("maximum", value):
            return f"{value!r} is out of range"
    elif not rule.get("minLength", 0) <= len(value) <= rule.get("maxLength", TEXT_CHARS_MAX):
        return f"its length is {len(value)}, which is out of range"
    return None
