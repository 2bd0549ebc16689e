"""A paid job whose SKU has a pool of hosts first, and this computer after it; the pool is not to be reached.

Decides: what a customer is told, and what it costs. Never: simulates a provider.
"""

from __future__ import annotations

import time
from pathlib import Path

import httpx2
import pytest
from tests.conftest import free_port
from tests.jobs.conftest import Boxed
from tests.jobs.shop import DEADLINE_S
from tests.jobs.test_containers import inside, submitted
from tests.providers.sshd import make_key

A_SECOND = 1_000
"""What the SKU costs a second, in micro-dollars."""


@pytest.mark.real
def test_a_job_runs_where_it_can_and_costs_what_its_sku_says(boxed: Boxed, tmp_path: Path) -> None:
    key = make_key(tmp_path / "key").read_text()
    host = {"name": "near", "address": "127.0.0.1", "port": free_port(), "cpus": 1, "memory_gb": 2}
    config = {"hosts": [host], "user": "root", "price_per_hour_usd": 900.0, "connect_seconds": 2}
    pool = {"kind": "ssh", "name": "pool", "config": config, "credentials": {"private_key": key}}
    with httpx2.Client(base_url=boxed.daemon.url, trust_env=False, timeout=30) as http:
        answer = http.post("/v1/providers", json=pool)
        assert answer.is_success, answer.text
        customer = boxed.shop.customer()
        job_id = submitted(customer, inside(boxed, "sleep 1", sku="hosts"))
        job = customer.ended(job_id)
        assert job["status"] == "succeeded", customer("GET", f"/jobs/{job_id}/logs").text
        assert job["placement"]["cloud"] == "local"
        told = {event["type"]: event["data"] for event in customer.events(job_id)}
        failover, placed = told["job.failover"], told["job.placed"]
        assert (failover["from"]["cloud"], failover["to"]["cloud"]) == ("ssh", "local")
        assert failover["reason"] == "ssh in pool had none for it"
        assert placed.keys() == {"cloud", "region", "instance_type"}, "what its machine costs is not told"
        [sold] = boxed.shop.operate("GET", "/jobs", params={"account": customer.account})["items"]
        assert sold["placement"]["cost_usd_per_hour"] == "0.000000", "and is not what it costs"
        [reason] = sold["placement"]["passed_over"]
        assert reason.startswith("pool/near in pool, 900 USD an hour: ")
        assert f"127.0.0.1:{host['port']}" in reason
        seconds = round(float(job["usage"]["settled_cost_usd"]) * 1_000_000 / A_SECOND)
        assert 1 <= seconds < 60, "not what the pool asks for, of which the hold pays no second"
        boxed.shop.audit()
        deadline = time.monotonic() + DEADLINE_S
        while not (answer := http.delete("/v1/providers/pool", headers={"If-Match": "*"})).is_success:
            assert answer.status_code == 409, answer.text  # until the job's machine is given back
            assert time.monotonic() < deadline, answer.text
            time.sleep(0.1)
