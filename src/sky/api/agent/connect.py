"""The socket of an agent: it says hello, reports, and is told what to do.

Decides: when its mailbox is read: after hello, at every ping, and in each transaction that fills it.
Never: decides what is in it (``verbs/mailbox``), or keeps anything that would be missed.
Follows: one connection per node, the newest; losing it loses nothing, and its node is looked at at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import structlog
from litestar import websocket
from litestar.connection import WebSocket

from sky.api.agent.door import agent_of, unit_of
from sky.api.agent.secrets import TaskMasks
from sky.api.agent.sockets import LOST, hang_up, refuse
from sky.api.unit import Services
from sky.domain.errors import Busy, Forbidden, SkyError
from sky.kit import codec
from sky.store.engine import Trouble
from sky.store.tx import ConflictError, Event, Tx
from sky.store.views.nodes import AgentRow
from sky.verbs import reports
from sky.verbs.mailbox import Mail, mailbox
from sky.wire import agent, v1

HELLO_SECONDS = 10.0
SILENCE_PINGS = 3
SEND_SECONDS = 30.0
SEEN_SECONDS = 5.0
MAIL_SECONDS = 10.0
"""How long a mailbox is left unread when nothing is put in."""
METRICS_MAX = 64
MISSING_S = (0.0, 1.0, 3.0)
"""When a node is looked at after its connection ended, each counted from the one before: a process that dies
lets go of its sockets before it is dead, and one look may come between the two."""

GARBAGE, WRONG_PROTOCOL, REFUSED, REPLACED = 4400, 4426, 4403, 4409
_NEWER = "another agent of this node has connected"
TRY_AGAIN = 1013

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[agent.FromAgent] = msgspec.msgpack.Decoder(agent.FromAgent)
UNREADABLE = (msgspec.DecodeError, RecursionError)
"""What a message raises that is none of an agent's; one that is nested too deeply, the second."""
_log = structlog.get_logger(__name__)


class _Closed(Exception):
    """The connection is to end, with this code and reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class _Line:
    """One agent's connection."""

    def __init__(self, unit: Services, socket: WebSocket[Any, Any, Any], node_id: str, row: AgentRow) -> None:
        self._unit = unit
        self._socket = socket
        self._node_id = node_id
        self._compute_id = row.compute_id
        self._boot = ""
        self._known: set[str] = set()
        self._handed: set[str] = set()
        """Executions that a transaction has handed out whose mail has not come here yet."""
        self._mail: deque[Mail | BaseException] = deque()
        self._unread = True
        """Whether its mailbox is to be read though nobody told that something is in it."""
        self._bell = asyncio.Event()
        self._cancelled: set[str] = set()
        self._credit: dict[str, int] = {}
        self._draining = False
        self._ping_s = 5.0
        self._window = 0
        self._seen_s = -SEEN_SECONDS
        self._masks = TaskMasks(unit.db, unit.masking.masks, row.compute_id)
        self.replaced = asyncio.Event()

    async def serve(self) -> None:
        """From hello to the end. Raises _Closed, SkyError, or one of LOST."""
        hello = await self._receive(HELLO_SECONDS)
        if not isinstance(hello, agent.Hello):
            raise _Closed(GARBAGE, "the first message must be hello")
        if hello.protocol != agent.PROTOCOL:
            told = f"protocol {hello.protocol} is not spoken here; this daemon speaks {agent.PROTOCOL}"
            raise _Closed(WRONG_PROTOCOL, told)
        welcome = await self._unit.db.write(lambda tx: self._hello(tx, hello))
        self._boot = hello.boot
        self._known = set(hello.known)
        self._draining = welcome.draining
        self._ping_s = welcome.ping_seconds
        await self._send(welcome)
        self._ensure_newest()  # a newer line may attend already, and whoever attends last is told
        leave = self._unit.db.attend(f"mail/{self._node_id}", self._open, self._take)
        try:
            done = await self._talk()
        finally:
            leave()
        for task in done:
            task.result()
        self._ensure_newest()

    def _hello(self, tx: Tx, hello: agent.Hello) -> agent.Welcome:
        """Write a hello down, before that of a newer line or not at all: it would take that one's place."""
        self._ensure_newest()
        return reports.hello(tx, self._node_id, hello)

    def _ensure_newest(self) -> None:
        if self.replaced.is_set():
            raise _Closed(REPLACED, _NEWER)

    async def _talk(self) -> set[asyncio.Future[Any]]:
        """Listen and tell until one of both ends, or another line takes its place; returns what ended."""
        tasks: tuple[asyncio.Future[Any], ...] = (
            asyncio.ensure_future(self._read()),
            asyncio.ensure_future(self._post()),
            asyncio.ensure_future(self.replaced.wait()),
        )
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return set(done)

    # ── what it says ────────────────────────────────────────────────────────────────────────────

    async def _read(self) -> None:
        silence_s = self._ping_s * SILENCE_PINGS
        while True:
            message = await self._receive(silence_s)
            if isinstance(message, agent.Report):
                try:
                    await self._record(message)
                except reports.Superseded as late:
                    raise _Closed(REPLACED, str(late)) from None
                self._known.difference_update(o.execution for o in message.outcomes)
                await self._send(agent.Heard(number=message.number))
            elif isinstance(message, agent.Ping):
                await self._ping(message)
            else:
                raise _Closed(GARBAGE, "hello is said once")

    async def _record(self, report: agent.Report) -> None:
        """Write a report down, or where that cannot be, all of it that can: it would be said for ever."""
        boot = self._boot
        masks = await self._masks.of(report)
        report = self._unit.masking.report(self._node_id, report, masks)
        if await self._written(lambda tx, node, said: reports.record(tx, node, boot, said), report):
            return
        for piece in reports.apart(report):
            if not await self._written(reports.take, piece) and piece.outcomes:
                await self._written(reports.give_up, piece)
        await self._unit.db.write(lambda tx: reports.close(tx, self._node_id, boot, report))

    async def _written(self, verb: Callable[[Tx, str, agent.Report], None], report: agent.Report) -> bool:
        """Whether that could be written. Raises what may pass. Listed supervisor."""
        try:
            await self._unit.db.write(lambda tx: verb(tx, self._node_id, report))
        except (SkyError, Trouble, ConflictError, reports.Superseded):
            raise
        except Exception:
            _log.exception("report.unwritable", node=self._node_id, number=report.number)
            return False
        return True

    async def _ping(self, ping: agent.Ping) -> None:
        unit = self._unit
        now_s = unit.clock.monotonic_s()
        if now_s - self._seen_s >= SEEN_SECONDS or ping.window > self._window:
            self._seen_s = now_s
            await unit.db.write(lambda tx: self._seen(tx, ping.window))
        else:
            self._unread = True
            self._bell.set()
        self._window = ping.window
        await self._send(agent.Pong())
        unit.gauges.heard(self._node_id, ping.metrics, now_s)
        unit.hub.publish(self._metrics(ping.metrics))

    def _seen(self, tx: Tx, window: int) -> None:
        """Write down that it was heard, and read its mailbox on the way."""
        reports.seen(tx, self._node_id, window)
        tx.signal(f"mail/{self._node_id}")

    def _metrics(self, metrics: dict[str, float]) -> list[Event]:
        now_us = self._unit.clock.now_us()
        found: list[Event] = []
        for name, value in list(metrics.items())[:METRICS_MAX]:
            payload = v1.MetricEvent(compute=self._compute_id, node=self._node_id, name=name, value=value)
            text = codec.dumps(payload)
            found.append(Event(0, "node.metrics", text, self._compute_id, self._node_id, None, now_us))
        return found

    # ── what it is told ─────────────────────────────────────────────────────────────────────────

    def _open(self, tx: Tx) -> Mail:
        """Read its mailbox. Runs in the thread and the transaction of whoever put something in."""
        mail = mailbox(tx, self._node_id, frozenset(self._known | self._handed))
        self._handed.update(item.execution for item in mail.work)
        return mail

    def _take(self, mail: Mail | None, error: BaseException | None) -> None:
        """Mail is written down as read, and is sent next. What went wrong ends this line."""
        if mail is not None:
            told = [item.execution for item in mail.work]
            self._known.update(told)
            self._handed.difference_update(told)
            self._mail.append(mail)
        elif error is not None:
            self._mail.append(error)
        self._bell.set()

    async def _post(self) -> None:
        while True:
            if self._unread:
                self._unread = False
                await self._unit.db.write(lambda tx: tx.signal(f"mail/{self._node_id}"))
            while self._mail:
                mail = self._mail.popleft()
                if isinstance(mail, BaseException):
                    raise mail
                for message in self._messages(mail):
                    await self._send(message)
            try:
                async with asyncio.timeout(MAIL_SECONDS):
                    await self._bell.wait()
            except TimeoutError:
                self._unread = True
            self._bell.clear()

    def _messages(self, mail: Mail) -> Iterable[agent.FromDaemon]:
        if mail.stop is not None:
            yield agent.Stop(reason=mail.stop)
        if mail.work:
            yield agent.Work(items=mail.work)
        cancel = tuple(x for x in mail.cancel if x not in self._cancelled)
        self._cancelled = set(mail.cancel)  # what is not asked for any more has ended
        if cancel:
            yield agent.Cancel(executions=cancel)
        told, self._credit = self._credit, {}
        for credit in mail.credit:
            self._credit[credit.execution] = credit.consumed
            if told.get(credit.execution, 0) < credit.consumed:
                yield credit
        yield from mail.dial
        if mail.draining != self._draining:
            self._draining = mail.draining
            yield agent.Drain(draining=mail.draining)

    # ── the socket ──────────────────────────────────────────────────────────────────────────────

    async def _receive(self, timeout_s: float) -> agent.FromAgent:
        try:
            async with asyncio.timeout(timeout_s):
                raw = await self._socket.receive_bytes()
        except TimeoutError:
            raise _Closed(TRY_AGAIN, f"nothing was said for {timeout_s:g} s") from None
        try:
            return _decoder.decode(raw)
        except UNREADABLE as error:
            raise _Closed(GARBAGE, f"a message cannot be read: {error}") from None

    async def _send(self, message: agent.FromDaemon) -> None:
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self._socket.send_bytes(_encoder.encode(message))
        except TimeoutError:
            raise _Closed(TRY_AGAIN, f"nothing was read for {SEND_SECONDS:g} s") from None


class Lines:
    """The connection of each node to this process."""

    def __init__(self) -> None:
        self._by_node: dict[str, _Line] = {}
        self._missing: dict[str, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._by_node)

    async def serve(self, unit: Services, socket: WebSocket[Any, Any, Any]) -> None:
        """One connection, from its handshake to its end."""
        try:
            node_id, row = await agent_of(socket)
        except SkyError as error:
            await refuse(socket, error)
            return
        await socket.accept()
        line = _Line(unit, socket, node_id, row)
        older = self._by_node.get(node_id)
        self._by_node[node_id] = line
        if older is not None:
            older.replaced.set()
        try:
            await line.serve()
        except _Closed as closed:
            await hang_up(socket, closed.code, closed.reason)
        except Busy as error:
            await hang_up(socket, TRY_AGAIN, error.message)
        except ConflictError:  # what it said is said again, and read with what is there then
            await hang_up(socket, TRY_AGAIN, "something else was written at that moment; say it again")
        except Forbidden as error:
            _log.info("agent.refused", node=node_id, error=error.message)
            await hang_up(socket, REFUSED, error.message)
        except SkyError as error:  # no fault of the node: a full disk, for one
            _log.warning("agent.put_off", node=node_id, error=error.message)
            await hang_up(socket, TRY_AGAIN, error.message)
        except LOST as error:
            _log.info("agent.lost", node=node_id, error=type(error).__name__)
        except Exception:
            _log.exception("agent.failed", node=node_id)
            raise
        finally:
            if self._by_node.get(node_id) is line:
                del self._by_node[node_id]
                unit.gauges.forget(node_id)
                self._miss(unit, node_id)

    def _miss(self, unit: Services, node_id: str) -> None:
        """Have a node looked at whose connection ended, now and some more times unless it is back."""
        earlier = self._missing.pop(node_id, None)
        if earlier is not None:
            earlier.cancel()
        task = asyncio.create_task(self._have_looked_at(unit, node_id))
        self._missing[node_id] = task
        task.add_done_callback(lambda done: self._forget(node_id, done))

    def _forget(self, node_id: str, done: asyncio.Task[None]) -> None:
        if self._missing.get(node_id) is done:
            del self._missing[node_id]

    async def _have_looked_at(self, unit: Services, node_id: str) -> None:
        for wait_s in MISSING_S:
            await asyncio.sleep(wait_s)
            if node_id in self._by_node:
                return
            with contextlib.suppress(SkyError):  # it is looked at some time anyway
                await unit.db.write(lambda tx: reports.silent(tx, node_id))


@websocket("/agent/v1/connect")
async def connect(socket: WebSocket[Any, Any, Any]) -> None:
    """An agent's line."""
    lines: Lines = socket.app.state["lines"]
    await lines.serve(unit_of(socket), socket)


ROUTES = (connect,)
