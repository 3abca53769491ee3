"""Prometheus metrics: request counters, and samples read at each scrape.

With several processes the library shares the counters through files, in a folder that the
server's configuration names before this module is imported.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


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

    def __init__(self, *, several_processes: bool = False, workers: Path | None = None) -> None:
        """`workers` is the metrics folder of the worker processes on this machine."""
        # Creation times of counters would double the page for no use.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._several, self._workers = several_processes, workers
        self._own = CollectorRegistry()
        self.requests = Counter(
            "store_requests",
            "Requests by operation and status",
            ("operation", "status"),
            registry=self._own,
        )
        self.seconds = Histogram(
            "store_request_seconds",
            "Seconds to answer, by operation",
            ("operation",),
            buckets=BUCKETS,
            registry=self._own,
        )

    def count(self, operation: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests.labels(operation, str(status)).inc()
        self.seconds.labels(operation).observe(seconds)

    def render_text(self, read: Callable[[], Iterable[MetricSample]]) -> bytes:
        """Return all metrics in Prometheus' text format, summed over the processes."""
        counters = CollectorRegistry() if self._several else self._own
        if self._several:
            MultiProcessCollector(counters)  # type: ignore[no-untyped-call]
        samples = CollectorRegistry()
        samples.register(_SampleCollector(read))
        return generate_latest(counters) + self._render_worker_metrics() + generate_latest(samples)

    def _render_worker_metrics(self) -> bytes:
        """Return the metrics of the actors under dramatiq's names."""
        if self._workers is None or not self._workers.is_dir():
            return b""
        counters = CollectorRegistry()
        MultiProcessCollector(counters, path=str(self._workers))  # type: ignore[no-untyped-call]
        return generate_latest(counters)
