"""What a node's agent and a daemon say to each other, as msgpack over one WebSocket.

Decides: the messages and their version. Never: who may connect (a token, checked at the door).
Follows: everything durable that an agent says is a ``Report`` with a number. The agent repeats it until
``Heard`` names that number; the daemon writes each number once. Losing the connection means nothing.

    agent                                   daemon
      Hello            ───────────────►     (which boot, what it runs, what was heard)
                       ◄───────────────     Welcome
      Report(n)        ───────────────►     one transaction
                       ◄───────────────     Heard(n)
                       ◄───────────────     Work, Cancel, Credit, Dial, Drain, Stop
      Ping             ───────────────►
                       ◄───────────────     Pong
"""

from __future__ import annotations

from typing import Literal

import msgspec

PROTOCOL = 1
INLINE_RESULT_BYTES_MAX = 256 * 1024
ITEM_WINDOW = 64
"""How many generator items may be sent beyond the last one that was consumed."""

OutcomeState = Literal["succeeded", "failed", "cancelled", "timed_out", "indeterminate"]


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Anything on the wire between agent and daemon."""


class Hello(Message, frozen=True, tag="hello"):
    """First message of every connection. ``known`` are executions it has, running or not yet heard."""

    protocol: int
    boot: str
    pid: int
    python: str
    release: str
    slots: int
    window: int
    ready: bool
    known: tuple[str, ...] = ()
    error: str | None = None


class Welcome(Message, frozen=True, tag="welcome"):
    """The daemon's answer. ``lease_seconds`` without hearing from any daemon, and the agent ends itself.

    0 means it never does. ``heard`` is the last report number written for this boot. ``daemons``: where else
    it may call, should this one not be there any more.
    """

    lease_seconds: float
    ping_seconds: float
    heard: int
    total: int
    draining: bool = False
    daemons: tuple[str, ...] = ()


class Work(Message, frozen=True, tag="work"):
    """Executions to run, each once."""

    items: tuple[WorkItem, ...]


class WorkItem(Message, frozen=True):
    """One execution. Arguments inline, or by hash to be fetched. ``timeout_s`` is what is left of it.

    ``world``: the ranks that a broadcast was sent to, where a plugin has them meet; else empty.
    """

    execution: str
    task: str
    ordinal: int
    function: str
    rank: int
    total: int
    args: bytes | None = None
    args_sha256: str | None = None
    stream: bool = False
    timeout_s: float | None = None
    peers: tuple[str, ...] = ()
    world: tuple[int, ...] = ()


class Cancel(Message, frozen=True, tag="cancel"):
    """Executions to stop: SIGTERM, a grace, SIGKILL. The agent confirms with an outcome."""

    executions: tuple[str, ...]


class Credit(Message, frozen=True, tag="credit"):
    """A reader has consumed the items of a generator before ``consumed``."""

    execution: str
    consumed: int


class Dial(Message, frozen=True, tag="dial"):
    """Somebody waits at a rendezvous: connect to ``path`` on the daemon at ``url`` and serve it there."""

    rendezvous: str
    url: str


class Heard(Message, frozen=True, tag="heard"):
    """Reports up to this number are written."""

    number: int


class Drain(Message, frozen=True, tag="drain"):
    """Take no further work; finish what runs (or, with ``draining`` false, take work again)."""

    draining: bool


class Stop(Message, frozen=True, tag="stop"):
    """End now: this node is being given back."""

    reason: str


class Ping(Message, frozen=True, tag="ping"):
    """Still here; ``window`` is how many executions it would hold, running ones included."""

    window: int
    metrics: dict[str, float] = {}


class Pong(Message, frozen=True, tag="pong"):
    """Heard."""


class Started(Message, frozen=True):
    """An execution began ``ago_s`` seconds before this report was first made."""

    execution: str
    ago_s: float


class ErrorInfo(Message, frozen=True):
    """Why an execution did not succeed. ``payload`` is the pickled exception where there is one."""

    code: str
    message: str
    type: str = ""
    traceback: str = ""


class Outcome(Message, frozen=True):
    """How an execution ended: said once per execution and never changed.

    ``result`` holds the payload when it is small; otherwise it was uploaded as a blob before this was
    said, and only its hash is here. For a failure the payload is the pickled exception.
    """

    execution: str
    state: OutcomeState
    seconds: float
    ago_s: float
    result: bytes | None = None
    result_sha256: str | None = None
    error: ErrorInfo | None = None
    console_lines: int = 0
    items: int = 0


class ConsoleLines(Message, frozen=True):
    """Whole lines that one execution (or, without one, the node itself) wrote to one stream."""

    stream: Literal["stdout", "stderr"]
    content: str
    lines: int
    execution: str | None = None


class Item(Message, frozen=True):
    """One thing a generator yielded, at its place ``index`` from 0."""

    execution: str
    index: int
    value: bytes | None = None
    value_sha256: str | None = None


class Phase(Message, frozen=True):
    """A step of making the node ready."""

    phase: str
    event: Literal["started", "completed", "failed"]
    error: str | None = None


class Recall(Message, frozen=True):
    """The provider is about to take this machine back; ``reason`` is a word of ours, ``message`` its own."""

    reason: Literal["spot_interruption"]
    message: str


class Report(Message, frozen=True, tag="report"):
    """All that happened since the last report. One transaction on the daemon's side, in this order:
    phases, readiness, recall, console, started, items, outcomes."""

    number: int
    ready: bool = False
    window: int | None = None
    phases: tuple[Phase, ...] = ()
    console: tuple[ConsoleLines, ...] = ()
    started: tuple[Started, ...] = ()
    items: tuple[Item, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    recall: Recall | None = None


FromAgent = Hello | Report | Ping
FromDaemon = Welcome | Work | Cancel | Credit | Dial | Heard | Drain | Stop | Pong


# ── rendezvous: one interactive session, framed both ways ───────────────────────────────────────


class Ask(Message, frozen=True, tag="ask"):
    """First frame, daemon to agent: what to do at this rendezvous.

    ``exec`` (command), ``list``, ``remove``, ``upload``, ``download`` (path), ``forward`` (port),
    ``shell`` (command or none, term, columns, rows).
    """

    kind: Literal["exec", "list", "remove", "upload", "download", "forward", "shell"]
    command: str | None = None
    path: str | None = None
    port: int | None = None
    term: str = "xterm-256color"
    columns: int = 80
    rows: int = 24


class Data(Message, frozen=True, tag="data"):
    """Bytes, either way. ``stream`` tells stdout from stderr where that matters."""

    content: bytes
    stream: Literal["stdout", "stderr"] = "stdout"


class Resize(Message, frozen=True, tag="resize"):
    """The terminal has another size now."""

    columns: int
    rows: int


class Eof(Message, frozen=True, tag="eof"):
    """The sender will send no more bytes."""


class Exit(Message, frozen=True, tag="exit"):
    """Last frame, agent to daemon: how it ended. 0 is well; ``error`` says why not."""

    code: int
    error: str | None = None
    missing: bool = False


Session = Ask | Data | Resize | Eof | Exit
