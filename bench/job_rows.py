"""What it costs to submit a paid job: a hold and a job in one durable transaction, and to page through many.

Decides: the load. Never: waits for a machine; the cloud is a pretended one.
Follows: the account has enough for all, so that no submit is refused.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.http_rows import MANY, load
from bench.target import Target

CATALOGUE = """
skus:
  - {id: bench, price_usd_per_hour: "0.36", tier: neocloud, vcpus: 1, memory_gb: 1,
     providers: [{cloud: fake}]}
"""
SETTINGS = {
    "SKY_UPSTREAMS": "fake",
    "SKY_ACCOUNT_JOBS_MAX": "1000000",
    "SKY_JOB_SUBMITS_PER_HOUR": "1000000000",
    "SKY_JOB_READS_PER_MINUTE": "1000000000",
}
JOBS = "/compute/v1/jobs"
PAGES = 20
BODY = {"sku": "bench", "spec": {"image": "x", "command": ["true"], "max_runtime_seconds": 3600}}


def measure(make: Callable[[], Target], seconds: float, note: Callable[[str, float], None]) -> None:
    """One round: submits by one and by many, then pages while those jobs are under way."""
    with_settings = dict(SETTINGS)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", prefix="sky-bench-", delete=False) as file:
        file.write(CATALOGUE)
    listing = file.name
    os.environ.update(with_settings, SKY_CATALOGUE=listing)
    try:
        target = make()
    finally:
        for name in (*with_settings, "SKY_CATALOGUE"):
            os.environ.pop(name)
    try:
        target.ask("POST", "/admin/v1/accounts", {"name": "bench"})
        payment = {"amount_usd": "1000000", "payment": "bench"}
        target.ask("POST", "/admin/v1/accounts/bench/payments", payment)
        key = target.ask("POST", "/admin/v1/accounts/bench/keys", {})["key"]
        bearer = {"Authorization": f"Bearer {key}"}
        sent = {"Content-Type": "application/json", **bearer}
        one = load(target, "POST", JOBS, 1, seconds, body=json.dumps(BODY), headers=sent)
        note("job_submit_ms", one["median_ms"])
        many = load(target, "POST", JOBS, MANY, seconds, body=json.dumps(BODY), headers=sent)
        note("job_submit_16_per_s", many["per_s"])
        pages: list[float] = []
        for _ in range(PAGES):
            began_s = time.perf_counter()
            target.ask("GET", f"{JOBS}?limit=100", **bearer)
            pages.append(time.perf_counter() - began_s)
        note("job_page_of_100_ms", 1000 * statistics.median(pages))
        note("jobs_under_way", one["count"] + many["count"])
    finally:
        target.stop()
        Path(listing).unlink()
