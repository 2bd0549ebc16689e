"""Story (c) with the money at a console: straight, with wakes lost, dying anywhere, the console failing.

The console is the reference one, over real HTTP in this process; time is virtual on our side of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.flows.test_jobs import FREE, SKU, Shop
from tests.flows.world import World

from sky.console.book import Book
from sky.console.bridge import Bridge
from sky.console.server import application
from sky.domain.money import MICRO, usd_text
from sky.kit import faults
from sky.store.rows import ledger
from sky.store.schema_jobs import console_orders, jobs
from sky.verbs import holds
from sky.verbs import jobs as verbs
from sky.wire import console as wire

TOKEN = "token-of-the-bridge"
OWNER = "acme"
HOLD = 600 * 1_000
PARTS = 2


class Till:
    """The console: its books, and the ways in which it fails now (path to kind)."""

    def __init__(self, url: str, book: Book, failing: dict[str, str]) -> None:
        self.url = url
        self.book = book
        self.failing = failing

    def open(self, paid_micro: int) -> None:
        self.book.open(OWNER)
        self.book.pay(OWNER, "pay-1", paid_micro)

    @property
    def ends(self) -> list[str | None]:
        return [hold.ended for hold in self.book.books.holds.values()]


@asynccontextmanager
async def console() -> AsyncIterator[Till]:
    """A console, listening. ``failing`` is how: ``down`` does nothing, ``lost`` does it and says nothing."""
    failing: dict[str, str] = {}

    @web.middleware
    async def fail(request: web.Request, handler: Any) -> web.StreamResponse:
        kind = failing.get(request.path.rpartition("/")[2])
        if kind == "down":
            return web.Response(status=503)
        answer = await handler(request)
        return web.Response(status=502) if kind == "lost" else answer

    book = Book()
    app = web.Application(middlewares=[fail])
    app.add_subapp("/at", application(book, TOKEN))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield Till(f"http://{host}:{port}/at", book, failing)
    finally:
        await runner.cleanup()


class ConsoleShop(Shop):
    """A seller whose customer has an account at the console."""

    till: Till

    async def open(self) -> None:
        await self.world.provider()
        self.till.open(self.paid)

    def customer(self) -> verbs.Customer:
        return verbs.Customer(f"{holds.PREFIX}{OWNER}", "key_1", verbs.CONSOLE, None, FREE)

    async def submit(self, key: str = "job", **more: Any) -> str:
        """As the face does it: note the order, give it, write the job. Nothing is tidied up after a death."""
        spec = {"image": "local", "command": ["true"], **more.pop("spec", {})}
        wanted = verbs.Wanted(SKU, SKU.places, spec, {}, more.pop("max_runtime_seconds", 600))
        world, customer = self.world, self.customer()
        known = await world.db.write(lambda tx: tx.remembered(key, key))
        if known is not None:
            return known
        assert world.bridge is not None
        job_id = await world.db.write(lambda tx: holds.order(tx, customer.owner, wanted.hold_micro))
        faults.point("submit: order noted, not given")
        answer = await world.bridge.hold(job_id, OWNER, wanted.hold_micro)
        assert answer == wire.HoldAnswer(status="held")
        faults.point("submit: held, no job written")
        return await world.ask(key, lambda tx: verbs.submit(tx, customer, wanted, FREE, job_id))

    async def check(self) -> None:
        await super().check()
        assert self.till.book.findings() == []
        available, held = self.till.book.balance(OWNER)
        charged = sum(job["settled_micro"] or 0 for job in self.world.rows(jobs))
        assert (available, held) == (self.paid - charged, 0), (
            "the console has what it paid, less what it cost"
        )
        ours = await self.world.db.read(lambda c: ledger.balances(c, f"{holds.PREFIX}{OWNER}"))
        assert ours == (0, 0)
        assert self.world.rows(console_orders) == []

    def quiet(self, job_id: str) -> Callable[[], bool]:
        """The job is over, and the console has been told everything."""
        over = self.over(job_id)
        return lambda: bool(over()) and None not in self.till.ends and not self.world.rows(console_orders)


def shop_at(till: Till, folder: Path, *, hints: bool = True, **more: Any) -> ConsoleShop:
    shop = ConsoleShop(World(folder, hints=hints, bridge=Bridge(till.url, TOKEN, 5.0)), **more)
    shop.till = till
    return shop


async def tell(shop: ConsoleShop) -> str:
    await shop.open()
    job_id = await shop.submit(spec={"outputs": [{"mount": "/out"}]})
    await shop.world.settle(shop.quiet(job_id))
    return job_id


async def check_end(shop: ConsoleShop, job_id: str) -> None:
    await shop.check()
    row = shop.job(job_id)
    assert row["state"] == "succeeded"
    assert shop.till.book.books.holds[job_id].charge_micro == row["settled_micro"] > 0
    others = {name: hold.ended for name, hold in shop.till.book.books.holds.items() if name != job_id}
    assert set(others.values()) <= {"released"}, "what was held for no job was given back"


@pytest.mark.parametrize("hints", [True, False], ids=["woken", "every wake lost"])
async def test_a_job_is_settled_at_its_console(tmp_path: Path, hints: bool) -> None:
    async with console() as till:
        shop = shop_at(till, tmp_path, hints=hints)
        await check_end(shop, await tell(shop))
        assert len(till.book.books.holds) == 1
        shop.world.close()


def points(names: tuple[str, ...]) -> list[int]:
    """Where to die: around everything that concerns the console, and here and there elsewhere, which the same
    story with the money at home covers."""
    ours = [n for n, name in enumerate(names, 1) if name.startswith(("submit:", "holds:"))]
    return [n for n in range(1, len(names) + 1) if n % 15 == 0 or any(abs(n - one) <= 3 for one in ours)]


@pytest.mark.parametrize("part", range(PARTS))
async def test_dying_anywhere_loses_no_hold_and_no_settlement(tmp_path: Path, part: int) -> None:
    (tmp_path / "straight").mkdir()
    async with console() as till:
        shop = shop_at(till, tmp_path / "straight", seconds=3.0)
        faults.record()
        await tell(shop)
        names = faults.disarm()
        shop.world.close()
    assert {"submit: held, no job written", "holds: effect done, not written down"} <= set(names)
    for number in points(names)[part::PARTS]:
        (tmp_path / str(number)).mkdir()
        async with console() as till:
            shop = shop_at(till, tmp_path / str(number), seconds=3.0)
            faults.arm(number)
            try:
                await tell(shop)
            except faults.Died:
                pass
            finally:
                faults.disarm()
            shop.world.die()
            job_id = await tell(shop)
            try:
                await check_end(shop, job_id)
            except AssertionError as error:
                error.add_note(f"the daemon had died at point {number}: {names[number - 1]}")
                raise
            shop.world.close()


@pytest.mark.parametrize("kind", ["down", "lost"])
@pytest.mark.parametrize("outage_s", [20.0, 1_000.0])
async def test_a_settlement_outlives_an_outage(tmp_path: Path, kind: str, outage_s: float) -> None:
    async with console() as till:
        shop = shop_at(till, tmp_path, seconds=30.0)
        await shop.open()
        job_id = await shop.submit()
        till.failing["settle"] = kind
        await shop.world.settle(lambda: shop.job(job_id)["state"] == "succeeded")
        await shop.world.live(outage_s, step_s=5.0)
        assert shop.job(job_id)["settled_us"] is None
        assert shop.world.cloud.alive() == (), "the machine does not wait for the console"
        till.failing.clear()
        await shop.world.settle(shop.quiet(job_id), step_s=5.0)
        await check_end(shop, job_id)
        shop.world.close()


@pytest.mark.parametrize("kind", [None, "lost"], ids=["at once", "its first answer lost"])
async def test_more_is_held_as_a_job_goes_on(tmp_path: Path, kind: str | None) -> None:
    async with console() as till:
        shop = shop_at(till, tmp_path, seconds=9_000.0, paid=100 * MICRO)
        await shop.open()
        job_id = await shop.submit(max_runtime_seconds=14_400)
        if kind is not None:
            till.failing["extend"] = kind
            await shop.world.settle(
                lambda: len(till.book.books.holds[job_id].parts) > 1, seconds=9e3, step_s=10.0
            )
            assert shop.told(job_id).count("billing.hold_extended") == 0, "nobody has heard of it yet"
            till.failing.clear()
        await shop.world.settle(shop.quiet(job_id), seconds=20_000.0, step_s=10.0)
        await check_end(shop, job_id)
        assert shop.told(job_id).count("billing.hold_extended") == 1
        assert till.book.books.holds[job_id].parts == {job_id: 7_200_000, f"{job_id}:2": 7_200_000}
        shop.world.close()


async def test_a_console_that_does_not_answer_in_time_ends_the_job_before_its_hold_does(
    tmp_path: Path,
) -> None:
    async with console() as till:
        shop = shop_at(till, tmp_path, seconds=14_000.0, paid=100 * MICRO)
        await shop.open()
        job_id = await shop.submit(max_runtime_seconds=14_400)
        till.failing["extend"] = "down"
        await shop.world.settle(shop.quiet(job_id), seconds=20_000.0, step_s=5.0)
        await shop.check()
        row = shop.job(job_id)
        assert (row["state"], row["error"]["code"]) == ("failed", "billing_unavailable")
        assert 7_100_000 <= row["settled_micro"] <= 7_200_000, "stopped before its hold was used up"
        shop.world.close()


async def test_a_balance_that_runs_out_at_the_console_ends_the_job_in_time(tmp_path: Path) -> None:
    async with console() as till:
        shop = shop_at(till, tmp_path, seconds=14_000.0, paid=8 * MICRO)
        await shop.open()
        job_id = await shop.submit(max_runtime_seconds=14_400)
        await shop.world.settle(shop.quiet(job_id), seconds=20_000.0, step_s=5.0)
        await shop.check()
        row = shop.job(job_id)
        assert (row["state"], row["error"]["code"]) == ("failed", "balance_exhausted")
        told = [event for event in shop.told(job_id) if event == "billing.balance_exhausted"]
        assert len(told) == 1
        assert 7_100_000 <= row["settled_micro"] <= 7_200_000
        shop.world.close()


async def test_what_the_console_cannot_mean_is_never_written_down(tmp_path: Path) -> None:
    async with console() as till:
        shop = shop_at(till, tmp_path, seconds=3.0)
        await shop.open()
        job_id = await shop.submit()
        settled_elsewhere(till, job_id)
        await shop.world.settle(lambda: shop.job(job_id)["state"] == "succeeded")
        await shop.world.live(30.0)
        assert shop.job(job_id)["settled_us"] is None
        [note] = shop.world.query("SELECT error FROM passes WHERE key = :key", key=f"holds/{job_id}")
        assert "conflict" in note.error, "people are told to look"
        shop.world.close()


def settled_elsewhere(till: Till, job_id: str) -> None:
    """Somebody settles a hold at the console who is not its seller."""
    answer = till.book.settle(job_id, wire.SettleOrder(charge_usd=usd_text(1)))
    assert answer.status == "settled"
