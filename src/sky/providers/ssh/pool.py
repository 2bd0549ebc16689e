"""All hosts of one provider, with what outlives the provider's object: connections and tunnels.

Decides: which hosts keep theirs when the settings change (those that are told the same way as before). Never:
is two for one provider in one process. Follows: an object that was made anew for a row finds what the one
before has opened; what no row has any more closes by itself.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping

from sky.providers.base import Setup
from sky.providers.ssh.access import Access
from sky.providers.ssh.commands import Commands
from sky.providers.ssh.hosts import Reached
from sky.providers.ssh.records import Records
from sky.providers.ssh.tunnel import Tunnel
from sky.wire.hosts import SshConfig, ways

_Known = dict[tuple[str, str], "Pool"]
_pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Known] = weakref.WeakKeyDictionary()


class Pool:
    """The hosts of one row, in their order."""

    def __init__(self, setup: Setup, config: SshConfig, records: Records) -> None:
        """Raises HostFailure when a key or a credential cannot be read."""
        self.told = (config, dict(setup.credentials))
        access = Access(config, setup.credentials, records)
        self.hosts: dict[str, Reached] = {}
        self._tunnels: dict[str, Tunnel] = {}
        for host in config.hosts:
            home = (host.home or config.home).rstrip("/")
            self.hosts[host.name] = Reached(
                host=host,
                way=ways(config, host),
                commands=Commands(home, setup.context.deployment, setup.provider_id),
                access=access,
                call_seconds=config.call_seconds,
            )

    def tunnel(self, host: Reached, daemon_url: Callable[[], str]) -> Tunnel:
        """The tunnel of a host, which may not be there yet."""
        known = self._tunnels.get(host.name)
        if known is None:
            known = self._tunnels[host.name] = Tunnel(host, daemon_url)
        return known

    async def close(self) -> None:
        """Let go of everything that is open."""
        for tunnel in self._tunnels.values():
            await tunnel.close()
        for host in self.hosts.values():
            await host.close()


async def of(setup: Setup, config: SshConfig, records: Records) -> Pool:
    """The pool of a row, as the row is now. Raises HostFailure."""
    known = _pools.setdefault(asyncio.get_running_loop(), {})
    key = (str(setup.context.home), setup.provider_id)
    pool = known.get(key)
    if pool is not None and pool.told == (config, dict(setup.credentials)):
        return pool
    fresh = Pool(setup, config, records)
    if pool is not None:
        _remember(pool.hosts, fresh.hosts)
        await pool.close()
    known[key] = fresh
    return fresh


async def close_all() -> None:
    """Let go of the connections of all pools of this event loop."""
    for pool in _pools.pop(asyncio.get_running_loop(), {}).values():
        await pool.close()


def _remember(before: Mapping[str, Reached], after: Mapping[str, Reached]) -> None:
    """What was seen of a host is still so when only the way to it has changed."""
    for name, host in after.items():
        old = before.get(name)
        if old is not None and old.address == host.address and old.commands == host.commands:
            host.remembered = old.remembered
