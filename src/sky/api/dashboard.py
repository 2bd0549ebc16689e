"""The dashboard: pages and scripts that lie in the package, for browsers.

Decides: which pages there are, and what a browser may do on them (its policy). Never: puts anything of the
daemon into a page; the scripts ask the faces for that, as whoever looks, with their token.
Follows: the files are told to anybody, since they say nothing; a page that is not there is told with near
names, to a browser on a page with the way back; a browser keeps the files, and asks whether they are still
the same.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Annotated, Any

from litestar import get
from litestar.connection import Request
from litestar.response.base import ASGIResponse
from msgspec import Meta, Struct

from sky.api.operation import Ask, operation, reply
from sky.api.reading import Query, header
from sky.api.requests.versions import user_of
from sky.api.stream import Whole
from sky.domain.errors import NotFound
from sky.kit.codec import sha256_hex
from sky.kit.nearby import hint
from sky.store.views import summary as views
from sky.wire import summary as wire

ROOT = "/dashboard"
STATIC = "static"
PAGES = (
    "costs",
    "clusters",
    "computes",
    "tasks",
    "console",
    "events",
    "requests",
    "launch",
    "jobs",
    "sold",
    "accounts",
    "prices",
    "users",
    "settings",
    "login",
)
"""How the paths of pages begin, beside that of the first; ``static/app.js`` has a view for each."""
MEDIA = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Scripts and styles of ours alone, none of them inside of a page, and text never becomes markup."""
HEADERS = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-cache"),
)


class File(Struct, frozen=True):
    """A file of the dashboard, as it is sent."""

    content: bytes
    media: str
    tag: str


@cache
def files() -> dict[str, File]:
    """Every file, by its path."""
    found: dict[str, File] = {}
    waiting: list[tuple[str, Traversable]] = [("", resources.files("sky") / "dashboard")]
    while waiting:
        prefix, folder = waiting.pop()
        for entry in folder.iterdir():
            name = prefix + entry.name
            if entry.is_dir():
                waiting.append((f"{name}/", entry))
            elif (media := MEDIA.get(name.rpartition(".")[2])) is not None:
                content = entry.read_bytes()
                found[name] = File(content, media, f'"{sha256_hex(content)[:32]}"')
    return found


@get("/", include_in_schema=False)
async def serve_root(request: Request[Any, Any, Any]) -> ASGIResponse:
    """Lead a browser to the dashboard; who wants no page is told that there is nothing."""
    if not _wants_page(request):
        raise NotFound(f"there is nothing at /; pages for a browser are at {ROOT}/")
    return Whole(b"", media=None, status=307, headers=[("location", f"{ROOT}/")])


@get([ROOT, f"{ROOT}/{{rest:path}}"], include_in_schema=False)
async def serve_dashboard(request: Request[Any, Any, Any]) -> ASGIResponse:
    """A page of the dashboard, or a file that it loads."""
    parts = [part for part in request.scope["path"].split("/") if part][1:]
    wanted, status = "index.html", 200
    if parts[:1] == [STATIC]:
        wanted = "/".join(parts[1:])
        if wanted not in files():
            raise NotFound(f"the dashboard has no file {wanted[:120]!r}")
    elif parts and parts[0] not in PAGES:
        if not _wants_page(request):
            msg = f"the dashboard has no page {parts[0][:80]!r}; {hint(parts[0], PAGES)}"
            raise NotFound(msg, details={"page": parts[0][:80]})
        status = 404
    file = files()[wanted]
    headers = [*HEADERS, ("etag", file.tag)]
    if status == 200 and header(request, b"if-none-match") == file.tag:
        return Whole(b"", media=None, status=304, headers=headers)
    return Whole(file.content, media=file.media, status=status, headers=headers)


def _wants_page(request: Request[Any, Any, Any]) -> bool:
    """Whether a browser asks, for somebody to read."""
    return "text/html" in (header(request, b"accept") or "")


class SummaryQuery(Query, frozen=True):
    """Of how many days the cost is told, today among them."""

    days: Annotated[int, Meta(ge=1, le=wire.DAYS_MAX)] = 30


@operation("GET", "/api/summary", tag="Requests", answers=wire.Summary)
async def get_summary(ask: Ask, query: SummaryQuery) -> ASGIResponse:
    """Tell at a glance what there is, what it costs, and what failed lately.

    To admins of everybody, to others of what is their own.
    """
    unit = ask.unit
    owner = None if ask.caller.admin else user_of(ask)
    now_us = unit.clock.now_us()
    return reply(await unit.db.read(lambda c: views.summary(c, owner, query.days, now_us)))


ROUTES = (serve_root, serve_dashboard, get_summary)
