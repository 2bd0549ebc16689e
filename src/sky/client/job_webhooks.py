"""Where a customer has events of their jobs sent, and what was sent there: ``Jobs.webhooks``.

Decides: nothing; the seller does. Never: keeps a secret, which is in the answer that makes it and nowhere
else. Follows: what makes something each time it is asked (an endpoint, a secret, a message) is not sent again
when its answer is lost; ``list`` and ``deliveries`` show whether it came.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING

from sky.client import calls_jobs as calls
from sky.client.outermost import outermost_class
from sky.wire import webhooks as wire

if TYPE_CHECKING:
    from sky.client.jobs import Jobs
    from sky.client.jobs_async import AsyncJobs

PAGE_ITEMS = 100


@outermost_class
class JobWebhooks:
    """The webhook endpoints of a key's owner: ``sky.Jobs().webhooks``."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def add(self, url: str, types: Sequence[str] | None = None) -> wire.Webhook:
        """Have events sent to ``url``: those of these ``types``, or all. Its ``secret``, with which each is
        signed, is told here and never again. Raises JobRefused."""
        return self._jobs.send(calls.add_webhook(url, types))

    def list(self) -> tuple[wire.Webhook, ...]:
        """Your endpoints, oldest first, without their secrets."""
        return self._jobs.send(calls.list_webhooks()).data

    def get(self, webhook: str) -> wire.Webhook:
        """An endpoint by its id. Raises JobRefused."""
        return self._jobs.send(calls.get_webhook(webhook))

    def change(
        self,
        webhook: str,
        *,
        url: str | None = None,
        types: Sequence[str] | None = None,
        all_types: bool = False,
        enabled: bool | None = None,
    ) -> wire.Webhook:
        """Change where an endpoint is, of which ``types`` it hears (``all_types``: of all), or whether it
        hears at all: ``enabled`` also begins again what the seller ended. What is not said stays. Raises
        JobRefused."""
        change = calls.change_webhook(webhook, url=url, types=types, all_types=all_types, enabled=enabled)
        return self._jobs.send(change)

    def remove(self, webhook: str) -> None:
        """Forget an endpoint: nothing more is sent to it. Raises JobRefused."""
        self._jobs.send(calls.remove_webhook(webhook))

    def rotate(self, webhook: str) -> wire.Webhook:
        """Give an endpoint another ``secret``, told here and never again; for a day the old one signs too.
        Raises JobRefused."""
        return self._jobs.send(calls.rotate_webhook(webhook))

    def deliveries(self, webhook: str) -> Iterator[wire.Delivery]:
        """What was sent to an endpoint and what came of it, newest first, page by page. Raises JobRefused."""
        after = None
        while True:
            page = self._jobs.send(calls.list_deliveries(webhook, after=after, limit=PAGE_ITEMS))
            yield from page.data
            if not page.has_more or not isinstance(page.next, str):
                return
            after = page.next

    def redeliver(self, webhook: str, delivery: str) -> wire.Delivery:
        """Send something once more, soon. Raises JobRefused."""
        return self._jobs.send(calls.redeliver(webhook, delivery))


@outermost_class
class AsyncJobWebhooks:
    """The webhook endpoints of a key's owner, for one event loop. See ``sky.JobWebhooks``."""

    def __init__(self, jobs: AsyncJobs) -> None:
        self._jobs = jobs

    async def add(self, url: str, types: Sequence[str] | None = None) -> wire.Webhook:
        """Have events sent somewhere. See ``sky.JobWebhooks.add``."""
        return await self._jobs.send(calls.add_webhook(url, types))

    async def list(self) -> tuple[wire.Webhook, ...]:
        """Your endpoints, oldest first."""
        return (await self._jobs.send(calls.list_webhooks())).data

    async def get(self, webhook: str) -> wire.Webhook:
        """An endpoint by its id. Raises JobRefused."""
        return await self._jobs.send(calls.get_webhook(webhook))

    async def change(
        self,
        webhook: str,
        *,
        url: str | None = None,
        types: Sequence[str] | None = None,
        all_types: bool = False,
        enabled: bool | None = None,
    ) -> wire.Webhook:
        """Change an endpoint. See ``sky.JobWebhooks.change``."""
        change = calls.change_webhook(webhook, url=url, types=types, all_types=all_types, enabled=enabled)
        return await self._jobs.send(change)

    async def remove(self, webhook: str) -> None:
        """Forget an endpoint. See ``sky.JobWebhooks.remove``."""
        await self._jobs.send(calls.remove_webhook(webhook))

    async def rotate(self, webhook: str) -> wire.Webhook:
        """Give an endpoint another secret. See ``sky.JobWebhooks.rotate``."""
        return await self._jobs.send(calls.rotate_webhook(webhook))

    async def deliveries(self, webhook: str) -> AsyncIterator[wire.Delivery]:
        """What was sent to an endpoint, newest first, page by page."""
        after = None
        while True:
            page = await self._jobs.send(calls.list_deliveries(webhook, after=after, limit=PAGE_ITEMS))
            for one in page.data:
                yield one
            if not page.has_more or not isinstance(page.next, str):
                return
            after = page.next

    async def redeliver(self, webhook: str, delivery: str) -> wire.Delivery:
        """Send something once more. See ``sky.JobWebhooks.redeliver``."""
        return await self._jobs.send(calls.redeliver(webhook, delivery))
