"""What a pod runs beside its agent where it can dial nobody: a meeting point for the agent and the daemon.

Decides: the two ports, and how the lines that the daemon has laid are handed out. Never: listens to anybody
outside the pod, or looks into what passes. Follows: a line whose daemon no longer answers is thrown away, and
the agent gets the next one; the relay ends with the process that it was begun beside.
"""

from __future__ import annotations

import hashlib

from sky.providers.bootstrap import FAILED

PORTS_FIRST = 20_000
PORTS = 5_000
ASKS, ANSWERS = b"?", b"!"
"""What the relay says when somebody wants a line, and what a daemon that is there says to it."""


def port_of(name: str) -> int:
    """Where the daemon's lines arrive in the pod of that name; the agent's port is the next one."""
    return PORTS_FIRST + 2 * (int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % PORTS)


def agent_url(port: int) -> str:
    """Where the agent finds the daemon, in its own pod."""
    return f"http://127.0.0.1:{port + 1}"


def prelude(port: int) -> str:
    """Text for ``sh``, to stand before the program of a node."""
    return _TEXT.format(port=port, failed=FAILED, relay=_RELAY)


_TEXT = """\
export SKY_AGENT_TUNNELLED=1
if ! command -v python3 >/dev/null 2>&1; then
    echo "the image has no python3, which a tunnel needs: name an image that has, or set daemon_url" >&2
    exit {failed}
fi
python3 - {port} <<'RELAY' &
{relay}
RELAY
"""

_RELAY = """\
import asyncio, os, sys

ANSWER_S = 10
parent, port = os.getppid(), int(sys.argv[1])


async def pump(source, target):
    try:
        while True:
            content = await source.read(65536)
            if not content:
                break
            target.write(content)
            await target.drain()
    except OSError:
        pass
    finally:
        target.close()


async def main():
    lines = asyncio.Queue(64)

    async def daemon(reader, writer):
        await lines.put((reader, writer))

    async def agent(reader, writer):
        while True:
            source, target = await lines.get()
            try:
                target.write(b"?")
                await target.drain()
                if await asyncio.wait_for(source.readexactly(1), ANSWER_S) == b"!":
                    break
            except (OSError, EOFError, asyncio.TimeoutError):
                pass
            target.close()
        await asyncio.gather(pump(reader, target), pump(source, writer))

    await asyncio.start_server(daemon, "127.0.0.1", port)
    await asyncio.start_server(agent, "127.0.0.1", port + 1)
    while os.getppid() == parent:
        await asyncio.sleep(1)


asyncio.run(main())"""
