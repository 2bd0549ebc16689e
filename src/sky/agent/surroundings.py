"""Environment variables of calls and commands, and the folders that a node's home has.

Decides: what user code finds in its environment: the image's variables, thread counts, folders, its node.
Never: passes on how the agent reaches its daemon. Follows: every process of this agent carries
``SKY_AGENT_BOOT``, by which it is found when the agent is gone (see ``leftovers``).
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

from sky.agent.settings import Settings

BOOT_VARIABLE = "SKY_AGENT_BOOT"
NODE_VARIABLE = "SKY_AGENT_NODE"
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
    """The environment of installers, and the base of everything else's."""
    spec = settings.spec
    own = {name: value for name, value in inherited.items() if not name.startswith("SKY_AGENT_")}
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


def with_python(environment: Mapping[str, str], python: str) -> dict[str, str]:
    """An environment in which ``python`` is that interpreter."""
    own = dict(environment)
    folder = Path(python).parent
    own["PATH"] = f"{folder}{os.pathsep}{own.get('PATH', os.defpath)}"
    if python != sys.executable:
        own["VIRTUAL_ENV"] = str(folder.parent)
    return own
