"""Record traces with OpenTelemetry and send them to a collector (OTLP over HTTP).

A background thread sends them. While the collector is down they are dropped: no request waits.
"""

import atexit
import os
import socket
from random import Random

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span as OpenTelemetrySpan
from opentelemetry.trace import SpanKind as OpenTelemetryKind
from opentelemetry.trace import StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from config import VERSION
from storage.tracing import Attribute, Span, SpanKind, Tracer

EXPORT_TIMEOUT_S = 2.0
EXPORT_INTERVAL_MS = 1_000
QUEUE_SPANS = 4_096
"""Spans that wait for the collector; more are dropped. One export takes all, so that a process
that stops waits for at most two."""

_KINDS = {
    "server": OpenTelemetryKind.SERVER,
    "consumer": OpenTelemetryKind.CONSUMER,
    "client": OpenTelemetryKind.CLIENT,
}
_PROPAGATOR = TraceContextTextMapPropagator()


class RecordedSpan(Span):
    """A span of OpenTelemetry."""

    def __init__(self, span: OpenTelemetrySpan) -> None:
        self._span = span

    @property
    def traceparent(self) -> str:
        context = self._span.get_span_context()
        if not context.trace_flags.sampled:
            return ""
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-01"

    def end(self, name: str, attributes: dict[str, Attribute], *, failed: bool = False) -> None:
        self._span.update_name(name)
        self._span.set_attributes(attributes)
        if failed:
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


class CollectorTracer(Tracer):
    """Sends a share of the traces to a collector."""

    records = True

    def __init__(
        self,
        url: str,
        ratio: float,
        *,
        service: str = "store",
        exporter: SpanExporter | None = None,
    ) -> None:
        """`service` is the name of the process; `exporter` replaces the one that sends to `url`."""
        share = TraceIdRatioBased(ratio)
        self._ratio, self._random = ratio, Random()
        # What the store began to record continues in its other processes.
        provider = TracerProvider(
            sampler=ParentBased(share),
            resource=Resource(
                {
                    "service.name": service,
                    "service.version": VERSION,
                    "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
                }
            ),
            shutdown_on_exit=False,
        )
        processor = BatchSpanProcessor(
            exporter or OTLPSpanExporter(endpoint=url, timeout=EXPORT_TIMEOUT_S),
            max_queue_size=QUEUE_SPANS,
            max_export_batch_size=QUEUE_SPANS,
            schedule_delay_millis=EXPORT_INTERVAL_MS,
        )
        provider.add_span_processor(processor)
        self._tracer = provider.get_tracer("store")
        atexit.register(provider.shutdown)

    def start(
        self, kind: SpanKind, parent: str, *, start_ns: int | None = None, is_foreign: bool = False
    ) -> Span:
        above = _PROPAGATOR.extract({"traceparent": parent}, Context())
        # A client may choose the id of a trace, so that id must not decide.
        if is_foreign and above and self._random.random() >= self._ratio:
            return Span()
        span = self._tracer.start_span(kind, above, kind=_KINDS[kind], start_time=start_ns)
        return RecordedSpan(span)
