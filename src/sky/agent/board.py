"""A page of memory that the agent and one worker share: which calls have begun, and when.

Decides, exactly and without asking the worker, whether a call that was sent has begun.
Never: blocks the agent; a lock it cannot have at once is tried again later.
Follows: calls can be sent ahead of time, and still be taken back with certainty when they must not wait or
must not run: the worker begins a call only under the lock, and only if it was not taken back.

    cell 0, 1   first and last number that was taken back
    cell 2i+2   number of the call that slot i began last
    cell 2i+3   when that was, on the monotonic clock that all processes of a machine share
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
from pathlib import Path

CELL_BYTES = 8


class Board:
    """One worker's board, on either side. ``fd`` is inherited by the worker."""

    def __init__(self, fd: int, slots: int) -> None:
        size = CELL_BYTES * (2 + 2 * slots)
        self.fd = fd
        self._slots = slots
        self._memory = mmap.mmap(fd, size)
        self._numbers = memoryview(self._memory).cast("Q")
        self._times = memoryview(self._memory).cast("d")

    @classmethod
    def create(cls, slots: int) -> Board:
        """A fresh board without a name in any folder. Raises OSError."""
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("sky-board", os.MFD_CLOEXEC)
        else:
            fd, path = tempfile.mkstemp()
            Path(path).unlink()
        os.ftruncate(fd, CELL_BYTES * (2 + 2 * slots))
        return cls(fd, slots)

    def begin(self, slot: int, seq: int, now_s: float) -> bool:
        """The worker is about to run call ``seq``; False when it was taken back and must not."""
        fcntl.lockf(self.fd, fcntl.LOCK_EX)
        try:
            if self._numbers[0] <= seq <= self._numbers[1]:
                return False
            self._times[2 * slot + 3] = now_s
            self._numbers[2 * slot + 2] = seq
            return True
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN)

    def take_back(self, last: int) -> int | None:
        """Call off every call up to ``last`` that has not begun; gives the last one that has.

        None: the worker holds the lock just now, nothing is changed, try again.
        """
        try:
            fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return None
        try:
            begun = self.begun()
            if begun < last:
                self._numbers[0], self._numbers[1] = begun + 1, last
            return begun
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN)

    def begun(self) -> int:
        """The highest number that has begun; exact only when the worker is dead or the lock is held."""
        return max(self._numbers[2 * slot + 2] for slot in range(self._slots))

    def running(self) -> list[tuple[int, float]]:
        """What each slot began last, and when."""
        return [(self._numbers[2 * slot + 2], self._times[2 * slot + 3]) for slot in range(self._slots)]

    def close(self) -> None:
        """Let go of the memory and of the descriptor."""
        self._numbers.release()
        self._times.release()
        self._memory.close()
        os.close(self.fd)
