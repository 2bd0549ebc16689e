"""A console for development and tests, over HTTP on this computer: the bridge, its operator's paths, faults.

Decides: how the books are reached, and which faults can be injected. Never: listens beyond loopback, or is
meant for anybody's money. Follows: what it answers is what ``docs/console.md`` asks of every console; a fault
is said with its path and how often it strikes.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

import msgspec
from aiohttp import web
from msgspec import Meta

from sky.console.book import Book
from sky.domain.money import parse_usd, usd_text
from sky.wire import console as wire

BODY_BYTES_MAX = 64 * 1024
OPERATOR = "/console/v1"
Name = wire.Owner


class AccountOrder(msgspec.Struct, forbid_unknown_fields=True):
    """An account to make, if there is none, and what to change of it."""

    state: Literal["active", "disabled", "suspended"] | None = None
    amount_usd: str | None = None
    payment: str | None = None


class KeyOrder(msgspec.Struct, forbid_unknown_fields=True):
    """A key to revoke."""

    key: str


class Fault(msgspec.Struct, forbid_unknown_fields=True):
    """``down``: the connection is closed, and nothing done. ``error``: status 500, and nothing done.
    ``lost``: it is done, and the connection closed. ``slow``: it is done, and answered ``seconds`` later.
    ``answer``: nothing is done, and ``body`` answered. It
    strikes ``times`` requests whose last part of the path is ``on``; an empty one is any."""

    kind: Literal["down", "error", "lost", "slow", "answer"]
    on: str = ""
    times: Annotated[int, Meta(ge=0, le=1_000_000)] = 1_000_000
    seconds: Annotated[float, Meta(ge=0, le=600)] = 0.0
    body: dict[str, Any] = {}


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(book: Book, token: str) -> web.Application:
    """The console over ``book``, for whoever shows ``token``."""
    faults: list[Fault] = []

    @web.middleware
    async def door(request: web.Request, handler: Handler) -> web.StreamResponse:
        shown = request.headers.get("authorization", "")
        if not hmac.compare_digest(shown.encode(), f"Bearer {token}".encode()):
            return _json({"error": "the token of the bridge is missing or wrong"}, 401)
        try:
            return await _struck(request, handler, faults)
        except msgspec.DecodeError as error:
            return _json({"error": f"the body cannot be read: {error}"}, 400)
        except (KeyError, ValueError) as error:
            return _json({"error": f"{type(error).__name__}: {error}"}, 400)

    app = web.Application(middlewares=[door], client_max_size=BODY_BYTES_MAX)
    _bridge(app, book)
    _operator(app, book, faults)
    return app


def _bridge(app: web.Application, book: Book) -> None:
    async def verify(request: web.Request) -> web.Response:
        return _json(book.verify(await _body(request, wire.KeyQuestion)))

    async def balance(request: web.Request) -> web.Response:
        return _json(book.funds(await _body(request, wire.BalanceQuestion)))

    async def hold(request: web.Request) -> web.Response:
        return _json(book.hold(await _body(request, wire.HoldOrder)))

    async def extend(request: web.Request) -> web.Response:
        return _json(book.extend(request.match_info["id"], await _body(request, wire.ExtendOrder)))

    async def settle(request: web.Request) -> web.Response:
        return _json(book.settle(request.match_info["id"], await _body(request, wire.SettleOrder)))

    async def release(request: web.Request) -> web.Response:
        return _json(book.release(request.match_info["id"]))

    app.router.add_post(wire.VERIFY, verify)
    app.router.add_post(wire.BALANCE, balance)
    app.router.add_post(wire.HOLDS, hold)
    for name, handler in (("extend", extend), ("settle", settle), ("release", release)):
        app.router.add_post(f"{wire.HOLDS}/{{id}}/{name}", handler)


def _operator(app: web.Application, book: Book, faults: list[Fault]) -> None:
    async def account(request: web.Request) -> web.Response:
        name = msgspec.convert(request.match_info["name"], Name)
        order = await _body(request, AccountOrder)
        book.open(name)
        if order.state is not None:
            book.set_state(name, order.state)
        if order.amount_usd is not None:
            book.pay(name, order.payment or "", parse_usd(order.amount_usd))
        available, held = book.balance(name)
        return _json({"name": name, "available_usd": usd_text(available), "held_usd": usd_text(held)})

    async def make_key(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in book.books.accounts:
            return _json({"error": f"there is no account {name!r}"}, 404)
        return _json({"key": book.make_key(name)})

    async def revoke(request: web.Request) -> web.Response:
        order = await _body(request, KeyOrder)
        return _json({"revoked": book.revoke(order.key)})

    async def show(request: web.Request) -> web.Response:
        del request
        holds = {
            reference: {
                "owner": hold.owner,
                "parts": {name: usd_text(micro) for name, micro in hold.parts.items()},
                "ended": hold.ended,
                "charge_usd": usd_text(hold.charge_micro),
            }
            for reference, hold in book.books.holds.items()
        }
        return _json({"holds": holds, "findings": book.findings()})

    async def strike(request: web.Request) -> web.Response:
        faults[:] = await _body(request, list[Fault])
        return _json({"faults": len(faults)})

    app.router.add_put(f"{OPERATOR}/accounts/{{name}}", account)
    app.router.add_post(f"{OPERATOR}/accounts/{{name}}/keys", make_key)
    app.router.add_post(f"{OPERATOR}/keys/revoke", revoke)
    app.router.add_get(f"{OPERATOR}/books", show)
    app.router.add_put(f"{OPERATOR}/faults", strike)


async def _struck(request: web.Request, handler: Handler, faults: list[Fault]) -> web.StreamResponse:
    """The answer, with the fault that strikes this request."""
    fault = None
    if not request.path.startswith(OPERATOR):
        last = request.path.rpartition("/")[2]
        fault = next((one for one in faults if one.times and one.on in ("", last)), None)
    if fault is None:
        return await handler(request)
    fault.times -= 1
    if fault.kind == "error":
        return _json({"error": "as it was asked for"}, 500)
    if fault.kind == "down":
        return _closed(request)
    if fault.kind == "answer":
        return _json(fault.body)
    answer = await handler(request)
    if fault.kind == "lost":
        return _closed(request)
    await asyncio.sleep(fault.seconds)
    return answer


def _closed(request: web.Request) -> web.Response:
    """No answer: the connection is gone."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


async def _body(request: web.Request, shape: Any) -> Any:
    return msgspec.json.decode(await request.read(), type=shape)


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")
