"""Traces of requests, their jobs and deliveries; off by default, without OpenTelemetry.

Jobs and deliveries keep the id of their request in the catalog. While tracing is on, its trace
context is kept behind the id: `ID;00-TRACE-SPAN-01` (W3C Trace Context).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

SpanKind = Literal["server", "consumer", "client"]
Attribute = str | bool | int | float

_SEPARATOR = ";"
_traceparent: ContextVar[str] = ContextVar("traceparent", default="")


class Span:
    """One operation of a trace; this one is not recorded."""

    @property
    def traceparent(self) -> str:
        """Return the trace context for what follows; empty if the trace is not recorded."""
        return ""

    def end(self, name: str, attributes: dict[str, Attribute], *, failed: bool = False) -> None:
        """Record the span; attributes must not hold secrets, URLs or metadata."""


class Tracer:
    """Starts spans; this one records none."""

    records = False
    """Whether spans are recorded at all."""

    def start(
        self, kind: SpanKind, parent: str, *, start_ns: int | None = None, is_foreign: bool = False
    ) -> Span:
        """Start a span below the trace context `parent`; without one, a new trace.

        A client names a parent that `is_foreign`: it does not decide whether the span is recorded.
        """
        return Span()


@contextmanager
def bind_traceparent(traceparent: str) -> Iterator[None]:
    """Keep the trace context with the jobs that are inserted inside the block."""
    token = _traceparent.set(traceparent)
    try:
        yield
    finally:
        _traceparent.reset(token)


def current_traceparent() -> str:
    """Return the trace context of the current request; empty if it is not recorded."""
    return _traceparent.get()


def join_request(request_id: str) -> str:
    """Return a request id as jobs keep it: with the current trace context, if there is one."""
    traceparent = _traceparent.get()
    if not traceparent or _SEPARATOR in request_id:
        return request_id
    return f"{request_id}{_SEPARATOR}{traceparent}"


def split_request(kept: str) -> tuple[str, str]:
    """Return the request id and the trace context, or an empty text, of what a job keeps."""
    request_id, _, traceparent = kept.partition(_SEPARATOR)
    return request_id, traceparent
