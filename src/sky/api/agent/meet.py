"""The socket by which an agent comes to a rendezvous.

Decides: whether somebody waits there for this node. Never: looks at the session.
Follows: a meeting happens once; coming late or twice is answered by hanging up.
"""

from __future__ import annotations

from typing import Any

from litestar import websocket
from litestar.connection import WebSocket
from litestar.params import FromPath

from sky.api.agent.door import agent_of, unit_of
from sky.api.agent.sockets import hang_up, refuse
from sky.api.meeting import Session
from sky.domain.errors import SkyError
from sky.verbs import rendezvous

NOBODY_WAITS = 4404


@websocket("/agent/v1/rendezvous/{meeting:str}")
async def meet(socket: WebSocket[Any, Any, Any], meeting: FromPath[str]) -> None:
    """One session: the agent has come."""
    unit = unit_of(socket)
    try:
        node_id, _ = await agent_of(socket)
    except SkyError as error:
        await refuse(socket, error)
        return
    await socket.accept()
    if not await unit.db.write(lambda tx: rendezvous.take(tx, meeting, node_id)):
        await hang_up(socket, NOBODY_WAITS, "nobody waits there")
        return
    session = Session(socket, node_id)
    await unit.meetings.arrive(meeting, session)
    await hang_up(socket, 1000, "")


ROUTES = (meet,)
