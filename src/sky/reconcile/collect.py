"""Removes what is over for long, and what nothing names: from the database, then from the disk.

Decides: in which order, how often, and how much at once. Never: what names what (``store/rows/garbage``), or
removes content before nodes have had time to say what they hold. Follows: each kind has a key of its own, so
one that cannot go on keeps no other; what was used since it was found stays, and so does what is another
installation's (``store/tenure``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from sky.domain.errors import Busy
from sky.domain.keeping import Keeping
from sky.kit.clock import SECOND_US, Clock
from sky.reconcile.passes import Done, OuterLoop
from sky.store.blobs import FILES_AT_ONCE, Blobs
from sky.store.db import Database
from sky.store.rows import garbage
from sky.store.rows.garbage import Found
from sky.store.tx import Tx
from sky.store.views.garbage import FILES, LOOKS, before_us

EVERY_US = 6 * 3600 * SECOND_US
AGAIN_US = SECOND_US // 5
"""When there is more to remove than is removed at once."""
UNREACHABLE_US = 60 * SECOND_US
"""When a bucket that did not answer is asked again."""
QUIET_US = 900 * SECOND_US
"""How long after its start a daemon removes no content: a node may name some that it brought before."""


class Collect(OuterLoop):
    """One pass: look for what may go of one kind, or remove some of what was found."""

    name: ClassVar[str] = "collect"
    idle: ClassVar[str] = "it has not looked yet what may be removed"
    passes_max: ClassVar[int] = 1

    def __init__(self, db: Database, clock: Clock, keeping: Keeping, blobs: Blobs | None = None) -> None:
        """``blobs``: where content is that sits in files; None: not here."""
        self._db = db
        self._clock = clock
        self._keeping = keeping
        self._blobs = blobs
        self._began_us = clock.now_us()
        self._found: dict[str, list[Found]] = {}
        self._strays: list[tuple[str, int]] = []

    async def look(self, key_id: str) -> Done:
        now_us = self._clock.now_us()
        if key_id == FILES:
            return await self._files(now_us)
        until_us = before_us(self._keeping, key_id, now_us)
        if until_us is None:
            return Done("these are kept for as long as their compute")
        if key_id in ("functions", "content") and now_us < self._began_us + QUIET_US:
            why = "nodes have a quarter of an hour to say what they hold"
            return Done(why, self._began_us + QUIET_US)
        found = self._found.get(key_id)
        if not found:
            found = self._found[key_id] = await self._db.read(lambda c: LOOKS[key_id](c, until_us))
        if not found:
            return Done("none is over for long enough, or is nobody's", now_us + EVERY_US)
        return self._remove(key_id, found, now_us)

    def _remove(self, kind: str, found: list[Found], now_us: int) -> Done:
        """Remove the first of them, and forget that they were found.

        What is written may be undone and begun again, so each time it leaves the same behind.
        """
        if kind in _WHOLE:
            one, remove = found[0], _WHOLE[kind]

            def write(tx: Tx) -> None:
                self._found[kind] = found[1:] if remove(tx, one.key) else found

            why = f"removing {one.key}, and what was its; {len(found)} are to go"
            return Done(why, now_us + AGAIN_US, write)
        some, rest, take = found[: garbage.ROWS_MAX], found[garbage.ROWS_MAX :], _SOME[kind]

        def write_some(tx: Tx) -> None:
            take(tx, some)
            self._found[kind] = rest
            if kind == "content" and not rest:
                tx.touch(f"{self.name}/{FILES}")

        return Done(f"removed {len(some)} of {len(found)}", now_us + AGAIN_US, write_some)

    async def _files(self, now_us: int) -> Done:
        if self._blobs is None:
            return Done("this daemon keeps no content in files")
        try:
            kept = await self._blobs.kept_from()
            strays = self._strays or await self._blobs.stray_files(now_us)
            some, self._strays = strays[:FILES_AT_ONCE], strays[FILES_AT_ONCE:]
            gone = await self._blobs.remove_files([sha256 for sha256, _ in some], now_us)
        except OSError as error:
            return Done(f"files could not be removed: {error}", now_us + EVERY_US)
        except Busy as error:
            return Done(f"objects could not be removed: {error.message}", now_us + UNREACHABLE_US)
        if not (gone or self._strays):
            return Done("; ".join(kept) or "every file is known", now_us + EVERY_US)
        return Done("; ".join((f"removed {gone} files of {len(strays)}", *kept)), now_us + AGAIN_US)


def _keys(found: Sequence[Found]) -> list[str]:
    return [one.key for one in found]


_WHOLE: dict[str, Callable[[Tx, str], bool]] = {
    "clusters": garbage.remove_cluster,
    "computes": garbage.remove_compute,
}
_SOME: dict[str, Callable[[Tx, Sequence[Found]], int]] = {
    "calls": lambda tx, found: garbage.remove_calls(tx, _keys(found)),
    "deliveries": lambda tx, found: garbage.remove_deliveries(tx, _keys(found)),
    "functions": garbage.remove_functions,
    "content": garbage.remove_content,
}
