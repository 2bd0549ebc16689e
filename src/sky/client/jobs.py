"""Paid jobs for a customer: submit one, watch it, have its files.

Decides: how a customer's program speaks to a seller. Never: starts a daemon, or decides what a job costs.
Follows: a submit is sent until it is answered and is still one job, because it always has a key; nothing a
job did is lost when the program that waits for it ends: ``Jobs.get`` finds it again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from sky.client import calls_jobs as calls
from sky.client import daemon, job_files, job_flows
from sky.client.attempts import FIRST_S, INTERRUPT_PATIENCE_S, PATIENCE_S
from sky.client.errors import NotFound
from sky.client.flows import Flow, run
from sky.client.http import Http
from sky.client.job_flows import Input, Output, RetryOn, Wanted
from sky.client.job_webhooks import JobWebhooks
from sky.client.outermost import outermost_class
from sky.client.request import Call, CutShort
from sky.kit import backoff
from sky.wire import jobs as wire
from sky.wire import spending

if TYPE_CHECKING:
    from sky.client.http_async import AsyncHttp

T = TypeVar("T")
KEY_VARIABLE = "SKY_API_KEY"
PAUSE_FIRST_S = 0.1
PAUSE_LONGEST_S = 5.0
EVENTS_POLL_S = 1.0


def connect(url: str | None, key: str | None) -> Http:
    """A client of the seller at ``url``, else at SKY_URL, else of the daemon of SKY_HOME. Starts none."""
    shown = key or os.environ.get(KEY_VARIABLE) or ""
    return daemon.connect(url, token=shown, start_if_absent=False, first_s=FIRST_S)


@outermost_class
class Jobs:
    """A seller of paid jobs, as the holder of a key sees it. Safe to use from several threads.

    ``key`` is the one given, else SKY_API_KEY; ``url`` the one given, else SKY_URL, else the daemon of this
    user. What is sold can be read without a key. ``patience_s``: how long a seller may be away, or ask to
    wait, before an operation fails; one who has never answered is given a few seconds.
    """

    def __init__(
        self, url: str | None = None, key: str | None = None, *, patience_s: float = PATIENCE_S
    ) -> None:
        self._http = connect(url, key)
        self._patience_s = patience_s

    @property
    def url(self) -> str:
        """Where requests go."""
        return self._http.url

    @property
    def webhooks(self) -> JobWebhooks:
        """Where you have events of your jobs sent."""
        return JobWebhooks(self)

    def submit(
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
    ) -> Job:
        """Submit a job: a sku and what to run on it, or a template. Returns once it is accepted.

        ``inputs`` are pairs of an https address and a folder, ``outputs`` are folders. A key is always sent;
        give your own to be safe beyond the life of this program: the same key and job are the same job for
        24 hours. ``after`` are ids of jobs of yours that must have succeeded before. ``retries``: how often
        it is begun again at most when its spot machine is taken (``interrupted``) or its machine fails
        (``node_lost``), as ``retry_on`` says; ``max_runtime_seconds`` is then for all of it. Interrupted by
        Ctrl-C before the seller's answer, the job is cancelled, unless it has a key of yours, by which you
        find it again. Raises JobRefused.
        """
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
            return Job(self, self.send(create))
        except KeyboardInterrupt as interrupted:
            if idempotency_key is None:
                undo = job_flows.take_back(create)
                if not run(self._http, undo, patience_s=INTERRUPT_PATIENCE_S):
                    interrupted.add_note(job_flows.UNKNOWN)
            raise

    def estimate(self, **wanted: Unpack[Wanted]) -> spending.Estimate:
        """What a job would hold at its submit, and cost at most; nothing is held. Takes what ``submit`` does
        except a key, and raises what that would."""
        return self.send(calls.estimate_job(job_flows.request_of(**wanted)))

    def balance(self) -> spending.Balance:
        """What you may spend, what is held for jobs, and the budgets that your seller set."""
        return self.send(calls.get_balance())

    def usage(self, by: str = "day", since: str | None = None, until: str | None = None) -> spending.Usage:
        """What the jobs cost that ended from the day ``since`` to before ``until`` (as 2026-01-31, in UTC; of
        the last 30 days unless that is said), by ``day``, ``sku`` or ``metadata.KEY``."""
        return self.send(calls.get_usage(by, since, until))

    def get(self, job: str) -> Job:
        """A job by its id. Raises JobNotFound."""
        return Job(self, self.send(calls.get_job(job)))

    def list(self, status: str | Sequence[str] | None = None) -> Iterator[Job]:
        """Your jobs, newest first, those in one or several states only if that is said; page by page."""
        statuses, after = job_flows.statuses_of(status), None
        while True:
            page, after = self.run(job_flows.jobs_page(statuses, after))
            for job in page:
                yield Job(self, job)
            if after is None:
                return

    def skus(self) -> tuple[wire.SKU, ...]:
        """What is sold, and what is listed without being sold."""
        return self.send(calls.list_skus()).data

    def upstreams(self) -> tuple[wire.Upstream, ...]:
        """The clouds behind it."""
        return self.send(calls.list_upstreams()).data

    def templates(self) -> tuple[wire.Template, ...]:
        """Jobs that are written down already."""
        return self.send(calls.list_templates()).data

    def close(self) -> None:
        """Close the idle connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<sky.Jobs at {self.url}>"

    # ── for the jobs it hands out ───────────────────────────────────────────────────────────────

    def asynchronous(self) -> AsyncHttp:
        """The other driver for the same seller, for the event loop that runs now."""
        return self._http.asynchronous()

    def send(self, call: Call[T]) -> T:
        """Carry out one operation."""
        return self._http.send(call, patience_s=self._patience_s)

    def run(self, flow: Flow[T]) -> T:
        """Carry out several."""
        return run(self._http, flow, patience_s=self._patience_s)

    def stream(self, call: Call[Any]) -> Generator[bytes]:
        """What one operation answers, as it comes. Raises CutShort."""
        with self._http.open(call, patience_s=self._patience_s) as stream:
            yield from stream.pieces()


@outermost_class
class Job:
    """A paid job. ``seen`` is how it was when it was last looked at."""

    def __init__(self, jobs: Jobs, seen: wire.Job) -> None:
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

    def refresh(self) -> Self:
        """Look at it again."""
        self.seen = self._jobs.send(calls.get_job(self.id))
        return self

    def wait(self, timeout_s: float | None = None, *, check: bool = False) -> Self:
        """Wait until it is over. Raises TimeoutError; with ``check`` JobFailed, unless it succeeded."""
        self.seen = self._jobs.run(job_flows.await_end(self.id, timeout_s))
        if check:
            job_flows.succeeded(self.seen)
        return self

    def cancel(self) -> Self:
        """End it: its meter stops now. Raises JobRefused when it had ended otherwise."""
        self.seen = self._jobs.run(job_flows.cancel(self.id))
        return self

    def logs(self, *, follow: bool = False) -> Iterator[str]:
        """The lines that it printed; with ``follow`` also those that come, until it is over."""
        return self._followed() if follow else self._printed()

    def events(self, *, after: str | None = None, follow: bool = False) -> Iterator[wire.Event]:
        """What happened to it, oldest first, behind the event ``after``; with ``follow`` until it is over."""
        while True:
            page, after, more = self._jobs.run(job_flows.events_page(self.id, after))
            yield from page
            if more:
                continue
            if not follow or self.status in job_flows.TERMINAL:
                return
            # Once it is over nothing is added: one more look behind that has everything.
            if self.refresh().status not in job_flows.TERMINAL:
                time.sleep(EVENTS_POLL_S)

    def artifacts(self) -> tuple[Artifact, ...]:
        """The files that it wrote into its outputs; none before they are uploaded."""
        listed = self._jobs.send(calls.list_artifacts(self.id))
        return tuple(Artifact(self, told) for told in listed.data)

    def download(self, to: str | os.PathLike[str] = ".") -> tuple[Path, ...]:
        """Have all its files below a folder, each at the path that it had. Returns where they are.

        As ``Artifact.download`` does with each. Raises TransferFailed.
        """
        return tuple(file.download(job_files.below(to, file.path)) for file in self.artifacts())

    def _printed(self) -> Iterator[str]:
        cursor = 0
        while True:
            part = self._jobs.send(calls.read_log(self.id, cursor))
            yield from job_flows.lines_of(part.text)
            if part.cursor == cursor:
                return
            cursor = part.cursor

    def _followed(self) -> Iterator[str]:
        log, failures = job_flows.Log(self.id), 0
        while not log.over:
            try:
                with closing(self._jobs.stream(log.call())) as pieces:
                    for piece in pieces:
                        for line in log.feed(piece):
                            failures = 0
                            yield line
            except CutShort:
                pass  # the next connection begins behind what was read
            failures += 1
            if not log.over:
                time.sleep(backoff.delay_s(failures, first_s=PAUSE_FIRST_S, longest_s=PAUSE_LONGEST_S))

    def __repr__(self) -> str:
        return f"<sky.Job {self.id}: {self.status}>"


@outermost_class
@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that a job wrote. ``told`` has its path, size, hash, and an address that is good for a while."""

    job: Job
    told: wire.Artifact

    @property
    def path(self) -> str:
        """Where the job wrote it."""
        return self.told.path

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return self.told.size

    @property
    def sha256(self) -> str:
        """Its hash in hexadecimal digits."""
        return self.told.sha256

    def download(self, to: str | os.PathLike[str] = ".") -> Path:
        """Have it at ``to``, and make sure that it is what was written. Returns where it is.

        ``to`` is a name, or a folder (one that is there, or that ends with a slash), where it keeps its own.
        Folders are made, and a file that is there is replaced once this one is whole. Raises TransferFailed.
        """
        return job_files.fetch(self.told, to, self._renewed)

    def _renewed(self) -> wire.Artifact:
        for other in self.job.artifacts():
            if other.path == self.path:
                return other.told
        raise NotFound(f"{self.path} of {self.job.id} is no longer kept", "not_found", 404)
