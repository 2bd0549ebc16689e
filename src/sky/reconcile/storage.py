"""Marks what content and files are kept in as this installation's, and says where it is not.

Decides: how often each place is looked at. Never: removes anything, or takes a place over (``store/tenure``
says whose it is). Follows: `sky why` and ``/v1/loops`` tell of each place whether anything is removed there,
and if not, why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from sky.domain.errors import Busy
from sky.kit.clock import SECOND_US, Clock
from sky.reconcile.passes import Done, OuterLoop
from sky.store.tenure import Tenure

EVERY_US = 300 * SECOND_US
AGAIN_US = 60 * SECOND_US
"""When a place that did not answer is asked again."""


PLACES = ("blobs", "blob-bucket", "artifacts")
"""What a daemon may keep outside of its database: content in a folder and in a bucket, files of jobs."""


class StorageMarks(OuterLoop):
    """One pass: look at one place, and mark it where nobody has."""

    name: ClassVar[str] = "storage"
    idle: ClassVar[str] = "it has not looked yet whose the folders and buckets are"

    def __init__(self, clock: Clock, tenures: Mapping[str, Tenure]) -> None:
        """``tenures``: each place by what it is for."""
        self._clock = clock
        self._tenures = tenures

    async def look(self, key_id: str) -> Done:
        now_us = self._clock.now_us()
        tenure = self._tenures.get(key_id)
        if tenure is None:
            return Done("this daemon keeps nothing of that kind")
        try:
            why = await tenure.kept_from()
        except (Busy, OSError) as error:
            return Done(f"{tenure.where} could not be looked at: {error}", now_us + AGAIN_US)
        return Done(why or f"{tenure.where} is this installation's own", now_us + EVERY_US)
