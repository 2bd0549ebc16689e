"""The pages of the commands, the SDK and the events, from the code that they are about.

Decides: their order and form. Never: what a command, a name or an event is; their own words say that.
Follows: a public name, a command or an event that is added is on its page, or drawing it fails.
"""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
from manual import Parts, commands, environment, parts_of
from marked import HEAD, header, joined, row, sentence

import sky
from sky.api.v1 import events as api_events
from sky.cli.nouns import EXITS, GROUPS
from sky.client import plugins
from sky.domain import compute, node, task
from sky.wire.v1 import events as v1_events

# ── commands ────────────────────────────────────────────────────────────────────────────────────


def commands_page() -> str:
    lines = [
        HEAD,
        "# Commands",
        "",
        "What `sky COMMAND --help` says, of all commands. `man sky` is the same.",
    ]
    for title, group in GROUPS:
        lines += ["", f"## {title.rstrip(':')}"]
        for words in commands(group):
            lines += command_lines(parts_of(words), words)
    lines += ["", "## Environment", "", *header("variable", "what it is")]
    lines += [row(f"`{name}`", said) for name, said in environment()]
    lines += ["", "## Exit codes", "", *header("code", "meaning")]
    lines += [row(str(code), said) for code, said in EXITS]
    return "\n".join(lines) + "\n"


def command_lines(parts: Parts, words: tuple[str, ...]) -> Iterator[str]:
    yield from ("", f"### sky {' '.join(words)}", "")
    for paragraph in parts.paragraphs:
        yield from (escaped(joined(paragraph)), "")
    if parts.usage:
        yield from ("```text", parts.usage, "```")
    for title, entries in parts.panels:
        yield from ("", *header(title.lower(), "what it is"))
        for label, description in entries:
            yield row(f"`{label}`", escaped(description))
    if parts.examples:
        yield from ("", "```console", *parts.examples, "```")


def escaped(text: str) -> str:
    """Text of a help page that Markdown prints as it stands, outside of code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*_<>\[\]])", r"\\\1", part) for part in parts)


# ── the SDK ─────────────────────────────────────────────────────────────────────────────────────

SUBJECTS = {
    "Functions and computes": (
        "function Function Pending map gather Future Items Compute AsyncCompute app App Image PipIndex Local "
        "Provider Spec Volume Worker Retry Options Plugin joblib_backend"
    ),
    "Inside a function": "instance_info InstanceInfo is_head shard",
    "Tasks": "Task Resources Storage Dag AWS Azure GCP K8s Kubernetes SSH",
    "Requests": (
        "launch exec status start stop down autostop queue job_status cancel tail_logs download_logs optimize "
        "validate check enabled_clouds list_accelerators list_accelerator_counts cost_report endpoints "
        "storage_ls storage_delete get stream_and_get RequestId api_start api_stop api_info api_login "
        "api_logout api_status api_cancel api_server_logs dashboard ClusterStatus JobStatus RequestStatus "
        "OptimizeTarget StatusRefreshMode"
    ),
    "Paid jobs": "Jobs Job Artifact JobWebhooks AsyncJobs AsyncJob AsyncArtifact AsyncJobWebhooks",
}
COLUMNS = 100
ELSEWHERE = {
    "errors": "every error: [errors of the SDK](../sdk.md#errors)",
    "exceptions": "every error of requests: [errors of requests](../sdk-requests.md#errors)",
    "plugins": "plugins: [below](#plugins)",
    "__version__": "the release, as text",
}


def signature(thing: Any, name: str, wrapped: bool = False) -> str:
    """How it is called, one parameter to a line where it is long."""
    told = inspect.signature(thing)
    ours = [one for one in told.parameters.values() if one.name not in ("self", "cls")]
    told = told.replace(parameters=[one.replace(annotation=written(one.annotation)) for one in ours])
    if told.return_annotation is not told.empty:
        told = told.replace(return_annotation=written(told.return_annotation))
    text = f"{name}{told}"
    if wrapped and len(text) > COLUMNS:
        each = [str(one) for one in told.parameters.values()]
        kinds = [one.kind for one in told.parameters.values()]
        if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
            each.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
        if positional := kinds.count(inspect.Parameter.POSITIONAL_ONLY):
            each.insert(positional, "/")
        text = f"{name}(\n    {(',' + chr(10) + '    ').join(each)},\n){text.rpartition(')')[2]}"
    text = re.sub(r"<(\w+\.\w+): [^>]*>", r"\1", text)
    return re.sub(r"<(?:object|factory|function)[^>]*>", "…", text).replace("'", '"')


class Written:
    """An annotation as it stands in the source."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def written(annotation: Any) -> Any:
    if annotation is inspect.Parameter.empty:
        return annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return Written(re.sub(r"\b(?:sky|typing|collections|msgspec|pathlib)(?:\.\w+)*\.(?=\w)", "", text))


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties, of its own classes of ours, in their order."""
    seen: set[str] = set()
    for base in kind.__mro__:
        if not base.__module__.startswith("sky."):
            continue
        for name, member in vars(base).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if inspect.isfunction(plain) or isinstance(plain, property):
                yield name, plain


def member_lines(kind: type) -> Iterator[str]:
    for name, member in members(kind):
        said = sentence(member)
        if isinstance(member, property):
            yield row(f"`{name}`", said or "–")
        else:
            lead = "await " if inspect.iscoroutinefunction(member) else ""
            yield row(f"`{lead}{signature(member, name)}`", said or "–")


def name_lines(name: str, thing: Any) -> Iterator[str]:
    yield from ("", f"### sky.{name}", "")
    text = joined((inspect.getdoc(thing) or "").split("\n\n")[0])
    if isinstance(thing, type) and issubclass(thing, enum.Enum):
        yield from (text, "", ", ".join(f"`{one.name}`" for one in thing))
        return
    if callable(thing):
        yield from ("```text", signature(thing, f"sky.{name}", wrapped=True), "```", "")
    rest = (inspect.getdoc(thing) or "").split("\n\n")[1:]
    yield "\n\n".join([text, *(paragraph.replace("``", "`") for paragraph in rest)])
    rows = list(member_lines(thing)) if isinstance(thing, type) else []
    if rows:
        yield from ("", *header("member", "what it is"), *rows)


def sdk_page() -> str:
    told = {name for names in SUBJECTS.values() for name in names.split()} | set(ELSEWHERE)
    failures = {
        name
        for name in sky.__all__
        if isinstance(getattr(sky, name), type) and issubclass(getattr(sky, name), BaseException)
    }
    assert told | failures == set(sky.__all__), f"in no subject: {set(sky.__all__) ^ told ^ failures}"
    lines = [
        HEAD,
        "# The SDK, name by name",
        "",
        "Everything that `import sky` gives. [The SDK](../sdk.md) says how the parts work together, and",
        "[the SDK of requests](../sdk-requests.md) how tasks are launched.",
    ]
    for subject, names in SUBJECTS.items():
        lines += ["", f"## {subject}"]
        for name in names.split():
            lines += name_lines(name, getattr(sky, name))
    lines += ["", "## Plugins"]
    for name, kind in vars(plugins).items():
        if isinstance(kind, type) and kind.__module__ == plugins.__name__ and not name.startswith("_"):
            lines += name_lines(f"plugins.{name}", kind)
    lines += ["", "## The rest", "", *header("name", "what it is")]
    lines += [row(f"`sky.{name}`", said) for name, said in ELSEWHERE.items()]
    lines.append(row(", ".join(f"`{name}`" for name in sorted(failures)), ELSEWHERE["errors"]))
    return "\n".join(lines) + "\n"


# ── events ──────────────────────────────────────────────────────────────────────────────────────


def fields_of(kind: type) -> str:
    return ", ".join(
        f"`{field.encode_name}`" if field.required else f"`{field.encode_name}`?"
        for field in msgspec.structs.fields(kind)
    )


ASKED_FOR = {
    "compute.created": ("compute", "It was asked for."),
    "node.requested": ("node", "A machine is wanted for it; or what was to be bought for it is refused."),
    "task.queued": ("task", "A call was asked for, or is to be tried again."),
}
"""Names of what comes into being, which no move says."""


def events_page() -> str:
    lines = [
        HEAD,
        "# Events",
        "",
        "`GET /v1/events` is a stream of what happens to computes, nodes and calls, as it happens. `id` of a message is",
        "its place: a reader that comes back with it, as `Last-Event-ID` or `?after=`, misses nothing that is recorded.",
        "`event` is a name of the second table, `data` one of the payloads of the first. `?compute=`, `?task=` and",
        "`?types=` choose among them; with `?follow=false` it ends after what is there.",
        "",
        "Paid jobs have [events of their own](../jobs.md#events), which webhooks tell too.",
        "",
        "## Payloads",
        "",
        "A field with `?` may be missing or null.",
        "",
        *header("`type`", "what it says", "fields"),
    ]
    kinds = {kind.__struct_config__.tag: kind for kind in get_args(v1_events.Event)}
    lines += [row(f"`{tag}`", sentence(kind), fields_of(kind)) for tag, kind in kinds.items()]
    lines += ["", "## Names", "", *header("`event`", "about", "when")]
    told = dict(ASKED_FOR)
    for noun, moves in (("compute", compute.MOVES), ("node", node.MOVES), ("task", task.TASK_MOVES)):
        for fact, move in moves.items():
            if move.event:
                said = told.get(move.event, (noun, ""))[1]
                told[move.event] = (
                    noun,
                    said if sentence(fact) in said else f"{said} {sentence(fact)}".strip(),
                )
    for name in sorted(api_events.NAMES - set(told)):
        told[name] = (name.partition(".")[0], sentence(kinds[name]))
    assert set(told) == api_events.NAMES, set(told) ^ api_events.NAMES
    lines += [row(f"`{name}`", *said) for name, said in sorted(told.items())]
    return "\n".join(lines) + "\n"
