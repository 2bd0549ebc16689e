"""What a container engine is asked to do for a paid job, and how its refusals are told.

Decides: the options of a job's container: what it may use, and all that it may not. Never: trusts an image or
a command: there are no capabilities, no new privileges, and no network of this computer.
Follows: where the engine can, root inside of a container is nobody outside of it.
"""

from __future__ import annotations

import os
import resource
import subprocess
import time
from pathlib import Path

from sky.agent.job_node import JobNode, mounts, tell, variables
from sky.agent.surroundings import BOOT_VARIABLE, NODE_VARIABLE
from sky.kit.containers import Engine, reason, reference, why_not_pulled
from sky.wire.steps import Failed, Order

PULL_SECONDS_MAX = 3_000
ASK_SECONDS_MAX = 60
PIDS_MAX = 4_096
FILES_MAX = 65_536
FIRST_ID, IDS = 2_000_000_000, 65_536
"""The users of a job's container are these, outside of it: they own nothing else."""
NODE_LABEL = "sky.node"


class EngineFailed(Exception):
    """The engine refused; the message is its own reason."""


def ask(engine: Engine, *words: str, seconds_max: float = ASK_SECONDS_MAX) -> str:
    """Have the engine do something; gives what it printed. Raises EngineFailed."""
    try:
        done = subprocess.run(
            [engine.program, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds_max,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise EngineFailed(f"{engine.name} took longer than {seconds_max:g} s") from None
    except OSError as error:
        raise EngineFailed(f"{engine.name} cannot be run: {error}") from error
    if done.returncode != 0:
        raise EngineFailed(reason(done.stderr))
    return done.stdout.decode("utf-8", "replace").strip()


def unlimited() -> None:
    """Take back this worker's limit of memory, which a container would inherit beside its own."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def pull(engine: Engine, order: Order) -> Failed | None:
    """Have the image here; gives why it cannot be."""
    image = reference(order.image)
    if "@" in image and _is_here(engine, image):
        tell(f"the image {order.image} is here already")
        return None
    tell(f"pulling the image {order.image}")
    begun_s = time.monotonic()
    try:
        ask(engine, "pull", "--quiet", image, seconds_max=PULL_SECONDS_MAX)
    except EngineFailed as error:
        message = f"the image {order.image} cannot be pulled: {why_not_pulled(str(error))}{error}"
        tell(message)
        return Failed("image_unavailable", message)
    tell(f"the image is here, after {time.monotonic() - begun_s:.1f} s")
    return None


def _is_here(engine: Engine, image: str) -> bool:
    try:
        ask(engine, "image", "inspect", "--format", "{{.Id}}", image)
    except EngineFailed:
        return False
    return True


def mapped(engine: Engine) -> bool:
    """Whether the users inside of a container are others outside of it."""
    return engine.name == "podman" and not engine.rootless and Path("/proc/self/ns/user").exists()


def hand_over(engine: Engine, folder: Path) -> None:
    """Give the job's folders to whoever the container's users are; any of them may write there."""
    for here, names, files in os.walk(folder):
        for name in (".", *names, *files):
            path = Path(here, name)
            if mapped(engine):
                os.chown(path, FIRST_ID, FIRST_ID, follow_symlinks=False)
            if not path.is_symlink():
                path.chmod(0o777 if path.is_dir() else 0o666)


def create(engine: Engine, order: Order, node: JobNode, name: str, network: str) -> None:
    """Make the container. Raises EngineFailed."""
    words = [
        *("create", "--name", name, "--pull", "never", "--log-driver", "none", "--no-healthcheck"),
        *("--label", f"{NODE_LABEL}={node.node}", "--network", network, "--entrypoint", ""),
        *("--cap-drop", "all", "--security-opt", "no-new-privileges"),
        *("--pids-limit", str(PIDS_MAX), "--cpus", str(order.cpus)),
        *("--memory", f"{order.memory_gb}g", "--memory-swap", f"{order.memory_gb}g"),
        *("--shm-size", f"{order.memory_gb * 512}m"),
        *("--ulimit", _ulimit("nofile", resource.RLIMIT_NOFILE, FILES_MAX)),
        *("--ulimit", _ulimit("nproc", resource.RLIMIT_NPROC, PIDS_MAX)),
        *("--ulimit", "core=0:0"),
    ]
    if engine.name == "podman":
        words += ["--http-proxy=false"]
    if mapped(engine):
        words += ["--uidmap", f"0:{FIRST_ID}:{IDS}", "--gidmap", f"0:{FIRST_ID}:{IDS}"]
    # By its boot the container is found when everything else that knew of it was killed.
    told = {**variables(order, node), BOOT_VARIABLE: node.boot, NODE_VARIABLE: node.node}
    for key, value in told.items():
        words += ["--env", f"{key}={value}"]
    for mount in mounts(order):
        words += ["--mount", f"type=bind,src={node.mounted(order, mount)},dst={mount}"]
    ask(engine, *words, *_gpus(engine, order), reference(order.image), *order.command)


def _ulimit(name: str, kind: int, wanted: int) -> str:
    _, hard = resource.getrlimit(kind)
    limit = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    return f"{name}={limit}:{limit}"


def _gpus(engine: Engine, order: Order) -> list[str]:
    if not order.gpu_count:
        return []
    indexes = [x for x in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if x]
    if engine.name == "docker":
        return ["--gpus", f'"device={",".join(indexes)}"' if indexes else "all"]
    return [word for x in indexes or ["all"] for word in ("--device", f"nvidia.com/gpu={x}")]


def sweep(engine: Engine, node: JobNode) -> None:
    """Remove what earlier jobs' workers of this node could not. Raises EngineFailed."""
    found = ask(engine, "ps", "--all", "--quiet", "--filter", f"label={NODE_LABEL}={node.node}").split()
    for container in found:
        remove(engine, container)


def remove(engine: Engine, name: str) -> None:
    """Kill a container and forget it; one that is not there is gone already. Raises EngineFailed."""
    words = ("rm", "--force", "--time", "0", "--ignore") if engine.name == "podman" else ("rm", "--force")
    try:
        ask(engine, *words, name)
    except EngineFailed as error:
        if "no such container" not in str(error).lower():
            raise
