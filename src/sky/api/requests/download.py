"""What the jobs of a cluster have printed, as one archive of files.

Decides: the names of the files: ``<job>-<name>/run.log`` with all that a job printed as a reader of its log
sees it, ``setup-<rank>.log`` and ``rank-<rank>.log`` with what each node's scripts printed. Never: follows a
job that runs; its files hold what is there now.
Follows: however much was printed, it is read page by page while the archive is sent.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from litestar.response.base import ASGIResponse

from sky.api.operation import Ask, Bytes, operation
from sky.api.requests.logs import cluster_of, no_job, prefixes
from sky.api.requests.tars import Member, packed
from sky.api.requests.upload import GZIP
from sky.api.requests.versions import user_of
from sky.api.stream import Streamed
from sky.domain.errors import Forbidden, NotFound
from sky.kit.clock import SECOND_US
from sky.store.rows import clusters
from sky.store.sql import Row
from sky.store.views import jobs as views
from sky.wire.request_answers import DownloadLogsBody

TAG = "Requests"
JOBS_MAX = 1_000
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@operation(
    "POST",
    "/download_logs",
    tag=TAG,
    answers=Bytes((GZIP,), "A gzipped tar of the logs."),
    errors=[Forbidden, NotFound],
)
async def download_logs(ask: Ask, body: DownloadLogsBody) -> ASGIResponse:
    """Read what jobs of a cluster have printed so far, as a gzipped tar.

    Each job has a folder `<job>-<name>`: `run.log` is all that it printed, `setup-<rank>.log` and
    `rank-<rank>.log` what its scripts printed on each node.
    """
    user = user_of(ask)
    jobs = await ask.unit.db.read(lambda c: _jobs(c, body, user))
    return Streamed(packed(_members(ask, jobs)), media=GZIP)


def _jobs(connection: Any, body: DownloadLogsBody, user: str) -> list[Row]:
    cluster = cluster_of(connection, body.cluster_name, user, all_users=body.all_users)
    if body.job_ids is None:
        return clusters.jobs(connection, cluster["id"], JOBS_MAX)[::-1]
    found: list[Row] = []
    for number in dict.fromkeys(body.job_ids):
        job = clusters.job(connection, cluster["id"], number)
        if job is None:
            raise no_job(cluster, number)
        found.append(job)
    return found


async def _members(ask: Ask, jobs: Sequence[Row]) -> AsyncIterator[Member]:
    for job in jobs:
        folder = f"{job['number']}-{_UNSAFE.sub('_', job['name'] or 'task')[:100]}"
        begun: Mapping[str, Sequence[str]] = job["setup_tasks"] or {}
        whole = prefixes(job)
        files = {f"{folder}/run.log": whole}
        files |= {f"{folder}/setup-{rank}.log": {t: ""} for rank, t in enumerate(begun.get("setup", ()))}
        files |= {f"{folder}/rank-{rank}.log": {t: ""} for rank, t in enumerate(job["run_tasks"] or ())}
        for name, tasks in files.items():
            yield await _member(ask, job, name, tasks)


async def _member(ask: Ask, job: Row, name: str, tasks: Mapping[str, str]) -> Member:
    size = 0
    async for piece in _text(ask, tasks):
        size += len(piece)
    modified_us = job["ended_us"] or ask.unit.clock.now_us()
    return Member(name, size, modified_us // SECOND_US, lambda: _text(ask, tasks))


async def _text(ask: Ask, tasks: Mapping[str, str]) -> AsyncIterator[bytes]:
    after = 0
    while True:
        page = await ask.unit.db.read(lambda c, n=after: views.prefixed_output(c, tasks, n))
        if not page:
            return
        after = page[-1][0]
        yield "".join(f"{text}\n" for _, text in page).encode(errors="replace")


ROUTES = (download_logs,)
