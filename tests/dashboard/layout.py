"""How pages look, against how they looked: boxes of their parts on a desk and on a phone, colours in light
and in dark.

Decides: how far a box may be off. Fonts differ between machines, so in what is measured each word is a box
(``layout.js``); ``pictures.py`` compares what is drawn. Follows: ``SKY_UPDATE_GOLDEN=1 python -m pytest
tests/dashboard/test_pages.py -k every_page`` writes down how they look now; look at the difference then.
"""

from __future__ import annotations

import json
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.dashboard.browser import DESK, PHONE, Tab

MEASURE = (Path(__file__).parent / "layout.js").read_text(encoding="utf-8")
GOLDEN = Path(__file__).parents[1] / "golden" / "dashboard.json"
WIDER = "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth) - innerWidth"
OFF_PX = 3
DOWN_PX = 12
"""How far down a part may be off: what is above it adds up."""
SHOWN = 20


class Looks:
    """How pages look now."""

    def __init__(self) -> None:
        self.boxes: dict[str, dict[str, list[str]]] = {}
        self.colours: dict[str, dict[str, str]] = {"light": {}, "dark": {}}

    def measure(self, tab: Tab, page: str) -> None:
        """Measure the page that a tab shows, on a phone and then on a desk, in dark and then in light."""
        found: dict[str, Any] = {}
        for size, screen in (("phone", PHONE), ("desk", DESK)):
            tab.screen(screen)
            assert tab.run(WIDER) <= 0, f"{page} is wider than a {size}"
            for scheme in ("dark", "light"):
                tab.scheme(scheme)
                found = tab.run(MEASURE)
                self.colours[scheme].update(found["colours"])
            self.boxes.setdefault(page, {})[size] = found["boxes"]

    def write(self) -> None:
        """Have it be how they are to look."""
        told = {"boxes": self.boxes, "colours": self.colours}
        GOLDEN.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    def differences(self) -> list[str]:
        """What looks otherwise than it is to look."""
        wanted = json.loads(GOLDEN.read_text(encoding="utf-8"))
        found: list[str] = []
        for scheme, colours in wanted["colours"].items():
            both = {*colours, *self.colours[scheme]}
            found += [
                f"{scheme}, {name}: {self.colours[scheme].get(name)}, and not {colours.get(name)}"
                for name in sorted(both)
                if self.colours[scheme].get(name) != colours.get(name)
            ]
        for page in sorted({*wanted["boxes"], *self.boxes}):
            for size in ("desk", "phone"):
                sides = [told.get(page, {}).get(size, []) for told in (self.boxes, wanted["boxes"])]
                found += [f"{page or 'overview'} on a {size}: {one}" for one in _off(*sides)]
        return found[:SHOWN]


def _off(now: list[str], before: list[str]) -> list[str]:
    """Where two lists of boxes differ; of parts that are not the same, the first alone."""
    found: list[str] = []
    for one, other in zip_longest(now, before, fillvalue="nothing 0 0 0 0"):
        (name, *box), (wanted, *then) = one.split(" "), other.split(" ")
        if name != wanted:
            return [*found, f"{one} where {other} was"]
        x, y, width, height = (abs(int(a) - int(b)) for a, b in zip(box, then, strict=True))
        if max(x, width, height) > OFF_PX or y > DOWN_PX:
            found.append(f"{one} where {other} was")
    return found
