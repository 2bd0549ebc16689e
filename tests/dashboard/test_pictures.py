"""The comparison of pictures finds what somebody who looks would find, and not how letters are smoothed.

Decides: which faults are planted, each alone, in one row of a page that has the dashboard's own style. Never:
asks a daemon. Follows: ``pictures.py`` may be trusted with every page.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest
from tests.dashboard.browser import Browser, Tab
from tests.dashboard.pictures import COMPARE, HERE, as_kept, compared, verdict

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
STYLE = (HERE.parents[1] / "src/sky/dashboard/style.css").read_text(encoding="utf-8")
FONTS = """
  * { font-family: "DejaVu Sans" !important; } code { font-family: "DejaVu Sans Mono" !important; }
  body { display: block; min-height: 0; padding: 20px; } i { font-style: normal; }
"""
SIZE = {"width": 700, "height": 340, "deviceScaleFactor": 1, "mobile": False}
ROW = """<tr><td><a href="#">first</a></td>
  <td><span class="state good"><i>✓</i><span>ready</span></span></td>
  <td class="machines"><span>three machines</span></td><td><code>uck_NNNN</code></td>
  <td><span class="state wait"><i>…</i><span>waits</span></span></td><td class="num">$12.50</td></tr>"""
FAULTS = {
    "a sign is gone": ("<i>✓</i>", '<i style="visibility: hidden">✓</i>'),
    "a sign is another": ("<i>✓</i>", "<i>✗</i>"),
    "a state has another's colour": ("state good", "state busy"),
    "a column is 6 pixels to the right": ("<span>three", '<span style="padding-left: 6px">three'),
    "the border above a row is gone": ("<tr><td>", '<tr style="--line: transparent"><td>'),
    "a word is another": ("three machines", "seven machines"),
    "an id is another": ("uck_NNNN", "uck_NEpN"),
}
SMOOTHED = {
    "letters begin between pixels": "span, a, code, i { position: relative; left: .3px; }",
    "letters are a pixel off": "td > *, .tile > * { position: relative; left: 1px; }",
    "letters are shaped exactly": "* { text-rendering: geometricPrecision; }",
    "letters are a little bolder": "* { -webkit-text-stroke: .15px currentcolor; }",
}


@pytest.fixture(scope="module")
def drawn(browser: Browser) -> Iterator[Tab]:
    """A tab without a page, which draws and which judges."""
    made = browser.tab("about:blank")
    made.run(COMPARE)
    made.screen(SIZE)
    yield made
    made.close()


def picture(tab: Tab, row: str = ROW, more: str = "") -> str:
    """The page with that row between two others, as a PNG in base64."""
    tiles = (
        '<div class="tile"><span class="tile-label">An hour</span><span class="tile-value">$1.00</span></div>'
    )
    page = (
        f"<style>{STYLE}{FONTS}{more}</style><h1>Clusters</h1><div class='scroll'><table><thead><tr><th>Name"
        f"<th>State<th>Machines<th>Key<th>Disk<th>Cost</thead><tbody>{ROW}{row}{ROW}</tbody></table></div>"
        f"<div class='tiles' style='margin-top: 16px'>{tiles}{tiles}</div>"
    )
    tab.run(
        f"document.documentElement.innerHTML = {json.dumps(page)}; document.fonts.ready.then(() => "
        "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))))"
    )
    return tab.send("Page.captureScreenshot")["data"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_fault_is_found_alone(drawn: Tab, scheme: str) -> None:
    drawn.scheme(scheme)
    accepted = base64.b64encode(as_kept(drawn, picture(drawn))).decode()
    assert verdict(compared(drawn, picture(drawn), accepted)) is None
    missed: list[str] = []
    for name, (right, wrong) in FAULTS.items():
        assert ROW.count(right) == 1, right
        if verdict(compared(drawn, picture(drawn, ROW.replace(right, wrong)), accepted)) is None:
            missed.append(name)
    assert missed == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_how_letters_are_smoothed_is_no_fault(drawn: Tab, scheme: str) -> None:
    drawn.scheme(scheme)
    before = picture(drawn)
    accepted = base64.b64encode(as_kept(drawn, before)).decode()
    told: dict[str, str] = {}
    for name, style in SMOOTHED.items():
        now = picture(drawn, more=style)
        assert now != before, f"{name}: nothing is drawn otherwise"
        if (why := verdict(compared(drawn, now, accepted))) is not None:
            told[name] = why
    assert told == {}
