"""Runs a function as the script of a cluster's job: ``python -m sky.agent.called FILE VERSION``.

Decides: how it is called: without arguments, or with this node's rank and the addresses of all nodes; a text
that it returns is run by bash in its place. Never: runs in the agent: it is a process of the job.
Follows: it can import what is in the working folder; an error ends the job with its traceback and code 1.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sky.agent import payload, source

FUNCTION_BYTES_MAX = 1024**3
EXIT_WRONG = 1


def main(arguments: Sequence[str]) -> int:
    """Call the function in a file; returns the exit code, unless what it returned is run instead."""
    path, packed_by = arguments
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if here != packed_by:
        sys.stderr.write(
            f"run: the function was packed by Python {packed_by}, and this agent runs {here}: functions "
            "do not travel between minor versions. Launch it with that Python, or give run as a script\n"
        )
        return EXIT_WRONG
    # Not before: a file of the working folder must not stand for a module that is needed here.
    sys.path.insert(0, str(Path.cwd()))
    function = payload.unpack_file(Path(path), FUNCTION_BYTES_MAX)
    source.relabel(function)
    source.show(function)
    script = _call(function)
    sys.stdout.flush()
    sys.stderr.flush()
    if isinstance(script, str):
        os.execvp("bash", ["bash", "-c", script])
    if script is not None:
        kind = type(script).__name__
        sys.stderr.write(f"run: the function returned a {kind}; it returns a script, or nothing\n")
        return EXIT_WRONG
    return 0


def _call(function: Callable[..., Any]) -> Any:
    rank = int(os.environ["SKYPILOT_NODE_RANK"])
    addresses = os.environ["SKYPILOT_NODE_IPS"].split("\n")
    try:
        inspect.signature(function).bind(rank, addresses)
    except (TypeError, ValueError):
        return function()
    return function(rank, addresses)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
