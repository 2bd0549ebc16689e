"""Who a token, or a proxy in front, says that a caller is.

Decides: how long what was read of a token holds, and what a token that does not let in is told. Never: lets
anybody in itself (``auth`` does), or keeps a token. Follows: a revoked token is refused at once by the daemon
that revoked it, and after ``AGE_S`` by every other on the same database; what is found by the hash of a
token needs no comparison that takes as long as it takes.
"""

from __future__ import annotations

import asyncio
import os
import pwd

import structlog
from msgspec import Struct

from sky.domain.errors import SkyError, Unauthorized
from sky.domain.user import NAME, NAME_EXPECTED, Caller, Role, lesser
from sky.kit.clock import SECOND_US, Clock, to_datetime
from sky.store.commits import Committed
from sky.store.db import Database
from sky.store.rows import users as rows
from sky.store.sql import Row
from sky.verbs import users as verbs

AGE_S = 0.5
"""How long what was read of a token or a user holds."""
KNOWN_MAX = 10_000
NOTE_EVERY_US = 60 * SECOND_US
"""How exactly it is told when a token was last used."""
_SIGNAL = "~" + rows.CHANGED

_log = structlog.get_logger(__name__)


class _Known(Struct, frozen=True):
    read_s: float
    caller: Caller
    expires_us: int | None = None


class Callers:
    """Callers by their tokens and by the names that a proxy gives them."""

    def __init__(self, db: Database, clock: Clock, default_role: Role) -> None:
        self._db = db
        self.clock = clock
        self._default_role: Role = default_role
        self._known: dict[str, _Known] = {}
        self._turns = 0
        self._noted: dict[str, int] = {}
        self._noting: set[asyncio.Task[None]] = set()
        db.listen(self._heed)

    def _heed(self, committed: Committed) -> None:
        if _SIGNAL in committed.keys:
            self._known.clear()
            self._turns += 1

    async def by_token(self, token: str) -> Caller:
        """Whose token that is. Raises Unauthorized where it does not let in."""
        if not verbs.is_token(token):
            msg = f"the token is neither this daemon's nor of the form {verbs.PREFIX}…; {_ASK}"
            raise Unauthorized(msg)
        sha256 = verbs.hash_of(token)
        known = self._fresh(sha256)
        if known is None:
            read_s, turn = self.clock.monotonic_s(), self._turns
            row = await self._db.read(lambda c: rows.by_hash(c, sha256))
            if row is None:
                msg = f"the token is not known here, or was rotated, or its user removed; {_ASK}"
                raise Unauthorized(msg)
            if row["revoked_us"] is not None:
                raise Unauthorized(f"the token was revoked; {_ASK}")
            caller = Caller(row["user_name"], lesser(row["user_role"], row["role"]), "token", row["id"])
            known = _Known(read_s, caller, row["expires_us"])
            self._keep(sha256, known, turn)
            self._note_use(row)
        now_us = self.clock.now_us()
        if known.expires_us is not None and known.expires_us <= now_us:
            ended = to_datetime(known.expires_us).isoformat(timespec="seconds")
            raise Unauthorized(f"the token expired at {ended}; `sky token rotate` makes it anew, or {_ASK}")
        return known.caller

    async def by_proxy(self, name: str) -> Caller:
        """The user whom a proxy vouches for, who is made when first seen. Raises Unauthorized."""
        if not NAME.fullmatch(name):
            raise Unauthorized(f"the proxy names the user {name[:80]!r}; a name is {NAME_EXPECTED}")
        key = f"@{name}"
        known = self._fresh(key)
        if known is None:
            read_s, turn = self.clock.monotonic_s(), self._turns
            row = await self._db.read(lambda c: rows.find(c, name))
            if row is None:
                role = self._default_role
                row = await self._db.write(lambda tx: verbs.first_seen(tx, name, role))
            known = _Known(read_s, Caller(name, row["role"], "proxy"))
            self._keep(key, known, turn)
        return known.caller

    def _fresh(self, key: str) -> _Known | None:
        known = self._known.get(key)
        return None if known is None or self.clock.monotonic_s() - known.read_s > AGE_S else known

    def _keep(self, key: str, known: _Known, turn: int) -> None:
        if turn != self._turns:  # somebody wrote meanwhile, so this may be what was before
            return
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[key] = known

    def _note_use(self, row: Row) -> None:
        """Have it written when a token was used, beside what it was used for."""
        now_us, token_id = self.clock.now_us(), row["id"]
        if now_us - max(row["used_us"] or 0, self._noted.get(token_id, 0)) < NOTE_EVERY_US:
            return
        if len(self._noted) >= KNOWN_MAX:
            self._noted.clear()
        self._noted[token_id] = now_us
        task = asyncio.get_running_loop().create_task(self._write_use(token_id))
        self._noting.add(task)
        task.add_done_callback(self._noting.discard)

    async def _write_use(self, token_id: str) -> None:
        try:
            await self._db.write(lambda tx: rows.used(tx, token_id))
        except SkyError as kept:  # a full disk, for one, must not keep a token from being used
            _log.warning("token.use_not_noted", token=token_id, error=kept.message)


_ASK = "an admin makes one with `sky token create`"


def own_name(uid: int) -> str:
    """What the system calls the user that the daemon runs as."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return os.environ.get("USER", str(uid))
