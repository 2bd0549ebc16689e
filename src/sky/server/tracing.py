"""Traces of the daemon, for a collector that speaks OpenTelemetry over HTTP.

Decides: whether they are wanted: where the variables of OpenTelemetry name an exporter or its endpoint.
Never: sends anything otherwise, or imports a package of it. Follows: all else is said by those variables too,
and read by the packages themselves; what was not sent when the daemon ends is sent then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from sky.kit import spans
from sky.kit.version import VERSION
from sky.server.said import SettingsError

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
EXPORTER = "OTEL_TRACES_EXPORTER"
PROTOCOL = "http/protobuf"
SERVICE = "skyfleet"


def wanted(environ: Mapping[str, str]) -> bool:
    """Whether traces are asked for. Raises SettingsError where they are in a way that is not served."""
    exporter = environ.get(EXPORTER, "")
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or exporter == "none":
        return False
    asks = next((name for name in (EXPORTER, *ENDPOINTS) if environ.get(name)), None)
    if asks is None:
        return False
    if exporter not in ("", "otlp"):
        raise SettingsError(f"{EXPORTER}: {exporter!r} is not served; set it to otlp, or to none")
    for name in PROTOCOLS:
        if environ.get(name, PROTOCOL) not in ("", PROTOCOL):
            raise SettingsError(f"{name}: {environ[name]!r} is not served; set it to {PROTOCOL}")
    return True


@contextmanager
def begun(environ: Mapping[str, str] = os.environ, find: Callable[[str], Any] = find_spec) -> Generator[None]:
    """Traces are collected meanwhile, if they are asked for. Raises SettingsError."""
    if not wanted(environ):
        yield
        return
    if find("opentelemetry") is None or find("opentelemetry.sdk") is None:
        asks = next(name for name in (EXPORTER, *ENDPOINTS) if environ.get(name))
        msg = f"{asks} asks for traces, which need the extra otel: pip install 'skyfleet[otel]'"
        raise SettingsError(msg)
    maker, end = _collector(environ)
    spans.collect_with(maker)
    try:
        yield
    finally:
        spans.collect_with(None)
        end()


def _collector(environ: Mapping[str, str]) -> tuple[spans.Maker, Callable[[], None]]:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import Span, SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    named = "OTEL_SERVICE_NAME" in environ or "service.name" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    own = {"service.version": VERSION} | ({} if named else {"service.name": SERVICE})
    provider = TracerProvider(resource=Resource.create(own))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracer, propagator = provider.get_tracer("sky", VERSION), TraceContextTextMapPropagator()

    class Told:
        def __init__(self, span: Span) -> None:
            self._span = span

        def tell(self, name: str, attributes: spans.Attributes) -> None:
            self._span.update_name(name)
            self._span.set_attributes(dict(attributes))

    @contextmanager
    def make(name: str, attributes: spans.Attributes, carrier: Mapping[str, str]) -> Generator[spans.Span]:
        above = propagator.extract(dict(carrier)) if carrier else None
        kind = SpanKind.SERVER if carrier else SpanKind.INTERNAL
        with tracer.start_as_current_span(name, above, kind, dict(attributes)) as span:
            yield Told(span)

    return make, provider.shutdown
