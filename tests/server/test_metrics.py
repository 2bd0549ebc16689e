"""``/metrics`` says what there is and what is done, to whom the operator lets, and names nobody's things."""

from __future__ import annotations

import os
import pwd
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.conftest import free_port
from tests.requests.remote import Reachable
from tests.waiting import until

from sky.server.settings import SettingsError, load

TOKEN = "reads-numbers-and-nothing-else"
ASKER = """
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1], timeout=60) as answer:
    sys.stdout.write(str(answer.status))
"""
LOOPS = {
    "attempts", "clusters", "collect", "computes", "disks", "dispatch", "forget", "holds", "jobs", "nodes",
    "offers", "requests", "retention", "storage", "sweep", "watch", "webhooks",
}  # fmt: skip


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reachable]:
    """A daemon whose numbers are open on this computer, and elsewhere to whoever has a token for them."""
    settings = {"SKY_BEHIND_PROXY": "true", "SKY_METRICS_OPEN": "true", "SKY_METRICS_TOKEN": TOKEN}
    running = Reachable(tmp_path_factory.mktemp("watched"), free_port(), settings)
    running.start()
    yield running
    running.stop()


class Numbers:
    """What was read, by the reader that Prometheus publishes."""

    def __init__(self, client: httpx2.Client) -> None:
        answer = client.get("/metrics")
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        self.text = answer.text
        self.families = {one.name: one for one in text_string_to_metric_families(self.text)}

    def __call__(self, name: str, **labels: str) -> float:
        """The sum of what is called that and has those labels."""
        samples = [sample for family in self.families.values() for sample in family.samples]
        found = [s for s in samples if s.name == name and labels.items() <= s.labels.items()]
        return sum(sample.value for sample in found)

    def labels(self, name: str, label: str) -> set[str]:
        return {sample.labels[label] for sample in self.families[name].samples}


def test_requests_are_told_by_route_and_status(watched: Reachable) -> None:
    name = f"secret-{secrets.token_hex(6)}"
    route = "/v1/computes/{compute_id}"
    with watched.owner() as owner, watched.as_() as nobody:
        before = Numbers(owner)
        for _ in range(3):
            assert owner.get(f"/v1/computes/{name}").status_code == 404
        assert nobody.get(f"/v1/computes/{name}").status_code == 401
        after = Numbers(owner)
    grown = {
        "sky_http_requests_total": 3,
        "sky_http_request_seconds_count": 3,
        "sky_http_request_seconds_bucket": 3,
    }
    for series, many in grown.items():
        given = {"method": "GET", "route": route} | ({"le": "+Inf"} if series.endswith("bucket") else {})
        assert after(series, **given) - before(series, **given) == many
    assert after("sky_http_requests_total", route=route, status="404") == 3
    assert after("sky_http_requests_total", method="GET", route="other", status="401") == 1
    assert after("sky_http_requests_open") == 1, "that is the one that asks"
    assert name not in after.text, "what somebody called something is nobody else's business"


def test_what_is_there_is_counted_by_state(watched: Reachable) -> None:
    spec = {"specs": [{"provider": {"kind": "local"}}], "nodes": {"desired": 0, "min": 0, "max": 1}}
    with watched.owner() as owner:
        before = Numbers(owner)
        made = owner.post("/v1/computes", json={"spec": spec}).json()
        with owner.stream("GET", "/v1/events") as stream:
            assert stream.status_code == 200
            after = Numbers(owner)
        owner.delete(f"/v1/computes/{made['id']}", headers={"if-match": "*"})
    assert after("sky_computes") - before("sky_computes") == 1
    assert after("sky_event_readers") == 1
    assert after("sky_http_requests_open") == 2
    assert after("sky_db_commit_seconds_count") > before("sky_db_commit_seconds_count")
    assert after("sky_db_verbs_total") > before("sky_db_verbs_total")
    assert after("sky_db_commit_errors_total") == 0
    for name in (
        "sky_ledger_holds",
        "sky_webhook_deliveries_due",
        "sky_agents_connected",
        "sky_channels_open",
    ):
        assert after.families[name].samples[0].value == 0
    assert after("process_resident_memory_bytes") > 10_000_000
    assert 3 < after("process_open_fds") < after("process_max_fds")
    assert after("process_start_time_seconds") > 1_700_000_000


def test_every_loop_is_there(watched: Reachable) -> None:
    with watched.owner() as owner:
        until(lambda: Numbers(owner)("sky_loop_pass_seconds_count", loop="forget") >= 1, "a pass", 60)
        numbers = Numbers(owner)
    assert numbers.labels("sky_loop_passes_running", "loop") == LOOPS
    assert numbers.labels("sky_loop_errors", "loop") == LOOPS
    assert numbers("sky_loop_last_pass_timestamp_seconds", loop="forget") > 1_700_000_000
    assert numbers("sky_loops_tick_age_seconds") < 60


def test_only_those_read_it_whom_the_operator_lets(watched: Reachable) -> None:
    with watched.as_() as nobody, watched.as_(TOKEN) as reader, watched.as_(TOKEN[:-1]) as liar:
        assert nobody.get("/metrics").status_code == 401, "open on this computer is not open to others"
        assert liar.get("/metrics").status_code == 401
        assert reader.get("/metrics").status_code == 200
        assert reader.head("/metrics").status_code == 200
        assert reader.post("/metrics").status_code == 405
        assert reader.get("/v1/computes").status_code == 401, "it is good for the numbers alone"
    with watched.as_(watched.made("sees", "user")) as user:
        assert user.get("/metrics").status_code == 403


def as_nobody(url: str) -> subprocess.CompletedProcess[str]:
    assert os.getuid() == 0, "this test starts a process of another user, which only root may do"
    return subprocess.run(
        ["/usr/bin/env", "python3", "-c", ASKER, url],
        capture_output=True,
        text=True,
        timeout=80,
        user=pwd.getpwnam("nobody").pw_uid,
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        check=False,
    )


def test_on_this_computer_it_is_open_only_where_the_operator_says_so(watched: Reachable, daemon: Any) -> None:
    assert as_nobody(f"{watched.local}/metrics").stdout == "200"
    assert "401" in as_nobody(f"{watched.local}/v1/computes").stderr
    assert "401" in as_nobody(f"{daemon.url}/metrics").stderr


def test_a_short_token_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"length >= 16 - at `\$\.metrics_token`"):
        load({"home": str(tmp_path)}, {"SKY_METRICS_TOKEN": "short"})
