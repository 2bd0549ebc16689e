"""How pages are drawn, against how they were: pictures on a desk and on a phone, some of them in the dark.

Decides: how a picture is taken so that it is the same in every run, and how much of it may differ. Never:
compares what is only in numbers, times and ids (``still.js`` fixes them). Follows: what differs lies as three
pictures in a folder that the test names; ``SKY_UPDATE_GOLDEN=1`` accepts the pictures of now.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.dashboard.browser import Browser, Tab

HERE = Path(__file__).parent
STILL = (HERE / "still.js").read_text(encoding="utf-8")
COMPARE = (HERE / "compare.js").read_text(encoding="utf-8")
ACCEPTED = HERE.parent / "golden" / "pictures"
COLOURS_EXACT, COLOURS_MAX = 16, 255
SIZES = {"desk": (1280, 900), "phone": (360, 720)}
HEIGHT_MAX_PX = 1300
HEIGHT_OFF_PX = 8
THERE = """["DejaVu Sans", "DejaVu Sans Mono"].filter((name) => {
  const context = new OffscreenCanvas(9, 9).getContext("2d");
  const widths = ["serif", "monospace", "sans-serif"].map((other) => {
    context.font = `40px "${name}", ${other}`;
    return context.measureText("mmmiiiWWW").width;
  });
  return new Set(widths).size > 1;
})"""
"""Which of the fonts are not there: those without which the width of words depends on what is named next."""
CELLS_OFF_LEVELS = 22
"""By how many of 255 levels a cell may be off. Letters that are smoothed otherwise are up to 16 off; a sign
that is missing is 40 off and more, and a word in place of another 30."""
STRETCHES_OFF_LEVELS = 6
"""By how many a stretch of one colour may be off. The colours of an accepted picture are up to 3 off."""


@dataclass
class Pictures:
    """The pictures of one run; where they differ from the accepted ones is kept in ``folder``."""

    folder: Path
    judge: Tab
    accept: bool
    seen: set[str] = field(default_factory=set[str])
    differences: list[str] = field(default_factory=list[str])

    @classmethod
    def of(cls, tab: Tab, browser: Browser, folder: Path, *, accept: bool) -> Pictures:
        """Pictures of what ``tab`` shows, which another tab judges."""
        judge = browser.tab("about:blank")
        fonts = judge.run(THERE)
        assert fonts == [], f"pictures are drawn with fonts that are missing: {fonts}; scripts/setup --tests"
        judge.run(COMPARE)
        tab.send("Page.bringToFront")
        return cls(folder, judge, accept)

    def take(self, tab: Tab, page: str, size: str, scheme: str = "light") -> None:
        """Take a picture of what a tab shows, and see whether it is as accepted."""
        name = f"{page or 'overview'}-{size}{'' if scheme == 'light' else '-dark'}"
        name = name.replace("/", "-").replace("?", "-").replace("=", "-").lower()
        self.seen.add(f"{name}.png")
        taken = shot(tab, size, scheme)
        accepted = ACCEPTED / f"{name}.png"
        if self.accept:
            self._write(taken, accepted)
        elif not accepted.is_file():
            self.differences.append(f"{name}: there is no accepted picture")
        else:
            self._compare(name, taken, accepted)

    def wrong(self) -> str:
        """What differs, and where to see it; pictures that no page has any more are wrong too."""
        kept = {file.name for file in ACCEPTED.glob("*.png")} if ACCEPTED.is_dir() else set[str]()
        if self.accept:
            for name in kept - self.seen:
                (ACCEPTED / name).unlink()
            return ""
        told = [*self.differences, *(f"{name}: no page is of that name" for name in sorted(kept - self.seen))]
        return "\n".join([*told, f"the pictures are in {self.folder}"]) if told else ""

    def _compare(self, name: str, taken: str, accepted: Path) -> None:
        before = base64.b64encode(accepted.read_bytes()).decode()
        found = compared(self.judge, taken, before)
        why = verdict(found)
        if why is None:
            return
        self.folder.mkdir(exist_ok=True)
        (self.folder / f"{name}.now.png").write_bytes(base64.b64decode(taken))
        (self.folder / f"{name}.accepted.png").write_bytes(accepted.read_bytes())
        if "difference" in found:
            (self.folder / f"{name}.difference.png").write_bytes(base64.b64decode(found["difference"]))
        self.differences.append(f"{name}: {why}")

    def _write(self, taken: str, file: Path) -> None:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(as_kept(self.judge, taken))


def shot(tab: Tab, size: str, scheme: str) -> str:
    """What a tab shows, standing still, as a PNG in base64."""
    width, height = SIZES[size]
    screen = {"width": width, "deviceScaleFactor": 1, "mobile": size == "phone"}
    tab.screen({**screen, "height": height})
    tab.scheme(scheme)
    tall = tab.run(STILL)
    if tall > height:
        tab.screen({**screen, "height": min(tall, HEIGHT_MAX_PX)})
    taken: str = tab.send("Page.captureScreenshot", optimizeForSpeed=True)["data"]
    tab.run("window.still()")
    return taken


def compared(judge: Tab, taken: str, accepted: str) -> dict[str, Any]:
    """What a tab that has ``compare.js`` finds in a picture and the accepted one, both in base64."""
    levels = f"{CELLS_OFF_LEVELS}, {STRETCHES_OFF_LEVELS}"
    return judge.run(f"compare({json.dumps(taken)}, {json.dumps(accepted)}, {levels})")


def as_kept(judge: Tab, taken: str) -> bytes:
    """A picture as it is kept once it is accepted."""
    packed = judge.run(f"packed({json.dumps(taken)}, {COLOURS_EXACT}, {COLOURS_MAX})")
    pixels = base64.b64decode(packed["pixels"])
    return png(packed["width"], packed["height"], bytes(packed["colours"]), pixels)


def verdict(found: dict[str, Any]) -> str | None:
    """What is wrong with a picture, as compared, if anything is."""
    if found["size"][0] != found["wanted"][0] or abs(found["size"][1] - found["wanted"][1]) > HEIGHT_OFF_PX:
        return f"it is {found['size']} pixels large where it was {found['wanted']}"
    off: list[list[int]] = found["off"]
    if not off:
        return None
    x, y, _, _, levels = max(off, key=lambda one: one[-1])
    return f"{len(off)} places are off, most at {x}, {y}: by {levels} of 255 levels"


def png(width: int, height: int, colours: bytes, pixels: bytes) -> bytes:
    """A picture with a palette, a byte for each pixel."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checked = kind + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    lines = b"".join(b"\0" + pixels[y * width : (y + 1) * width] for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = ((b"IHDR", head), (b"PLTE", colours), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, content) for kind, content in parts)
