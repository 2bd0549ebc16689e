"""Who comes to the dashboard without knowing it: by a wrong address, with a phone, with keys alone, with a
token that has ended, to a daemon that has nothing yet."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from tests.conftest import free_port
from tests.dashboard.browser import PHONE, Browser, Tab
from tests.dashboard.conftest import Fleet
from tests.dashboard.layout import WIDER
from tests.dashboard.test_pages import broken_rules
from tests.requests.remote import Reachable

from sky.api.dashboard import PAGES

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowRight": 39}
FOCUSED = "document.activeElement.textContent"
LONG = "a-name-that-goes-on-" * 3
TURNED = "\u05e9\u05dc\u05d5\u05dd\u202e"
"""A name that is read from the right, and turns around what follows."""


def press(tab: Tab, key: str) -> None:
    """Press a key and let it go."""
    told = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
    if key == "Enter":
        told["text"] = "\r"
    tab.send("Input.dispatchKeyEvent", type="keyDown", **told)
    tab.send("Input.dispatchKeyEvent", type="keyUp", **told)


def tab_to(tab: Tab, text: str) -> None:
    """Press Tab until what says that has the focus."""
    for _ in range(60):
        press(tab, "Tab")
        if tab.run(FOCUSED) == text:
            return
    raise AssertionError(f"Tab does not lead to {text!r}")


def test_an_address_of_no_page_is_told_on_a_page_with_the_way_back(tab: Tab, fleet: Fleet) -> None:
    with fleet.daemon.as_() as nobody:
        page = nobody.get("/dashboard/custers", headers={"accept": "text/html,*/*;q=0.8"})
        assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
        again = nobody.get(
            "/dashboard/custers", headers={"accept": "text/html", "if-none-match": page.headers["etag"]}
        )
        assert again.status_code == 404
        assert nobody.get("/dashboard/custers").json()["code"] == "not_found"
        told = nobody.get("/dashboard/static/no.js", headers={"accept": "text/html"})
        assert told.json()["code"] == "not_found"
    tab.open("custers")
    tab.says("There is no page /dashboard/custers.")
    assert broken_rules(tab) == []
    tab.run("[...document.querySelectorAll('main a')].find((a) => a.textContent === 'Clusters').click()")
    tab.says("first")
    tab.open("nothing-like-it")
    tab.says("To the overview")
    assert "Did you mean" not in tab.text()
    tab.open("clusters/%E0%A4")
    tab.says("There is no cluster")


def test_a_table_that_goes_on_to_a_side_says_so_and_is_moved_with_keys(tab: Tab) -> None:
    tab.screen(PHONE)
    tab.open("computes/machines")
    tab.says("Every node it had")
    tab.until("[...document.querySelectorAll('.scroll')].some((one) => one.scrollWidth > one.clientWidth)")
    table = "[...document.querySelectorAll('.scroll')].find((one) => one.scrollWidth > one.clientWidth)"
    shown = tab.run(f"getComputedStyle({table}).backgroundAttachment")
    assert shown == "local, local, scroll, scroll", "shadows that the ends of the table cover"
    tab.run(f"{table}.focus()")
    press(tab, "ArrowRight")
    tab.until(f"{table}.scrollLeft > 0")


def test_all_of_it_is_reached_with_keys(tab: Tab) -> None:
    tab.screen(PHONE)
    tab.open("clusters/first")
    tab.says("Submitted")
    press(tab, "Tab")
    assert tab.run(FOCUSED) == "Skip to the content"
    tab_to(tab, "Menu")
    press(tab, "Enter")
    tab.until("document.getElementById('menu').getAttribute('aria-expanded') === 'true'")
    tab_to(tab, "Costs")
    press(tab, "Escape")
    tab.until("document.getElementById('menu').getAttribute('aria-expanded') === 'false'")
    assert tab.run(FOCUSED) == "Menu"
    tab_to(tab, "Stop")
    press(tab, "Enter")
    tab.until("!!document.querySelector('dialog[open]')")
    assert tab.run("document.querySelector('dialog').contains(document.activeElement)")
    press(tab, "Escape")
    tab.until("!document.querySelector('dialog')")
    assert tab.run(FOCUSED) == "Stop", "the focus goes back to where the question was asked"
    tab.run("document.querySelector('tbody a').id = 'job'")
    tab_to(tab, tab.run("document.getElementById('job').textContent"))
    press(tab, "Enter")
    tab.until("location.pathname.includes('/jobs/') && document.querySelector('h1').textContent[0] === 'J'")
    assert tab.run("document.activeElement.localName") == "h1", "reading begins at the top of the page"


def test_a_token_that_has_ended_is_said_to_have(stranger: Tab, fleet: Fleet) -> None:
    token = fleet.daemon.made("leaves", "viewer")
    stranger.open("login")
    stranger.run(f"sessionStorage.setItem('sky.token', {token!r})")
    stranger.open("clusters")
    stranger.says("leaves · viewer")
    assert fleet.api.http.delete("/users/leaves").status_code < 300
    stranger.go("costs")
    stranger.says("Your token is not accepted any more")
    assert "leaves" not in stranger.run("document.getElementById('side').innerText"), "nobody is there"
    assert stranger.run("sessionStorage.getItem('sky.token')") is None
    assert stranger.run("location.search") == "?next=costs"


def test_names_that_are_long_or_read_from_the_right_stay_where_they_are(tab: Tab) -> None:
    tab.screen(PHONE)
    for name in (LONG, TURNED):
        tab.open(f"clusters/{quote(name, safe='')}")
        tab.says("There is no cluster")
        assert tab.run(WIDER) <= 0, name
    isolated = tab.run("getComputedStyle(document.querySelector('main a')).unicodeBidi")
    assert isolated == "isolate"


@pytest.fixture
def nothing(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """A tab of a daemon that has nothing yet."""
    running = Reachable(tmp_path_factory.mktemp("nothing"), free_port(), {})
    running.start()
    made = browser.tab(running.local)
    yield made
    made.close()
    running.stop()


def test_pages_of_a_daemon_that_has_nothing_say_what_to_do(nothing: Tab) -> None:
    nothing.screen(PHONE)
    nothing.open()
    nothing.says("sky launch -c dev 'echo hello'")
    for page in ("", *PAGES):
        if page == "sold":
            continue
        nothing.go(page)
        nothing.until("document.querySelector('main').innerText.length > 40")
        assert nothing.run(WIDER) <= 0, page
        assert broken_rules(nothing) == [], page
        assert nothing.errors == [], page
