"""Paid jobs for a customer in an event loop: what ``jobs`` does, awaited.

Decides: nothing; the flows are the same. Never: blocks the loop: files are written beside it.
Follows: ``AsyncJobs`` and ``AsyncJob`` have the names of ``Jobs`` and ``Job``; what takes time is awaited,
and what comes bit by bit is read with ``async for``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar, Unpack

from sky.client import calls_jobs as calls
from sky.client import job_flows
from sky.client.aside import aside
from sky.client.attempts import INTERRUPT_PATIENCE_S, PATIENCE_S
from sky.client.flows import Flow, arun
from sky.client.http_async import AsyncHttp
from sky.client.job_flows import Input, Output, RetryOn, Wanted
from sky.client.job_webhooks import AsyncJobWebhooks
from sky.client.jobs import EVENTS_POLL_S, PAUSE_FIRST_S, PAUSE_LONGEST_S, Artifact, Job, Jobs
from sky.client.outermost import outermost_class
from sky.client.request import Call, CutShort
from sky.kit import backoff
from sky.wire import jobs as wire
from sky.wire import spending

T = TypeVar("T")


@outermost_class
class AsyncJobs:
    """A seller of paid jobs, for one event loop: ``async with sky.AsyncJobs() as jobs``. See ``sky.Jobs``."""

    def __init__(
        self, url: str | None = None, key: str | None = None, *, patience_s: float = PATIENCE_S
    ) -> None:
        self._given = (url, key)
        self._patience_s = patience_s
        self._connecting = asyncio.Lock()
        self._blocking: Jobs | None = None
        self._http: AsyncHttp | None = None

    @property
    def webhooks(self) -> AsyncJobWebhooks:
        """Where you have events of your jobs sent."""
        return AsyncJobWebhooks(self)

    async def submit(
        self,
        *,
        sku: str | None = None,
        image: str | None = None,
        command: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        inputs: Sequence[Input] = (),
        outputs: Sequence[Output] = (),
        max_runtime_seconds: int | None = None,
        template: str | None = None,
        providers: Sequence[str] = (),
        metadata: Mapping[str, str] | None = None,
        after: Sequence[str] = (),
        retries: int = 0,
        retry_on: Sequence[RetryOn] = ("interrupted",),
        idempotency_key: str | None = None,
    ) -> AsyncJob:
        """Submit a job. See ``sky.Jobs.submit``; here it is the cancelled task that takes it back."""
        request = job_flows.request_of(
            sku=sku,
            template=template,
            image=image,
            command=command,
            env=env,
            inputs=inputs,
            outputs=outputs,
            max_runtime_seconds=max_runtime_seconds,
            providers=providers,
            metadata=metadata,
            after=after,
            retries=retries,
            retry_on=retry_on,
        )
        create = calls.submit_job(request, idempotency_key)
        try:
            return AsyncJob(self, await self.send(create))
        except asyncio.CancelledError as interrupted:
            if idempotency_key is None and self._http is not None:
                undo = job_flows.take_back(create)
                if not await arun(self._http, undo, patience_s=INTERRUPT_PATIENCE_S):
                    interrupted.add_note(job_flows.UNKNOWN)
            raise

    async def estimate(self, **wanted: Unpack[Wanted]) -> spending.Estimate:
        """What a job would hold and cost. See ``sky.Jobs.estimate``."""
        return await self.send(calls.estimate_job(job_flows.request_of(**wanted)))

    async def balance(self) -> spending.Balance:
        """What you may spend. See ``sky.Jobs.balance``."""
        return await self.send(calls.get_balance())

    async def usage(
        self, by: str = "day", since: str | None = None, until: str | None = None
    ) -> spending.Usage:
        """What jobs cost. See ``sky.Jobs.usage``."""
        return await self.send(calls.get_usage(by, since, until))

    async def get(self, job: str) -> AsyncJob:
        """A job by its id. Raises JobNotFound."""
        return AsyncJob(self, await self.send(calls.get_job(job)))

    async def list(self, status: str | Sequence[str] | None = None) -> AsyncIterator[AsyncJob]:
        """Your jobs, newest first, page by page."""
        statuses, after = job_flows.statuses_of(status), None
        while True:
            page, after = await self.run(job_flows.jobs_page(statuses, after))
            for job in page:
                yield AsyncJob(self, job)
            if after is None:
                return

    async def skus(self) -> tuple[wire.SKU, ...]:
        """What is sold, and what is listed without being sold."""
        return (await self.send(calls.list_skus())).data

    async def upstreams(self) -> tuple[wire.Upstream, ...]:
        """The clouds behind it."""
        return (await self.send(calls.list_upstreams())).data

    async def templates(self) -> tuple[wire.Template, ...]:
        """Jobs that are written down already."""
        return (await self.send(calls.list_templates())).data

    async def aclose(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()
        if self._blocking is not None:
            self._blocking.close()
        self._http = self._blocking = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # ── for the jobs it hands out ───────────────────────────────────────────────────────────────

    async def send(self, call: Call[T]) -> T:
        """Carry out one operation."""
        return await (await self._connected())[1].send(call, patience_s=self._patience_s)

    async def run(self, flow: Flow[T]) -> T:
        """Carry out several."""
        return await arun((await self._connected())[1], flow, patience_s=self._patience_s)

    async def blocking(self) -> Jobs:
        """The same seller for a thread beside the loop."""
        return (await self._connected())[0]

    async def stream(self, call: Call[None]) -> AsyncGenerator[bytes]:
        """What one operation answers, as it comes. Raises CutShort."""
        _, http = await self._connected()
        async with http.open(call, patience_s=self._patience_s) as pieces:
            async for piece in pieces:
                yield piece

    async def _connected(self) -> tuple[Jobs, AsyncHttp]:
        async with self._connecting:
            if self._blocking is None or self._http is None:
                url, key = self._given
                # Looking for the daemon of this user reads files and asks it whether it is there.
                self._blocking = await aside(lambda: Jobs(url, key, patience_s=self._patience_s))
                self._http = self._blocking.asynchronous()
            return self._blocking, self._http


@outermost_class
class AsyncJob:
    """A paid job, for an event loop. ``seen`` is how it was when it was last looked at."""

    def __init__(self, jobs: AsyncJobs, seen: wire.Job) -> None:
        self._jobs = jobs
        self.seen = seen

    @property
    def id(self) -> str:
        """Its id."""
        return self.seen.id

    @property
    def status(self) -> wire.JobStatus:
        """Its status when it was last looked at."""
        return self.seen.status

    @property
    def usage(self) -> wire.JobUsage:
        """What it has used and costs; money is a decimal text in USD."""
        return self.seen.usage

    @property
    def error(self) -> wire.JobError | None:
        """Why it ended without success."""
        return self.seen.error

    async def refresh(self) -> Self:
        """Look at it again."""
        self.seen = await self._jobs.send(calls.get_job(self.id))
        return self

    async def wait(self, timeout_s: float | None = None, *, check: bool = False) -> Self:
        """Wait until it is over. Raises TimeoutError; with ``check`` JobFailed, unless it succeeded."""
        self.seen = await self._jobs.run(job_flows.await_end(self.id, timeout_s))
        if check:
            job_flows.succeeded(self.seen)
        return self

    async def cancel(self) -> Self:
        """End it: its meter stops now. Raises JobRefused when it had ended otherwise."""
        self.seen = await self._jobs.run(job_flows.cancel(self.id))
        return self

    def logs(self, *, follow: bool = False) -> AsyncIterator[str]:
        """The lines that it printed; with ``follow`` also those that come, until it is over."""
        return self._followed() if follow else self._printed()

    async def events(self, *, after: str | None = None, follow: bool = False) -> AsyncIterator[wire.Event]:
        """What happened to it, oldest first, behind the event ``after``; with ``follow`` until it is over."""
        while True:
            page, after, more = await self._jobs.run(job_flows.events_page(self.id, after))
            for event in page:
                yield event
            if more:
                continue
            if not follow or self.status in job_flows.TERMINAL:
                return
            if (await self.refresh()).status not in job_flows.TERMINAL:
                await asyncio.sleep(EVENTS_POLL_S)

    async def artifacts(self) -> tuple[AsyncArtifact, ...]:
        """The files that it wrote into its outputs; none before they are uploaded."""
        listed = await self._jobs.send(calls.list_artifacts(self.id))
        job = Job(await self._jobs.blocking(), self.seen)
        return tuple(AsyncArtifact(Artifact(job, told)) for told in listed.data)

    async def download(self, to: str | os.PathLike[str] = ".") -> tuple[Path, ...]:
        """Have all its files below a folder. See ``Job.download``."""
        job = Job(await self._jobs.blocking(), self.seen)
        return await aside(lambda: job.download(to))

    async def _printed(self) -> AsyncIterator[str]:
        cursor = 0
        while True:
            part = await self._jobs.send(calls.read_log(self.id, cursor))
            for line in job_flows.lines_of(part.text):
                yield line
            if part.cursor == cursor:
                return
            cursor = part.cursor

    async def _followed(self) -> AsyncIterator[str]:
        log, failures = job_flows.Log(self.id), 0
        while not log.over:
            try:
                async with aclosing(self._jobs.stream(log.call())) as pieces:
                    async for piece in pieces:
                        for line in log.feed(piece):
                            failures = 0
                            yield line
            except CutShort:
                pass  # the next connection begins behind what was read
            failures += 1
            if not log.over:
                await asyncio.sleep(
                    backoff.delay_s(failures, first_s=PAUSE_FIRST_S, longest_s=PAUSE_LONGEST_S)
                )

    def __repr__(self) -> str:
        return f"<sky.AsyncJob {self.id}: {self.status}>"


@outermost_class
@dataclass(frozen=True, slots=True)
class AsyncArtifact:
    """A file that a job wrote, for an event loop. ``blocking`` is the same file, for other threads."""

    blocking: Artifact

    @property
    def path(self) -> str:
        """Where the job wrote it."""
        return self.blocking.path

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return self.blocking.size

    @property
    def sha256(self) -> str:
        """Its hash in hexadecimal digits."""
        return self.blocking.sha256

    async def download(self, to: str | os.PathLike[str] = ".") -> Path:
        """Have it at ``to``, a name or a folder. See ``Artifact.download``."""
        return await aside(lambda: self.blocking.download(to))
