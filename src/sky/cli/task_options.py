"""What `sky launch` and `sky exec` are told of a task: a file or a command, and options that go over it.

Decides: whether words are a task file or a command, how a command of several words becomes one line of bash,
and what each option means. Never: offers a file that cannot be read as a command; sends anything.
Follows: what the options say goes over what the file says, for every task in it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from sky.cli.app import Many
from sky.cli.errors import usage
from sky.client.tasks.dag import Dag
from sky.client.tasks.reading import env_file
from sky.client.tasks.task import Task

SUFFIXES = (".yaml", ".yml")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SPLIT_BY_BASH = re.compile(r"[\s'\"\\()]")
RESET = "none"
PLACES = ("infra", "cloud", "region", "zone")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options that describe a task; None where nothing was said."""

    name: Annotated[str | None, Parameter(name=["--name", "-n"], help="What the task is called.")] = None
    workdir: Annotated[
        Path | None, Parameter(metavar="FOLDER", help="Folder that is brought along, and where it runs.")
    ] = None
    infra: Annotated[
        str | None,
        Parameter(metavar="PLACE", help="Where: aws, aws/us-east-1, k8s/CONTEXT, ssh/POOL, local."),
    ] = None
    cloud: Annotated[str | None, Parameter(show=False)] = None
    region: Annotated[str | None, Parameter(show=False)] = None
    zone: Annotated[str | None, Parameter(show=False)] = None
    num_nodes: Annotated[int | None, Parameter(help="On how many nodes.")] = None
    cpus: Annotated[str | None, Parameter(help="CPUs of each node: 4 exactly, 4+ at least.")] = None
    memory: Annotated[str | None, Parameter(help="GB of memory of each node: 16, or 16+.")] = None
    gpus: Annotated[
        str | None,
        Parameter(name=["--gpus", "--accelerators"], metavar="NAME[:COUNT]", help="Such as A100:8."),
    ] = None
    instance_type: Annotated[
        str | None, Parameter(name=["--instance-type", "-t"], help="What the cloud calls the machine.")
    ] = None
    use_spot: Annotated[bool | None, Parameter(help="Machines that may be taken back will do, for less.")] = (
        None
    )
    image_id: Annotated[str | None, Parameter(metavar="IMAGE", help="Image of the machines.")] = None
    disk_size: Annotated[str | None, Parameter(metavar="GB", help="Size of the disk: 256, or 1TB.")] = None
    disk_tier: Annotated[str | None, Parameter(metavar="TIER", help="low, medium, high, ultra or best.")] = (
        None
    )
    network_tier: Annotated[str | None, Parameter(metavar="TIER", help="standard or best.")] = None
    ports: Annotated[
        tuple[str, ...], Many, Parameter(metavar="PORT", help="Port, or range such as 8080-8090, to open.")
    ] = ()
    env: Annotated[
        tuple[str, ...], Many, Parameter(metavar="NAME[=VALUE]", help="Variable; without =, as it is here.")
    ] = ()
    env_file: Annotated[
        tuple[Path, ...], Many, Parameter(metavar="FILE", help="File with lines NAME=VALUE.")
    ] = ()
    secret: Annotated[
        tuple[str, ...], Many, Parameter(metavar="NAME[=VALUE]", help="The same, and never shown again.")
    ] = ()
    secret_file: Annotated[
        tuple[Path, ...], Many, Parameter(metavar="FILE", help="The same from a file.")
    ] = ()


NOTHING_SAID = Options()


# ── a file, or a command ────────────────────────────────────────────────────────────────────────


def is_file(words: Sequence[str]) -> bool:
    """Whether words name a task file: what ends in .yaml or .yml, or a file that cannot be a command."""
    if len(words) != 1 or any(sign.isspace() for sign in words[0]):
        return False
    [word] = words
    if Path(word).suffix.lower() in SUFFIXES:
        return True
    path = Path(word).expanduser()
    if path.is_dir():
        raise usage(f"{word} is a folder", "name the task file in it, or write a command")
    return path.is_file() and not os.access(path, os.X_OK) and shutil.which(word) is None


def command_line(words: Sequence[str]) -> str:
    """Words as one line of bash: a single one is that already; of several, each stays one word.

    Names of variables and patterns in them mean what they mean on the node.
    """
    if len(words) == 1:
        return words[0]
    return " ".join(shlex.quote(word) if not word or SPLIT_BY_BASH.search(word) else word for word in words)


# ── variables ───────────────────────────────────────────────────────────────────────────────────


def variables(option: str, said: Sequence[str], files: Sequence[Path]) -> dict[str, str]:
    """The variables that options and files give; an option goes over a file."""
    found: dict[str, str] = {}
    for file in files:
        found |= env_file(file)
    for text in said:
        name, equals, value = text.partition("=")
        if not NAME.fullmatch(name):
            # What stands behind the sign may be secret.
            raise usage(f"{option} {name!r} sets nothing", f"write {option} NAME=VALUE, or NAME alone")
        if not equals:
            if name not in os.environ:
                message = f"{option} {name} has no value: it is not set here"
                raise usage(message, f"write {option} {name}=VALUE")
            value = os.environ[name]
        found[name] = value
    return found


# ── options over a task ─────────────────────────────────────────────────────────────────────────


def resources_said(options: Options) -> dict[str, Any]:
    """What the options say about machines; None resets what a file says."""
    places = [name for name in PLACES if getattr(options, name) is not None]
    if "infra" in places and len(places) > 1:
        raise usage(f"--infra and --{places[1]} were both given", "--infra says all of it: aws/us-east-1")
    said: dict[str, Any] = {
        "infra": options.infra,
        "cloud": options.cloud,
        "region": options.region,
        "zone": options.zone,
        "cpus": options.cpus,
        "memory": options.memory,
        "accelerators": options.gpus,
        "instance_type": options.instance_type,
        "use_spot": options.use_spot,
        "image_id": options.image_id,
        "disk_size": options.disk_size,
        "disk_tier": options.disk_tier,
        "network_tier": options.network_tier,
        "ports": list(options.ports) or None,
    }
    return {
        name: None if isinstance(value, str) and value.lower() == RESET else value
        for name, value in said.items()
        if value is not None
    }


def _folder(workdir: Path) -> Path:
    if not workdir.expanduser().is_dir():
        what = "is no folder" if workdir.expanduser().exists() else f"is not there, in {Path.cwd()}"
        raise usage(f"--workdir {workdir} {what}", "name a folder of this computer")
    return workdir


def tasks_of(words: Sequence[str], options: Options) -> list[Task]:
    """The tasks of a file or a command, in their order, with what the options say of each."""
    envs = variables("--env", options.env, options.env_file)
    secrets = variables("--secret", options.secret, options.secret_file)
    machines = resources_said(options)
    if is_file(words):
        chain = Dag.from_yaml(words[0], env_overrides=envs, secrets_overrides=secrets)
        found = list(chain.tasks)
    else:
        found = [Task(run=command_line(words) if words else None, envs=envs, secrets=secrets)]
    if len(found) > 1 and options.name is not None:
        raise usage(f"--name was given for a file of {len(found)} tasks", "each task has its own in the file")
    for task in found:
        if options.name is not None:
            task.name = options.name
        if options.workdir is not None:
            task.workdir = str(_folder(options.workdir))
        if options.num_nodes is not None:
            task.num_nodes = options.num_nodes
        if machines:
            task.set_resources_override(machines)
    return found
