"""Running an installer: uv, apt-get and their like.

Decides: what of its output is seen (all, as it comes, without passwords in addresses) and what its failure
is called: its own last words. Never: knows what is installed, or waits for input.
Follows: nothing that an installer started outlives it; what it inherits keeps a lock held until it is gone.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import shutil
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sky.agent.leftovers import kill_session
from sky.agent.lines import Lines
from sky.agent.reporter import StreamName

try:
    import uv
except ImportError:  # a bare agent does without it until an image asks for packages
    uv = None

WORDS_LINES_MAX = 12
READ_BYTES = 32 * 1024
_PASSWORD = re.compile(r"(://)[^/\s@]+@")
_LOGIN = re.compile(r"\b401\b|\b403\b|lack of valid authentication credentials")
LOGIN_HINT = (
    "an index that asks for a password gets it from the .netrc file of whoever runs the daemon (or of the "
    "path in its NETRC), by host name"
)

Console = Callable[[StreamName, str], None]


class Unbuildable(Exception):
    """The image cannot be made on this node; the message has the installer's last words."""


class LoginNeeded(Unbuildable):
    """An index wants a user and a password, or others than it got."""


def uv_path() -> str:
    """The path of uv, which makes environments. Raises ``Unbuildable`` when there is none."""
    if uv is not None:
        try:
            return uv.find_uv_bin()
        except FileNotFoundError:
            pass
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.is_file() else shutil.which("uv")
    if found is None:
        raise Unbuildable("uv, which makes environments, is not installed on the node")
    return found


async def run(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    console: Console,
    inherits: tuple[int, ...] = (),
) -> None:
    """Run an installer to its end. Raises ``Unbuildable`` with its last words when it fails."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environment),
        cwd=folder,
        pass_fds=inherits,
        start_new_session=True,
    )
    words: deque[str] = deque(maxlen=WORDS_LINES_MAX)

    async def relay(name: StreamName, pipe: asyncio.StreamReader | None) -> None:
        assert pipe is not None
        lines = Lines()
        while content := await pipe.read(READ_BYTES):
            said(name, lines.feed(content))
        said(name, lines.finish())

    def said(name: StreamName, text: str) -> None:
        if text:
            shown = _PASSWORD.sub(r"\1***@", text)
            words.extend(line.strip() for line in shown.splitlines() if line.strip())
            console(name, shown)

    try:
        await asyncio.gather(relay("stdout", process.stdout), relay("stderr", process.stderr))
        code = await process.wait()
    finally:
        kill_session(process.pid)
        await process.wait()
    if code:
        words_of_it = itertools.takewhile(lambda part: not part.startswith("-"), command[1:])
        step = " ".join((Path(command[0]).name, *words_of_it))
        message = f"{step} failed with exit code {code}: " + " | ".join(words)
        if _LOGIN.search(message):
            raise LoginNeeded(f"{message} ({LOGIN_HINT})")
        raise Unbuildable(message)
