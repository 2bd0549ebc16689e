"""What the jobs of a cluster have done on nodes: bring files, run a script.

Decides: the shapes of both steps. Never: how a node does them (``agent/scripts``).
Follows: a step travels as the steps of paid jobs do; one that brings files has an archive as its arguments,
and says in its own content where that goes, so that large content stays a blob from end to end.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from sky.wire.steps import MAGIC

NAMES = ("bring", "script")
WORKDIR = "sky_workdir"
"""The cluster's working folder, in its home."""


def home_of(cluster: str) -> str:
    """The folder of a cluster, which is the home of its scripts, in the folder where a node works."""
    return f"cluster-{cluster}"


class Bring(msgspec.Struct, frozen=True, kw_only=True, tag="bring", tag_field="step"):
    """Unpack the archive that comes as the arguments into a folder: ``target`` is absolute, begins with
    ``~/``, or is relative to the cluster's working folder; ``clear`` empties it first. ``single``: the
    archive is one file, which becomes ``target`` itself."""

    cluster: str
    target: str
    digest: str
    clear: bool = False
    single: bool = False


class Script(msgspec.Struct, frozen=True, kw_only=True, tag="script", tag_field="step"):
    """Run a script under bash in the cluster's working folder."""

    cluster: str
    job: int
    kind: Literal["setup", "run"]
    text: str
    env: dict[str, str]


Step = Bring | Script
_decoder = msgspec.json.Decoder(Step)


def function_content(step: Step) -> bytes:
    """The content that names a step, with all it must know."""
    return MAGIC + msgspec.json.encode(step)


def step_of(content: bytes) -> Step | None:
    """The step that some content names; None when it names none of these."""
    if not content.startswith(MAGIC + b"{"):
        return None
    return _decoder.decode(content[len(MAGIC) :])


FUNCTIONS = "~/.sky_functions"
"""Where functions are that run as scripts, each in a file with its hash as its name."""
PYTHON_VARIABLE = "SKY_PYTHON"
"""In the environment of scripts: the interpreter of the agent, which has this package."""


def function_script(target: str, python: str) -> str:
    """The script that calls a function which was brought to ``target``; ``python`` is the minor version that
    packed it."""
    path = f'"$HOME"/{target.removeprefix("~/")}'
    interpreter = f'"${{{PYTHON_VARIABLE}:?is not set: the agent of this node is too old to run functions}}"'
    return f"exec {interpreter} -P -m sky.agent.called {path} {python}\n"
