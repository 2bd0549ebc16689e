"""The list of what is sold while a daemon sells: read anew, broken, mended; and the one that comes along."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import RunningDaemon, free_port
from tests.jobs.conftest import SETTINGS
from tests.jobs.shop import CATALOGUE, ROOT, Shop, body, refusal
from tests.jobs.test_codes import put

DEADLINE_S = 60.0
FAR = (
    "  - {id: far, price_usd_per_hour: '1', tier: neocloud, vcpus: 1, memory_gb: 1,"
    " providers: [{cloud: mars}]}\n"
)


def until(done: Callable[[], Any]) -> Any:
    """Wait until ``done`` says something true."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := done()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


@pytest.fixture
def seller(tmp_path: Path) -> Iterator[RunningDaemon]:
    """A daemon that sells from a file that the test may change."""
    (tmp_path / "catalogue.yaml").write_text(CATALOGUE.replace("templates:", FAR + "templates:"))
    settings = {"SKY_CATALOGUE": str(tmp_path / "catalogue.yaml"), "SKY_UPSTREAMS": "local,mars"}
    running = RunningDaemon(tmp_path, free_port(), environment={**SETTINGS, **settings})
    running.start()
    yield running
    running.stop()


def test_a_changed_file_holds_at_once_and_a_job_keeps_its_price(seller: RunningDaemon) -> None:
    shop, file = Shop(seller.url), seller.home / "catalogue.yaml"
    customer = shop.customer()
    job_id = customer.submit(body(spec__command=["sleep", "600"])).json()["id"]

    def price() -> str:
        listed = shop.http.get(f"{ROOT}/skus").json()["data"]
        return next(sku["price_usd_per_hour"] for sku in listed if sku["id"] == "cpu")

    assert price() == "3.600000"
    first = shop.operate("GET", "/catalogue")
    assert (first["file"], first["error"]) == (str(file), None)
    assert any("'mars' is no kind of provider" in text for text in first["warnings"])
    upstreams = {one["cloud"]: one["enabled"] for one in shop.http.get(f"{ROOT}/upstreams").json()["data"]}
    assert upstreams == {"aws": False, "local": True, "mars": False}, "named, and not in this build"
    refusal(customer.submit(body(sku="far")), "upstream_unavailable", 503)

    good = file.read_text()
    put(file, good.replace('"3.60"', '"7.20"'))
    until(lambda: price() == "7.200000")
    assert customer.job(job_id)["usage"]["hold_usd"] == "0.060000"
    assert customer.submit().json()["usage"]["hold_usd"] == "0.120000"
    customer("POST", f"/jobs/{job_id}/cancel")

    put(file, good.replace("vcpus: 1", "vcpu: 1", 1))
    broken = until(lambda: (s := shop.operate("GET", "/catalogue"))["error"] and s)
    assert "skus[0].vcpu: there is no such field; did you mean 'vcpus'?" in broken["error"]
    assert price() == "7.200000", "what was good holds"
    until(lambda: "catalogue.refused" in (seller.home / "server.log").read_text())

    put(file, good)
    until(lambda: price() == "3.600000")
    assert shop.operate("GET", "/catalogue")["error"] is None
    shop.audit()


def test_a_daemon_refuses_to_start_with_a_broken_file(tmp_path: Path) -> None:
    file = tmp_path / "catalogue.yaml"
    file.write_text(CATALOGUE.replace("tier: neocloud", "tear: neocloud", 1))
    command = [sys.executable, "-m", "sky.server.main", "--home", str(tmp_path), "--port", "0"]
    done = subprocess.run(
        [*command, "--catalogue", str(file)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 3
    assert f"error: {file}:4: skus[0].tear: there is no such field; did you mean 'tier'?" in done.stderr


def test_the_template_for_cpus_runs_where_the_operator_allows_it(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    running = RunningDaemon(tmp_path_factory.mktemp("along"), free_port(), environment=SETTINGS)
    running.start()
    try:
        shop = Shop(running.url)
        customer = shop.customer()
        listed = {one["id"]: one for one in shop.http.get(f"{ROOT}/templates").json()["data"]}
        assert (listed["cpu-batch"]["available"], listed["fine-tune"]["available"]) == (True, False)
        if not listed["text-embedding"]["available"]:
            assert listed["text-embedding"]["unavailable_reason"].startswith("local: "), "it needs an engine"
        told = refusal(customer.submit({"template": "fine-tune"}), "template_unavailable", 400)
        assert listed["fine-tune"]["unavailable_reason"] in told["message"]
        job = customer.ended(customer.submit({"template": "cpu-batch"}).json()["id"])
        assert job["status"] == "succeeded", job
        assert "Linux" in customer("GET", f"/jobs/{job['id']}/logs").text
        [made] = customer("GET", f"/jobs/{job['id']}/artifacts").json()["data"]
        assert made["path"] == "/out/machine.txt"
    finally:
        running.stop()
