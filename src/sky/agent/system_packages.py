"""Packages of the operating system that an image asks for, installed with apt.

Decides: whether anything is missing, and that one node of a computer installs at a time.
Never: removes or replaces a package, asks a question, or runs apt where everything is there already.
Follows: a node says why when its computer has no apt or the agent may not use it; what an interrupted
installation left is put in order before the next.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from sky.agent import installer
from sky.agent.installer import Console, Unbuildable
from sky.kit.clock import SystemClock

LOCK_POLL_S = 0.2
QUERY_S = 30.0
DPKG_LOCK_S = 600
"""How long apt waits for another user of the package database."""
_NAME = re.compile(r"([a-z0-9][a-z0-9.+-]+?)(?::[a-z0-9-]+)?(?:=(?P<version>[^/]+))?(?:/.+)?")
LISTS_S = 3600.0
"""How old the lists of packages may be that apt looks into."""
_QUIETLY = ("-q", "-y", "-o", f"DPkg::Lock::Timeout={DPKG_LOCK_S}", "-o", "Dpkg::Use-Pty=0")
_INSTALL = ("-o", "APT::Cmd::Pattern-Only=1", "--no-install-recommends", "--no-remove", "--")


async def install(
    packages: Sequence[str], lock_file: Path, environment: Mapping[str, str], console: Console
) -> None:
    """Have every package there. Raises ``Unbuildable``, OSError. The caller bounds the time."""
    if not packages:
        return
    path = environment.get("PATH", os.defpath)
    if shutil.which("apt-get", path=path) is None:
        raise Unbuildable(
            f"the image asks for apt packages ({', '.join(packages)}) and the node has no apt-get"
        )
    if not await asyncio.to_thread(missing, packages, environment):
        return
    if os.geteuid() != 0:
        raise Unbuildable(
            f"the image asks for apt packages ({', '.join(packages)}) and the node's agent does not run as "
            "root: install them there by hand, or run the daemon of a local node as root"
        )
    lock_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        await _locked(lock, console)
        wanted = await asyncio.to_thread(missing, packages, environment)
        if wanted:
            await _install(wanted, lock_file, environment, console, lock)
    finally:
        os.close(lock)


async def _locked(lock: int, console: Console) -> None:
    waiting = False
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not waiting:
                console("stdout", "waiting for another node that installs system packages\n")
            waiting = True
            await asyncio.sleep(LOCK_POLL_S)


async def _install(
    packages: Sequence[str], lock_file: Path, environment: Mapping[str, str], console: Console, lock: int
) -> None:
    own = {**environment, "DEBIAN_FRONTEND": "noninteractive", "APT_LISTCHANGES_FRONTEND": "none"}
    lists = lock_file.with_suffix(".lists")

    async def run(*command: str) -> None:
        await installer.run(command, lock_file.parent, own, console, (lock,))

    await run("dpkg", "--configure", "-a")
    if not lists.exists() or abs(SystemClock().now_us() / 1e6 - lists.stat().st_mtime) > LISTS_S:
        await run("apt-get", "update", *_QUIETLY)
        lists.touch()
    await run("apt-get", "install", *_QUIETLY, *_INSTALL, *packages)


def missing(packages: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Those that are not installed, or not in the version that is asked for. Raises Unbuildable, OSError."""
    return [package for package in packages if not _is_there(package, environment)]


def _is_there(package: str, environment: Mapping[str, str]) -> bool:
    named = _NAME.fullmatch(package)
    if named is None:
        return False
    try:
        told = subprocess.run(
            ("dpkg-query", "-W", "-f=${db:Status-Status} ${Version}\n", named[1]),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=QUERY_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unbuildable(f"dpkg-query did not answer within {QUERY_S:g} s") from error
    except FileNotFoundError:
        return False
    lines = [line.split(" ", 1) for line in told.stdout.splitlines()]
    version = named["version"]
    return any(state == "installed" and version in (None, has) for state, has in lines)
