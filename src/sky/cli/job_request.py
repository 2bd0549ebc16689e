"""What ``sky job submit`` and ``sky job estimate`` are told of a job.

Decides: how a job is written on a command line. Never: sends it, or judges what a seller judges.
Follows: both commands take the same words, so that what is estimated is what would be submitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from sky.cli import output
from sky.cli.app import Many
from sky.cli.definition import seconds
from sky.cli.errors import usage
from sky.client.job_flows import RetryOn, Wanted

Pairs = Annotated[tuple[str, ...], Many, Parameter(metavar="NAME=VALUE")]
Words = Annotated[
    str, Parameter(name="COMMAND", allow_leading_hyphen=True, help="What to run, after --: every word.")
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options:
    """The options that describe a job; None where nothing was said."""

    sku: Annotated[str | None, Parameter(help="Kind of machine: `sky sku list`.")] = None
    image: Annotated[str | None, Parameter(help="Container image; its entrypoint is not used.")] = None
    template: Annotated[str | None, Parameter(help="Job that is written down: `sky template list`.")] = None
    env: Annotated[Pairs, Parameter(help="Variable of the command.")] = ()
    input_: Annotated[
        tuple[str, ...], Many, Parameter(name="--input", metavar="URL:DIR", help="File to have, and where.")
    ] = ()
    max_runtime: Annotated[str | None, Parameter(metavar="TIME", help="Longest runtime: 90, 15m, 2h.")] = None
    provider: Annotated[tuple[str, ...], Many, Parameter(help="Only on this cloud.")] = ()
    metadata: Annotated[Pairs, Parameter(help="What to remember with it.")] = ()
    after: Annotated[
        tuple[str, ...], Many, Parameter(metavar="JOB", help="Only once this job of yours has succeeded.")
    ] = ()
    retries: Annotated[
        int, Parameter(metavar="N", help="Begin again so often at most when its machine is lost.")
    ] = 0
    retry_on: Annotated[
        tuple[RetryOn, ...], Many, Parameter(help="What that is: a spot machine is taken, a machine fails.")
    ] = ("interrupted",)


OPTIONS = Options()


def wanted(words: Sequence[str], options: Options, outputs: Sequence[str]) -> Wanted:
    """The job that a command line describes."""
    longest = options.max_runtime
    return Wanted(
        sku=options.sku,
        template=options.template,
        image=options.image,
        command=words or None,
        env=_pairs(options.env, "--env") or None,
        inputs=[_input(text) for text in options.input_],
        outputs=outputs,
        max_runtime_seconds=None if longest is None else seconds(longest, "--max-runtime"),
        providers=options.provider,
        metadata=_pairs(options.metadata, "--metadata") or None,
        after=options.after,
        retries=options.retries,
        retry_on=options.retry_on,
    )


def outputs_of(texts: Sequence[str]) -> tuple[list[str], output.Format]:
    """The folders to keep, which are paths, and the format, which is none."""
    shown: output.Format = "table"
    folders: list[str] = []
    for text in texts:
        if text == "json" or text == "table":
            shown = text
        elif text.startswith("/"):
            folders.append(text)
        else:
            hint = "give a folder of the job such as /out, or table or json"
            raise usage(f"--output {text!r} is neither a folder nor a format", hint)
    return folders, shown


def _pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise usage(f"{option} {name!r} sets nothing", f"write {option} NAME=VALUE")
        found[name] = value
    return found


def _input(text: str) -> tuple[str, str]:
    source, _, mount = text.rpartition(":")
    if "://" not in source or not mount.startswith("/"):
        raise usage(
            f"--input {text!r} does not name an address and a folder", "write --input https://HOST/FILE:/DIR"
        )
    return source, mount
