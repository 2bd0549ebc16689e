"""How a command reaches the daemon.

Decides: that commands which only read never start a daemon and those which create do, how long a daemon may
take to answer, and what a name that nobody knows was probably meant to be.
Never: retries what the client does not, or hides an error.
Follows: a reading command on a machine without a daemon ends at once with exit code 5.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from sky.cli import output
from sky.cli.errors import CliError
from sky.cli.nouns import near
from sky.client import calls, calls_admin, calls_machines, daemon, endpoints
from sky.client.errors import DaemonUnreachable, NameTaken, NotFound
from sky.client.http import Http, Streamed
from sky.client.request import Call
from sky.wire import v1

T = TypeVar("T")

PATIENCE_S = 5.0
"""How long the daemon may be away in the middle of a command."""
FIRST_PATIENCE_S = 1.0
"""How long a daemon that never answered is tried."""
OFFERS_S = 5.0
"""How long a daemon that has just begun may take to know its first offers."""
OFFERS_POLL_S = 0.05
PAGE_ITEMS = 500
NAMES_SEEN_MAX = 2_000


class Api:
    """The daemon, for one command."""

    def __init__(self, http: Http) -> None:
        self.http = http
        self._patience_s = FIRST_PATIENCE_S

    def send(self, call: Call[T]) -> T:
        """Carry out one operation."""
        try:
            answer = self.http.send(call, patience_s=self._patience_s)
        except NotFound as missing:
            raise self._with_near_name(missing, call) from missing
        self._patience_s = PATIENCE_S
        return answer

    def open(self, call: Call[Any]) -> Streamed:
        """Begin one operation whose answer is read as it comes."""
        try:
            return self.http.open(call, patience_s=self._patience_s)
        except NotFound as missing:
            raise self._with_near_name(missing, call) from missing

    def computes(self, state: v1.ComputeState | None = None) -> Iterator[v1.Compute]:
        """All computes, newest first."""
        cursor = None
        while True:
            page = self.send(calls.list_computes(cursor=cursor, limit=PAGE_ITEMS, state=state))
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def tasks(self, compute: str | None = None, state: v1.TaskState | None = None) -> Iterator[v1.Task]:
        """All tasks, newest first."""
        cursor = None
        while True:
            call = calls.list_tasks(cursor=cursor, limit=PAGE_ITEMS, compute=compute, state=state)
            page = self.send(call)
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def offers(self, *, refresh: bool | None = None, **filters: Any) -> v1.OfferPage:
        """What could be bought now. A daemon that has just begun is given time to ask its providers."""
        deadline_s = time.monotonic() + OFFERS_S
        while True:
            page = self.send(calls_machines.list_offers(**filters, refresh=refresh))
            if page.items or time.monotonic() > deadline_s or not self._asks_providers():
                return page
            time.sleep(OFFERS_POLL_S)

    def provide(self, kinds: Iterable[str]) -> None:
        """Add what a compute of these kinds would add when it is created: providers that need no credentials.

        Done before, so that there are prices to tell before anything is bought.
        """
        known = {
            name for p in self.send(calls_machines.list_providers()).items for name in (p.id, p.name, p.kind)
        }
        wanted = set(kinds) - known
        if not wanted:
            return
        for kind in self.send(calls_machines.list_provider_kinds()):
            if kind.kind in wanted and not kind.credential_fields:
                # Another command may have added it in this moment.
                with suppress(NameTaken):
                    self.send(calls_machines.add_provider(v1.ProviderCreate(kind=kind.kind, name=kind.kind)))

    def _asks_providers(self) -> bool:
        """Whether a provider has not answered yet, not even with an error."""
        providers = self.send(calls_machines.list_providers()).items
        return any(p.offers_fetched_at is None and p.last_error is None for p in providers)

    def _with_near_name(self, missing: NotFound, call: Call[Any]) -> NotFound:
        """The same error with a hint, when what was named resembles something that is there."""
        parts = call.path.removeprefix("/admin").split("/")[2:]
        if len(parts) < 2 or parts[0] not in ("computes", "tasks", "providers", "accounts"):
            return missing
        meant = near(parts[1], self._names(parts[0]))
        if not meant:
            return missing
        if meant[0] == parts[1]:
            # It is there, and something of it is not.
            hint = f"`sky {parts[0].removesuffix('s')} get {parts[1]}` shows what it has"
            if parts[2:3] == ["files"]:
                hint = f"`sky compute ls {parts[1]}` lists what is there"
            return _with_hint(missing, hint)
        return _with_hint(missing, f"did you mean `{meant[0]}`?")

    def _names(self, noun: str) -> list[str]:
        names: list[str] = []
        if noun == "computes":
            for compute in self.http.send(calls.list_computes(limit=PAGE_ITEMS), patience_s=0).items:
                names += [compute.id, *([compute.name] if compute.name else [])]
        elif noun == "tasks":
            names = [t.id for t in self.http.send(calls.list_tasks(limit=PAGE_ITEMS), patience_s=0).items]
        elif noun == "accounts":
            for account in self.http.send(calls_admin.list_accounts(limit=PAGE_ITEMS), patience_s=0).items:
                names += [account.id, account.name]
        else:
            for provider in self.http.send(calls_machines.list_providers(), patience_s=0).items:
                names += [provider.id, provider.name]
        return names[:NAMES_SEEN_MAX]


def _with_hint(missing: NotFound, hint: str) -> NotFound:
    details = {**missing.details, "hint": hint}
    return NotFound(missing.message, missing.code, missing.status, False, details, missing.request_id)


@contextmanager
def reading() -> Generator[Api]:
    """The daemon that runs. Raises DaemonUnreachable when there is none."""
    try:
        http = daemon.connect(start_if_absent=False)
    except DaemonUnreachable as absent:
        raise CliError(
            "daemon_unreachable",
            f"no daemon runs for {daemon.home_dir()}",
            "start one with `sky server start`, or name another in SKY_URL",
            5,
        ) from absent
    with _closing(http) as api:
        yield api


@contextmanager
def creating() -> Generator[Api]:
    """The daemon that runs, or one that is started now."""
    if endpoints.named(daemon.home_dir()).url is None:
        output.progress("looking for the daemon …")
        found = daemon.start()
        output.clear_progress()
        if found.started:
            output.note(f"started a daemon at {found.url}; `sky server stop` ends it")
    http = daemon.connect()
    with _closing(http) as api:
        yield api


@contextmanager
def _closing(http: Http) -> Generator[Api]:
    try:
        yield Api(http)
    finally:
        http.close()
