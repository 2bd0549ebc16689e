"""Traces reach a collector when the variables of OpenTelemetry ask for them; nothing is sent otherwise."""

from __future__ import annotations

import gzip
import json
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.conftest import RunningDaemon, free_port
from tests.waiting import until

from sky.kit import spans
from sky.server.said import SettingsError
from sky.server.tracing import begun, wanted

LOOPS = {"forget", "sweep", "collect"}
TRACE, ABOVE = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector(BaseHTTPRequestHandler):
    """What an OpenTelemetry collector does with traces: it takes them."""

    taken: list[ExportTraceServiceRequest]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        assert self.path == "/v1/traces"
        self.taken.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def test_a_request_and_its_write_are_one_trace_below_that_of_the_client(tmp_path: Path) -> None:
    taken: list[ExportTraceServiceRequest] = []
    collector = ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Collector,), {"taken": taken}))
    thread = threading.Thread(target=collector.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{collector.server_port}"
    daemon = RunningDaemon(tmp_path, free_port(), {"OTEL_EXPORTER_OTLP_ENDPOINT": url})
    daemon.start()
    try:
        asked = urllib.request.Request(
            f"{daemon.url}/admin/v1/garbage", method="POST", headers={"traceparent": f"00-{TRACE}-{ABOVE}-01"}
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            request_id = answer.headers["Request-Id"]
        until(lambda: passed(daemon.url) >= LOOPS, "the loops have passed", 60)
    finally:
        daemon.stop()
        collector.shutdown()
        thread.join(10)
        collector.server_close()
    resources = [resource for one in taken for resource in one.resource_spans]
    services = {
        kv.value.string_value for r in resources for kv in r.resource.attributes if kv.key == "service.name"
    }
    assert services == {"skyfleet"}
    found = [span for r in resources for scope in r.scope_spans for span in scope.spans]
    mine = {span.name: span for span in found if span.trace_id.hex() == TRACE}
    assert set(mine) == {"POST /admin/v1/garbage", "db.write"}
    request = mine["POST /admin/v1/garbage"]
    assert request.parent_span_id.hex() == ABOVE
    assert mine["db.write"].parent_span_id == request.span_id
    told = {kv.key: kv.value.string_value or kv.value.int_value for kv in request.attributes}
    assert told["http.response.status_code"] == 202
    assert told["sky.request_id"] == request_id
    assert {f"loop {name}" for name in LOOPS} <= {span.name for span in found}


def passed(url: str) -> set[str]:
    """The loops that have decided something."""
    with urllib.request.urlopen(f"{url}/v1/loops", timeout=60) as answer:
        return {one["loop"] for one in json.load(answer)["items"] if one["decided_at"]}


def test_nothing_is_sent_unless_it_is_asked_for() -> None:
    assert not wanted({})
    assert not wanted({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"})
    assert not wanted({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"})
    assert wanted({"OTEL_TRACES_EXPORTER": "otlp"})
    with begun({}):
        assert not spans.asked_for()


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER: 'zipkin' is not served; set it to otlp"),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' is not served; set it to http/protobuf",
        ),
    ],
)
def test_what_is_not_served_is_told_at_the_start(environ: dict[str, str], told: str) -> None:
    with pytest.raises(SettingsError, match=told), begun(environ):
        pass


def test_a_missing_extra_is_named_with_the_command_that_installs_it() -> None:
    asked = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
    with pytest.raises(SettingsError, match=r"pip install 'skyfleet\[otel\]'"), begun(asked, lambda _: None):
        pass
