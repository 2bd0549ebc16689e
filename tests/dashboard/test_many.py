"""A page with more rows than are drawn at once: the rest is shown when asked for, and found by a word."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.conftest import RunningDaemon, free_port
from tests.dashboard.browser import DESK, Browser
from tests.requests.test_requests import Api

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
ROWS = "document.querySelectorAll('tbody tr').length"
DRAWN, ALL = 100, 101


def test_a_long_list_shows_some_more_when_asked_and_finds_one_by_a_word(
    browser: Browser, tmp_path: Path
) -> None:
    running = RunningDaemon(tmp_path, free_port())
    running.start()
    try:
        api = Api(running.url)
        with ThreadPoolExecutor(4) as askers:
            asked = list(askers.map(lambda n: api.ask("stop", cluster_name=f"none-{n}"), range(ALL)))
        assert {api.get(one["request_id"])["status"] for one in asked} == {"FAILED"}
        tab = browser.tab(running.url)
        tab.screen(DESK)
        tab.open("requests?show=failed")
        tab.says(f"{DRAWN} of {ALL} are shown.")
        assert tab.run(ROWS) == DRAWN
        tab.press("Show 1 more")
        tab.says(f"{ALL} of {ALL} are shown.")
        assert tab.run(ROWS) == ALL
        find = "document.querySelector('main input[type=search]')"
        for word, count in (("NONE-100", 1), ("no such word", 0), ("", ALL)):
            tab.run(f"{find}.value = {word!r}; {find}.dispatchEvent(new Event('change'))")
            tab.says(f"{min(count, DRAWN)} of {count} are shown.")
            assert tab.run(ROWS) == min(count, DRAWN)
        assert tab.errors == []
        tab.close()
    finally:
        running.stop()
