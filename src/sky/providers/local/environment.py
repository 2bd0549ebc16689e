"""What a node's processes see of the daemon's environment, and what they are told instead.

Decides: the variables of a node. Never: passes on a credential, except how installers reach a package index
or a proxy, which the agent keeps from everything but installers; what is not listed does not pass.
Follows: no other secret in the daemon's environment reaches a node.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from sky.providers.base import LaunchOrder

PASSED = frozenset(
    {
        "ALL_PROXY",
        "CONDA_PREFIX",
        "CONTAINERS_CONF",
        "CONTAINERS_REGISTRIES_CONF",
        "CONTAINERS_STORAGE_CONF",
        "CURL_CA_BUNDLE",
        "DOCKER_CONFIG",
        "DOCKER_CONTEXT",
        "DOCKER_HOST",
        "HOME",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "LANG",
        "LD_LIBRARY_PATH",
        "NETRC",
        "NO_PROXY",
        "PATH",
        "PYENV_ROOT",
        "REQUESTS_CA_BUNDLE",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "TZ",
        "VIRTUAL_ENV",
        "VIRTUAL_ENV_PROMPT",
        "XDG_RUNTIME_DIR",
        "all_proxy",
        "http_proxy",
        "https_proxy",
        "no_proxy",
    }
)
PASSED_PREFIXES = ("PIP_", "UV_")
_SECRET = re.compile(r"TOKEN|PASSWORD|SECRET|CREDENTIAL|_KEY$|USERNAME")
_INDEX_LOGIN = re.compile(r"UV_INDEX_\w+_(?:USERNAME|PASSWORD)")


def node_environment(
    order: LaunchOrder,
    folder: Path,
    lock_fd: int,
    gpus: tuple[int, ...] | None,
    source: Mapping[str, str],
    *,
    disk: Path | None = None,
) -> dict[str, str]:
    """The whole environment of a node's agent. ``gpus``: which it may use; None: the computer has none.
    ``disk``: what it works on; None: its own folder."""
    passed = {
        name: value
        for name, value in source.items()
        if (name in PASSED or name.startswith(PASSED_PREFIXES))
        and (not _SECRET.search(name) or _INDEX_LOGIN.fullmatch(name))
    }
    path = source.get("PYTHONPATH")
    if path:
        # The agent begins in another folder, where a relative entry would mean something else.
        passed["PYTHONPATH"] = os.pathsep.join(
            str(Path(entry).absolute()) for entry in path.split(os.pathsep)
        )
    told = {
        "SKY_AGENT_NODE": order.tag,
        "SKY_AGENT_URL": order.agent.url,
        "SKY_AGENT_TOKEN_FILE": str(folder / "token"),
        "SKY_AGENT_HOME": str(folder),
        "SKY_AGENT_SPEC": str(folder / "spec.json"),
        "SKY_AGENT_TTL_SECONDS": str(order.ttl_seconds),
        "SKY_AGENT_LOCK_FD": str(lock_fd),
    }
    if disk is not None:
        told["SKY_AGENT_DISK"] = str(disk)
    if order.agent.url_file is not None:
        told["SKY_AGENT_URL_FILE"] = order.agent.url_file
    if gpus is not None:
        told["CUDA_VISIBLE_DEVICES"] = ",".join(str(index) for index in gpus)
    return passed | told
