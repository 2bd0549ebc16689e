"""The disks of the cloud in memory: names that outlive machines.

Decides: which there are. Never: who uses one (``cloud`` knows). Follows: a disk that was made once and given
to one machine after another is the same disk; ``made`` tells each making, so that a test can count them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable


class FakeDisks:
    """All disks of a world. ``on_remove`` is told of each that goes."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.on_remove: Callable[[str], Awaitable[None]] | None = None
        self._there: dict[tuple[str, str], None] = {}

    def give(self, deployment: str, name: str) -> None:
        """The disk of that name, made if there is none."""
        if (deployment, name) not in self._there:
            self._there[deployment, name] = None
            self.made.append(name)

    def names(self, deployment: str) -> tuple[str, ...]:
        """Every disk of a deployment."""
        return tuple(name for where, name in self._there if where == deployment)

    async def remove(self, deployment: str, name: str) -> None:
        """That disk is no more, if there was one."""
        if (deployment, name) not in self._there:
            return
        del self._there[deployment, name]
        if self.on_remove is not None:
            await self.on_remove(name)
