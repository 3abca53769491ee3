"""Prometheus metrics: request counters, and samples read at each scrape."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from storage.metrics import REGISTRY, SECONDS_BUCKETS, render_metrics

METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class SampledMetric:
    """A gauge or counter whose values are read at each scrape."""

    name: str
    description: str
    labels: tuple[str, ...] = ()
    kind: Literal["gauge", "counter"] = "gauge"


@dataclass(frozen=True)
class MetricSample:
    """A value that is read at each scrape; `labels` has a value for each label of the metric."""

    metric: SampledMetric
    value: float
    labels: tuple[str, ...] = ()


class _SampleCollector(Collector):
    """Gauges and counters that are read at each scrape."""

    def __init__(self, read: Callable[[], Iterable[MetricSample]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for sample in self._read():
            metric = sample.metric
            family_type = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            if metric.name not in families:
                families[metric.name] = family_type(
                    metric.name, metric.description, labels=metric.labels
                )
            families[metric.name].add_metric(sample.labels, sample.value)
        return families.values()


class RequestMetrics:
    """The request counters of one application, in their own registry."""

    def __init__(self, shared: Path | None = None) -> None:
        """`shared` is the folder in which all processes count; None: this one counts in memory."""
        self._shared = shared
        self._own = CollectorRegistry()
        self.requests = Counter(
            "store_requests",
            "Requests by operation and status",
            ("operation", "status"),
            registry=self._own,
        )
        self.seconds = Histogram(
            "store_request_seconds",
            "Seconds to answer, by operation and class of the status; the counter has each status",
            ("operation", "code"),
            buckets=SECONDS_BUCKETS,
            registry=self._own,
        )
        self.received = Counter(
            "store_received_bytes",
            "Bytes of request bodies, as their headers announce them",
            ("operation",),
            registry=self._own,
        )
        self.sent = Counter(
            "store_sent_bytes",
            "Bytes of response bodies",
            ("operation",),
            registry=self._own,
        )
        self._by_status: dict[tuple[str, int], tuple[Counter, Histogram, Counter, Counter]] = {}

    def count(
        self, operation: str, status: int, seconds: float, *, received: int, sent: int
    ) -> None:
        """Count a request, and the bytes of both bodies."""
        # Looking labels up costs as much as counting.
        found = self._by_status.get((operation, status))
        if found is None:
            found = self._by_status[operation, status] = (
                self.requests.labels(operation, str(status)),
                self.seconds.labels(operation, f"{status // 100}xx"),
                self.received.labels(operation),
                self.sent.labels(operation),
            )
        requests, durations, received_bytes, sent_bytes = found
        requests.inc()
        durations.observe(seconds)
        received_bytes.inc(received)
        sent_bytes.inc(sent)

    def count_sent(self, operation: str, size: int) -> None:
        """Count bytes of a response's body."""
        self.sent.labels(operation).inc(size)

    def render_text(self, read: Callable[[], Iterable[MetricSample]]) -> bytes:
        """Return all metrics in Prometheus' text format, summed over the processes."""
        samples = CollectorRegistry()
        samples.register(_SampleCollector(read))
        counted = (
            generate_latest(self._own) + generate_latest(REGISTRY)
            if self._shared is None
            else render_metrics(self._shared)
        )
        return counted + generate_latest(samples)
