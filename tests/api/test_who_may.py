"""Who may ask what: every route that is registered, held against everybody who may come.

Decides: the table. A route that is not in it fails here, and so does a line without a route. Never: opens a
socket; it is the application of a daemon, with its own database, called from inside of this process.
Follows: the rules of ``domain/user`` are not looked at, so that a mistake in them is seen here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.jobs.shop import CATALOGUE

from sky.api.app import build_app
from sky.kit.clock import SteadyClock, SystemClock
from sky.providers.registry import standard
from sky.reconcile.computes import Computes
from sky.server import settings, wiring
from sky.server.wiring import Daemon
from sky.store.migrate import upgrade
from sky.store.schema import nodes

# Which level each route has. "anybody", "anyone": no token is asked for (faces 1 and 2; paid jobs); "signed":
# an address that the daemon signed; "upload": the token of that job; "node": the token of a living node.
TABLE = {
    "admin": """
        GET /admin/v1/accounts
        POST /admin/v1/accounts
        GET /admin/v1/accounts/{account_id}
        PATCH /admin/v1/accounts/{account_id}
        GET /admin/v1/accounts/{account_id}/entries
        GET /admin/v1/accounts/{account_id}/keys
        POST /admin/v1/accounts/{account_id}/keys
        POST /admin/v1/accounts/{account_id}/payments
        POST /admin/v1/accounts/{account_id}/refunds
        GET /admin/v1/accounts/{account_id}/webhooks
        GET /admin/v1/catalogue
        GET /admin/v1/garbage
        POST /admin/v1/garbage
        GET /admin/v1/jobs
        DELETE /admin/v1/keys/{key_id}
        PATCH /admin/v1/keys/{key_id}
        GET /admin/v1/ledger/audit
        GET /admin/v1/settings
        GET /admin/v1/webhooks/{webhook_id}
        PATCH /admin/v1/webhooks/{webhook_id}
        GET /admin/v1/webhooks/{webhook_id}/deliveries
        POST /admin/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver
        GET /api/server_logs
        GET /metrics
        GET /users
        POST /users
        DELETE /users/{name}
        GET /users/{name}
        PATCH /users/{name}
        GET /v1/blobs/{sha256}
        PUT /v1/blobs/{sha256}
        GET /v1/computes
        POST /v1/computes
        DELETE /v1/computes/{compute_id}
        GET /v1/computes/{compute_id}
        PATCH /v1/computes/{compute_id}
        POST /v1/computes/{compute_id}/exec
        DELETE /v1/computes/{compute_id}/files
        GET /v1/computes/{compute_id}/files
        PUT /v1/computes/{compute_id}/files
        GET /v1/computes/{compute_id}/files/content
        GET /v1/computes/{compute_id}/forward/down
        POST /v1/computes/{compute_id}/forward/up
        GET /v1/computes/{compute_id}/generations
        POST /v1/computes/{compute_id}/generations
        GET /v1/computes/{compute_id}/generations/{number}
        DELETE /v1/computes/{compute_id}/lease
        PUT /v1/computes/{compute_id}/lease
        GET /v1/computes/{compute_id}/nodes
        DELETE /v1/computes/{compute_id}/nodes/{node_id}
        GET /v1/computes/{compute_id}/nodes/{node_id}
        GET /v1/computes/{compute_id}/shell/down
        GET /v1/computes/{compute_id}/shell/exit
        POST /v1/computes/{compute_id}/shell/resize
        POST /v1/computes/{compute_id}/shell/up
        GET /v1/events
        GET /v1/functions
        GET /v1/functions/{sha256}
        PUT /v1/functions/{sha256}
        GET /v1/health/dependencies
        GET /v1/health/ready
        GET /v1/loops
        GET /v1/offers
        GET /v1/provider-kinds
        GET /v1/providers
        POST /v1/providers
        DELETE /v1/providers/{provider_id}
        GET /v1/providers/{provider_id}
        PUT /v1/providers/{provider_id}
        GET /v1/tasks
        POST /v1/tasks
        POST /v1/tasks/batch
        GET /v1/tasks/outcomes
        DELETE /v1/tasks/{task_id}
        GET /v1/tasks/{task_id}
        GET /v1/tasks/{task_id}/executions
        POST /v1/tasks/{task_id}/executions
        GET /v1/tasks/{task_id}/executions/{ordinal}
        GET /v1/tasks/{task_id}/result
        GET /v1/tasks/{task_id}/stream
    """,
    "viewer": """
        GET /api/clusters
        GET /api/clusters/{name}/jobs
        GET /api/costs
        GET /api/get
        GET /api/openapi.json
        GET /api/status
        GET /api/stream
        GET /api/summary
        POST /check
        POST /cost_report
        GET /docs
        POST /download_logs
        GET /enabled_clouds
        POST /enabled_clouds
        POST /endpoints
        POST /job_status
        POST /list_accelerator_counts
        POST /list_accelerators
        POST /logs
        POST /optimize
        POST /queue
        POST /status
        POST /storage_ls
        GET /users/me
        GET /users/tokens
        POST /users/tokens
        DELETE /users/tokens/{token}
        POST /users/tokens/{token}/rotate
        GET /v1/health/live
        GET /v1/openapi.json
        POST /validate
    """,
    "anyone": """
        GET /compute/v1/openapi.json
        GET /compute/v1/skus
        GET /compute/v1/templates
        GET /compute/v1/upstreams
        GET /healthz
    """,
    "customer": """
        POST /compute/v1/jobs
        POST /compute/v1/jobs/{id}/cancel
        POST /compute/v1/jobs:estimate
        POST /compute/v1/webhook_endpoints
        DELETE /compute/v1/webhook_endpoints/{id}
        PATCH /compute/v1/webhook_endpoints/{id}
        POST /compute/v1/webhook_endpoints/{id}/deliveries/{delivery}/redeliver
        POST /compute/v1/webhook_endpoints/{id}/rotate
    """,
    "reader": """
        GET /compute/v1/balance
        GET /compute/v1/jobs
        GET /compute/v1/jobs/{id}
        GET /compute/v1/jobs/{id}/artifacts
        GET /compute/v1/jobs/{id}/events
        GET /compute/v1/jobs/{id}/logs
        GET /compute/v1/usage
        GET /compute/v1/webhook_endpoints
        GET /compute/v1/webhook_endpoints/{id}
        GET /compute/v1/webhook_endpoints/{id}/deliveries
    """,
    "upload": """
        POST /compute/v1/internal/jobs/{id}/artifacts/complete
        POST /compute/v1/internal/jobs/{id}/artifacts/uploads
    """,
    "signed": """
        GET /compute/v1/files/{token}/{name}
        PUT /compute/v1/files/{token}/{name}
    """,
    "user": """
        POST /api/cancel
        POST /autostop
        POST /cancel
        POST /down
        POST /exec
        POST /launch
        POST /start
        POST /stop
        POST /storage_delete
        POST /upload
    """,
    "anybody": """
        GET /
        GET /api/health
        GET /dashboard
        GET /dashboard/{rest}
    """,
    "node": """
        GET /agent/v1/blobs/{sha256}
        PUT /agent/v1/blobs/{sha256}
        SOCKET /agent/v1/connect
        GET /agent/v1/package/{name}
        SOCKET /agent/v1/rendezvous/{meeting}
        GET /agent/v1/uv/{machine}
    """,
}
LEVELS = {
    line: level for level, lines in TABLE.items() for line in map(str.strip, lines.strip().splitlines())
}

USERS = ("viewer", "user", "admin", "daemon", "owner")
LET_IN = {
    "anybody": ("nobody", "another user here", "a proxy that is not believed", *USERS),
    "viewer": USERS,
    "user": USERS[1:],
    "admin": USERS[2:],
    "reader": ("reader", "customer", "suspended"),
    "customer": ("customer", "suspended"),
    "upload": ("upload",),
    "signed": (),
    "node": ("node",),
}
# Who is known, and may not: 403. Everybody else is not known: 401.
KNOWN = {
    "user": ("viewer",),
    "admin": ("viewer", "user"),
    "customer": ("reader",),
    "node": ("dead node",),
}
QUERIES = {"GET /v1/offers": "kind=ssh"}
"""So that nothing is asked of a provider, since no loop would answer."""
UNKNOWN_JOB = "job_00000000000000000000000000"


@dataclass
class Caller:
    """Somebody: with a token, at a node, or as the user that the daemon runs as."""

    token: str | None = None
    uid: int | None = None
    more: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass
class Answer:
    """The status of an answer and, of a refusal, its body."""

    status: int
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def ask(app: Any, line: str, caller: Caller, body: Any = None, query: str = "") -> Answer:
    """Ask for ``METHOD path``, and read no more of the answer than a refusal has."""
    method, _, path = line.partition(" ")
    content = b"" if body is None else json.dumps(body).encode()
    named = {"host": "127.0.0.1:7590", **caller.more}
    if body is not None:
        named["content-type"] = "application/json"
    if caller.token is not None:
        named["authorization"] = f"Bearer {caller.token}"
    scope: dict[str, Any] = {
        "type": "websocket" if method == "SOCKET" else "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "scheme": "ws" if method == "SOCKET" else "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.encode(), text.encode()) for name, text in named.items()],
        "client": ("127.0.0.1", 40_000),
        "server": ("127.0.0.1", 7590),
        "state": {"peer_uid": caller.uid},
        "subprotocols": [],
        "extensions": {"websocket.http.response": {}},
    }
    if method != "SOCKET":
        scope["method"] = method
    told: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    sent: list[dict[str, Any]] = [{"type": "http.request", "body": content, "more_body": False}]
    if method == "SOCKET":
        sent = [{"type": "websocket.connect"}]
    status: list[int] = []

    async def receive() -> dict[str, Any]:
        if not sent:
            await asyncio.Event().wait()  # it stays, and says no more
        return sent.pop()

    async def send(message: Any) -> None:
        kind = message["type"]
        if kind.endswith(".start"):
            status.append(message["status"])
        elif kind == "websocket.accept":
            status.append(101)
        if not told.done() and (kind.endswith(".body") or status == [101]):
            told.set_result(Answer(status[0], message.get("body", b"")))

    serving = asyncio.ensure_future(app(scope, receive, send))
    await asyncio.wait({serving, told}, return_when=asyncio.FIRST_COMPLETED, timeout=30)
    if not told.done():
        raise AssertionError(f"{line} is not answered: {serving}")
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    return told.result()


def built(home: Path) -> Daemon:
    """A daemon that sells, whose loops do not run."""
    (home / "catalogue.yaml").write_text(CATALOGUE)
    chosen = settings.load(
        {"home": str(home), "catalogue": str(home / "catalogue.yaml"), "allow_host_jobs": "true"}, {}
    )
    upgrade(chosen.database_url)
    clock = SteadyClock(SystemClock())
    return wiring.build(chosen, clock, standard(), lambda: "http://127.0.0.1:7590")


OWNER = Caller(uid=os.getuid())


async def made(app: Any, line: str, body: Any, caller: Caller = OWNER) -> Any:
    """What was made."""
    answer = await ask(app, line, caller, body)
    assert answer.status in (200, 201), (line, answer)
    return answer.json


async def customer(app: Any, name: str, **key: Any) -> Caller:
    """The key of a new account that has paid."""
    await made(app, "POST /admin/v1/accounts", {"name": name})
    await made(app, f"POST /admin/v1/accounts/{name}/payments", {"amount_usd": "100", "payment": name})
    return Caller((await made(app, f"POST /admin/v1/accounts/{name}/keys", key))["key"])


async def nodes_of(app: Any, daemon: Daemon) -> list[Caller]:
    """The agents of a node that lives and of one that is over."""
    spec = {"specs": [{"provider": {"kind": "local"}}], "nodes": {"desired": 2}}
    compute = await made(app, "POST /v1/computes", {"spec": spec})
    look = Computes(daemon.keys.node_token_hash).look
    await daemon.db.write(lambda tx: look(tx, compute["id"]))
    alive, dead = await daemon.db.read(lambda c: [row.id for row in c.execute(nodes.select())])

    def end(tx: Any) -> None:
        tx.connection.execute(nodes.update().where(nodes.c.id == dead).values(state="deleted"))

    await daemon.db.write(end)
    return [Caller(daemon.keys.node_token(one), more={"x-sky-node": one}) for one in (alive, dead)]


async def everybody(app: Any, daemon: Daemon) -> dict[str, Caller]:
    """One of each kind that may come."""
    found = {
        "nobody": Caller(),
        "stranger": Caller("sky_" + "x" * 40),
        "daemon": Caller(daemon.keys.token),
        "owner": OWNER,
        "another user here": Caller(uid=os.getuid() + 1),
        "a proxy that is not believed": Caller(more={"x-auth-request-email": "ada"}),
        "upload": Caller(daemon.keys.job_token(UNKNOWN_JOB)),
        "another upload": Caller(daemon.keys.job_token("job_00000000000000000000000001")),
    }
    for role in ("viewer", "user", "admin"):
        await made(app, "POST /users", {"name": role, "role": role})
        token = await made(app, "POST /users/tokens", {"name": "main", "user": role})
        found[role] = Caller(token["token"])
    await made(app, "POST /users", {"name": "gone", "role": "admin"})
    gone = await made(app, "POST /users/tokens", {"name": "main", "user": "gone"})
    found["revoked token"] = Caller(gone["token"])
    assert (await ask(app, f"DELETE /users/tokens/{gone['id']}", OWNER)).status in (200, 204)
    found["customer"] = await customer(app, "buys")
    found["reader"] = await customer(app, "reads", scopes=["read"])
    found["suspended"] = await customer(app, "suspended")
    await made(app, "PATCH /admin/v1/accounts/suspended", {"change": "suspend"})
    found["revoked key"] = await customer(app, "revoked")
    [key] = (await made(app, "GET /admin/v1/accounts/revoked/keys", None))["items"]
    await made(app, f"DELETE /admin/v1/keys/{key['id']}", None)
    found["node"], found["dead node"] = await nodes_of(app, daemon)
    return found


def registered(app: Any) -> dict[str, str]:
    """Every route, as the table writes it, and as it is asked for."""
    found: dict[str, str] = {}
    for route in app._app.routes:
        methods = getattr(route, "methods", None) or ["SOCKET"]
        plain = re.sub(r":\w+}", "}", route.path)
        job = UNKNOWN_JOB if "/jobs/" in plain else "nosuch"
        for method in methods:
            if method != "OPTIONS":
                found[f"{method} {plain}"] = f"{method} {re.sub(r'{[^}]*}', job, plain)}"
    return found


def expected(level: str, who: str) -> set[int] | None:
    """The statuses that refuse; None: whatever does not."""
    if level == "anyone" or who in LET_IN[level]:
        return None
    return {403} if who in KNOWN.get(level, ()) else {401}


async def test_every_route_lets_in_whom_it_is_for_and_nobody_else(tmp_path: Path) -> None:
    daemon = built(tmp_path)
    daemon.services.blobs.prepare()
    daemon.db.start()
    app = build_app(daemon.services)
    await daemon.runner.stop()
    try:
        routes = registered(app)
        assert set(routes) - set(LEVELS) == set(), "each needs its line in the table"
        assert set(LEVELS) - set(routes) == set(), "there is no such route"
        callers = await everybody(app, daemon)
        wrong = [
            f"{line} of {who}: {answer.status}"
            for line, level in LEVELS.items()
            for who, caller in callers.items()
            if not _as_it_should(
                level, who, answer := await ask(app, routes[line], caller, None, QUERIES.get(line, ""))
            )
        ]
        assert wrong == []
    finally:
        daemon.db.close()


def _as_it_should(level: str, who: str, answer: Answer) -> bool:
    refusing = expected(level, who)
    if refusing is None:
        return answer.status not in (401, 403)
    return answer.status in refusing


async def test_what_is_anothers_looks_like_nothing(tmp_path: Path) -> None:
    daemon = built(tmp_path)
    daemon.services.blobs.prepare()
    daemon.db.start()
    app = build_app(daemon.services)
    await daemon.runner.stop()
    try:
        hers, his = await customer(app, "ada"), await customer(app, "bob")
        body = {"sku": "cpu", "spec": {"image": "local", "command": ["true"], "max_runtime_seconds": 60}}
        job = await made(app, "POST /compute/v1/jobs", body, hers)
        hook = {"url": "https://hooks.example.com/x"}
        endpoint = await made(app, "POST /compute/v1/webhook_endpoints", hook, hers)
        asked = 0
        for line, level in LEVELS.items():
            if level not in ("reader", "customer") or "{id}" not in line:
                continue
            own = endpoint["id"] if "webhook" in line else job["id"]
            body = {} if line.startswith("PATCH") else None
            there, none = (
                line.replace("{id}", one).replace("{delivery}", "nosuch") for one in (own, "nosuch")
            )
            foreign = await ask(app, there, his, body)
            unknown = await ask(app, none, his, body)
            codes = [one.json["error"]["code"] for one in (foreign, unknown)]
            assert (foreign.status, codes[0]) == (404, codes[1]), line
            assert unknown.status == 404, line
            asked += 1
        assert asked >= 10
        lists = ("jobs", "webhook_endpoints")
        seen = [
            (await made(app, f"GET /compute/v1/{name}", None, one))["data"]
            for name in lists
            for one in (his, hers)
        ]
        assert [len(items) for items in seen] == [0, 1, 0, 1]
    finally:
        daemon.db.close()
