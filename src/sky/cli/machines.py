"""``sky compute exec|ls|upload|download|rm``: commands and files on the nodes of a compute.

Decides: how outputs of several nodes are told apart and what the exit code is. Never: quotes or changes what
a command wrote. Follows: with one node, output and exit code are those of the command, as with ssh; with
several, each line says its rank and the exit code is the largest.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, TextIO

from cyclopts import Parameter

from sky.cli import output
from sky.cli.app import Output, command, noun
from sky.cli.computes import Name
from sky.cli.connection import Api, reading
from sky.cli.errors import FAILED, CliError, usage
from sky.client import calls, calls_machines
from sky.wire import v1

app = noun("compute")

EXIT_MAX = 255
PIECE_BYTES = 256 * 1024
Node = Annotated[str, Parameter(metavar="RANK|ID|all", help="Which node.")]


@command(
    app,
    "sky compute exec dev nvidia-smi",
    "sky compute exec dev --node 0 -- ls -la /tmp",
    "sky compute exec dev 'df -h | tail -1' -o json",
    name="exec",
    instead=("ssh", "sh"),
)
def exec_(
    compute: Name,
    /,
    *words: Annotated[str, Parameter(name="COMMAND", help="What to run; one word is read by a shell.")],
    node: Node = "all",
    output_: Output = "table",
) -> int:
    """Run a command on the nodes. The exit code is the command's, the largest of several nodes.

    What follows -- belongs to the command, options too.
    """
    if not words:
        raise usage("no command was given", "write it behind the compute: `sky compute exec dev hostname`")
    text = words[0] if len(words) == 1 else shlex.join(words)
    with reading() as api:
        results = api.send(calls_machines.run_command(compute, text, node))
        return _show(api, compute, results, output_)


@command(app, "sky compute ls dev", "sky compute ls dev /tmp --node 1", instead=("dir", "files"))
def ls(
    compute: Name,
    path: Annotated[str, Parameter(help="Folder on the node.")] = ".",
    /,
    *,
    node: Node = "0",
    output_: Output = "table",
) -> int:
    """List a folder of a node."""
    with reading() as api:
        return _show(api, compute, api.send(calls_machines.list_files(compute, path, node)), output_)


@command(app, "sky compute rm dev old.bin", "sky compute rm dev results --node 1", instead=("remove",))
def rm(
    compute: Name,
    path: Annotated[str, Parameter(help="File or folder on the nodes.")],
    /,
    *,
    node: Node = "all",
    output_: Output = "table",
) -> int:
    """Remove a file or folder from the nodes."""
    with reading() as api:
        return _show(api, compute, api.send(calls_machines.remove_files(compute, path, node)), output_)


def _show(api: Api, compute: str, results: Mapping[str, v1.Result], output_: str) -> int:
    """Print what every node said; the exit code of them all."""
    if output_ == "json":
        output.json(results)
    else:
        ranks = _ranks(api, compute) if len(results) > 1 else {}
        for node, result in sorted(results.items(), key=lambda item: _rank_order(ranks, item[0])):
            prefix = f"[rank {ranks.get(node, node)}] " if ranks else ""
            _print(prefix, result.stdout, sys.stdout)
            _print(prefix, result.stderr, sys.stderr)
            if ranks and result.exit_code:
                output.note(f"{prefix}ended with {result.exit_code}")
    return min(EXIT_MAX, max((result.exit_code for result in results.values()), default=0))


def _ranks(api: Api, compute: str) -> dict[str, int]:
    return {node.id: node.rank for node in api.send(calls.list_nodes(compute)).items}


def _rank_order(ranks: Mapping[str, int], node: str) -> tuple[int, str]:
    return ranks.get(node, v1.NODES_MAX), node


def _print(prefix: str, text: str, stream: TextIO) -> None:
    if prefix:
        text = "".join(f"{prefix}{line}\n" for line in text.splitlines())
    stream.write(text)
    stream.flush()


# ── files ───────────────────────────────────────────────────────────────────────────────────────


@command(
    app,
    "sky compute upload dev data.csv",
    "sky compute upload dev model.bin /tmp/model.bin --node 0",
    instead=("put", "cp", "push"),
)
def upload(
    compute: Name,
    file: Annotated[Path, Parameter(help="File of this computer.")],
    path: Annotated[str | None, Parameter(help="Where it goes on the nodes; else its own name.")] = None,
    /,
    *,
    node: Node = "all",
    output_: Output = "table",
) -> int:
    """Copy a file to the nodes."""
    if file.is_dir():
        raise usage(f"{file} is a folder", "pack it into one file first, with `tar -czf`")
    if not file.is_file():
        raise usage(f"there is no file {file}", None)
    target = path or file.name
    if target.endswith("/"):
        target += file.name
    with reading() as api:
        answers = api.send(calls_machines.upload_file(compute, target, lambda: _pieces(file), node))
        output.clear_progress()
        ranks = _ranks(api, compute) if any(answers.values()) else {}
    if output_ == "json":
        output.json(answers)
    failed = {node_: why for node_, why in answers.items() if why}
    if failed:
        node_, why = next(iter(failed.items()))
        message = f"{len(failed)} of {len(answers)} nodes refused; rank {ranks.get(node_, node_)}: {why}"
        raise CliError("upload_failed", message, None, FAILED)
    if output_ == "table":
        output.note(f"{file} is on {len(answers)} node{'s' if len(answers) != 1 else ''} as {target}")
    return 0


def _pieces(file: Path) -> Iterator[bytes]:
    size = file.stat().st_size
    sent = 0
    with open(file, "rb") as content:
        while piece := content.read(PIECE_BYTES):
            yield piece
            sent += len(piece)
            output.progress(f"{file.name}: {sent * 100 // max(1, size)}% of {size:,} bytes")


@command(
    app,
    "sky compute download dev result.json",
    "sky compute download dev /tmp/log.txt - --node 1",
    instead=("pull", "fetch"),
)
def download(
    compute: Name,
    path: Annotated[str, Parameter(help="File on the node.")],
    file: Annotated[
        Path | None,
        Parameter(allow_leading_hyphen=True, help="Where it goes here; - prints it; else its own name."),
    ] = None,
    /,
    *,
    node: Node = "0",
    output_: Output = "table",
) -> int:
    """Copy a file from a node. A file that is there already is replaced once all has arrived."""
    target = file or Path(path.rstrip("/").rpartition("/")[2] or "download")
    if target.is_dir():
        target /= path.rstrip("/").rpartition("/")[2]
    if str(target) == "-" and output_ == "json":
        raise usage("a file that is printed leaves no room for JSON", "name a file, or leave -o json out")
    with (
        output.waiting(f"downloading {path} …"),
        reading() as api,
        api.open(calls_machines.download_file(compute, path, node)) as stream,
    ):
        if str(target) == "-":
            for piece in stream.pieces():
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            return 0
        size = _save(stream.pieces(), target)
    if output_ == "json":
        output.json({"path": path, "file": str(target), "bytes": size})
    else:
        output.note(f"{target} has {size:,} bytes")
    return 0


def _save(pieces: Iterator[bytes], target: Path) -> int:
    part = target.with_name(target.name + ".part")
    size = 0
    try:
        with open(part, "wb") as content:
            for piece in pieces:
                size += content.write(piece)
                output.progress(f"{target.name}: {size:,} bytes")
        part.replace(target)
    except ConnectionError as error:
        message = f"the connection broke after {size:,} bytes: {error}"
        raise CliError("connection_lost", message, "repeat the command", FAILED) from error
    except OSError as error:
        raise usage(f"{target} cannot be written: {error.strerror}", None) from error
    finally:
        part.unlink(missing_ok=True)
    return size
