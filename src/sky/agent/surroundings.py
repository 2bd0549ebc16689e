"""Environment variables of calls and commands, and the folders that a node's home has.

Decides: what user code finds in its environment: the image's variables, thread counts, folders, its node.
Never: passes on how the agent reaches its daemon, or the password of a package index or proxy: those are for
installers alone. Follows: every process of this agent carries
``SKY_AGENT_BOOT``, by which it is found when the agent is gone (see ``leftovers``).
"""

from __future__ import annotations

import os
import re
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

from sky.agent.settings import Settings

BOOT_VARIABLE = "SKY_AGENT_BOOT"
NODE_VARIABLE = "SKY_AGENT_NODE"
_INSTALLERS = re.compile(r"PIP_\w+|UV_\w+|(?i:https?|all)_(?i:proxy)")
"""How installers reach package indexes."""
_SECRET_NAME = re.compile(r"TOKEN|PASSWORD|SECRET|CREDENTIAL|USERNAME|_KEY$")
_SECRET_VALUE = re.compile(r"://[^/\s@]+@")
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def make_folders(settings: Settings) -> None:
    """The folders of a node's home, whichever are missing. Raises OSError."""
    for folder in (settings.home, settings.work, settings.tmp, settings.results, settings.blobs):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def raise_file_limit() -> None:
    """As many open files as the system lets this process have, for it and all it starts."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        return


def variables(settings: Settings, boot: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """The base of the environment of everything that this agent starts."""
    spec = settings.spec
    own = {
        name: value
        for name, value in inherited.items()
        if not name.startswith("SKY_AGENT_") and not _for_installers_only(name, value)
    }
    own.update(dict.fromkeys(_THREAD_VARIABLES, str(max(1, spec.cpus // settings.slots))))
    if "PYTHONPATH" in own:
        # Calls begin in another folder, where a relative entry would mean something else.
        entries = own["PYTHONPATH"].split(os.pathsep)
        own["PYTHONPATH"] = os.pathsep.join(str(Path(entry).absolute()) for entry in entries if entry)
    own.update(spec.image.env)
    own.update(spec.image.shell_vars)
    own.update(
        {
            "TMPDIR": str(settings.tmp),
            "SKY_COMPUTE": spec.compute,
            "SKY_NODE": settings.node,
            "SKY_RANK": str(spec.rank),
            NODE_VARIABLE: settings.node,
            "SKY_AGENT_HOME": str(settings.home),
            BOOT_VARIABLE: boot,
        }
    )
    # Functions written for the published client library ask these; the peers are told with each call.
    own.update(
        {
            "SKYWARD_COMPUTE": spec.compute,
            "SKYWARD_NODE": settings.node,
            "SKYWARD_RANK": str(spec.rank),
            "SKYWARD_SLOTS": str(settings.slots),
        }
    )
    return own


def for_installers(base: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of installers: ``base``, and how they reach package indexes, with passwords."""
    told = {name: value for name, value in inherited.items() if _for_installers_only(name, value)}
    return {**told, **base}


def _for_installers_only(name: str, value: str) -> bool:
    """Whether a variable holds a password, or leads to one."""
    if name == "NETRC":
        return True
    secret = _SECRET_NAME.search(name) or _SECRET_VALUE.search(value)
    return secret is not None and _INSTALLERS.fullmatch(name) is not None


def with_python(environment: Mapping[str, str], python: str) -> dict[str, str]:
    """An environment in which ``python`` is that interpreter."""
    own = dict(environment)
    folder = Path(python).parent
    own["PATH"] = f"{folder}{os.pathsep}{own.get('PATH', os.defpath)}"
    if python != sys.executable:
        own["VIRTUAL_ENV"] = str(folder.parent)
    return own
