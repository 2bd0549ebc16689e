"""Times on pages, for readers in several zones: moments are in their own, days of money are everybody's."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from tests.dashboard.browser import Tab
from tests.dashboard.conftest import Fleet

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
ZONES = {
    "UTC": ("UTC", "UTC"),
    "Asia/Kolkata": ("GMT+5:30", "GMT+5:30"),
    "America/New_York": ("EDT", "EST"),
}
"""How each is told before and after New York's clocks go back."""
TWICE = datetime(2026, 11, 1, 5, 30, tzinfo=UTC), datetime(2026, 11, 1, 6, 30, tzinfo=UTC)
"""Half past one in New York, and an hour later."""
TIMES = "[...document.querySelectorAll('main time')].map((one) => [one.dateTime, one.title, one.textContent])"
TILES = (
    "[...document.querySelectorAll('.tile')].map((one) => one.innerText).filter((one) => one.includes('UTC'))"
)
BARS = "[...document.querySelectorAll('.bar')].map((one) => one.title)"


def clock(moment: datetime, zone: str) -> str:
    """A moment as a clock of that zone shows it."""
    return f"{moment.astimezone(ZoneInfo(zone)):%b %-d, %Y, %-I:%M:%S %p}"


def plain(title: str) -> str:
    """What a browser says of a moment, without what its releases disagree on."""
    return title.replace("\u202f", " ").replace(" at ", ", ")


def test_a_moment_is_told_in_the_readers_zone_and_days_of_money_are_the_same_for_all(
    tab: Tab, fleet: Fleet
) -> None:
    money: list[tuple[list[str], list[str]]] = []
    month = datetime.fromisoformat(fleet.api.http.get("/api/summary").json()["month"])
    for zone, names in ZONES.items():
        tab.zone(zone)
        tab.open("costs")
        assert tab.run("Intl.DateTimeFormat().resolvedOptions().timeZone") in (zone, "Asia/Calcutta")
        tab.says("Had machines for")
        shown = tab.run(TIMES)
        assert shown
        for told, title, _ in shown:
            assert clock(datetime.fromisoformat(told), zone) in plain(title)
        money.append((tab.run(TILES), tab.run(BARS)))
        asset = tab.run("document.querySelector('script[type=module]').src").replace("app.js", "dom.js")
        told = tab.run(
            f"import({asset!r}).then(({{ time }}) => "
            f"{json.dumps([one.timestamp() for one in TWICE])}.map((one) => time(one).title))"
        )
        for moment, title, name in zip(TWICE, told, names, strict=True):
            assert plain(title) == f"{clock(moment, zone)} {name}"
    tiles, bars = money[0]
    assert money == [(tiles, bars)] * len(ZONES)
    assert len(tiles) == 1
    assert f"since {month:%b %-d} (UTC)" in tiles[0]
    assert len(bars) == 30
    assert all(" (UTC): $" in one for one in bars)
