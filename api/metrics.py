"""Figures for Prometheus: counted per request here, read from the catalog when asked.

With several processes the library shares the counters through files, in a folder that the
server's configuration names before this module is imported.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

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

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


@dataclass(frozen=True)
class Sample:
    """One figure that is read, not counted."""

    name: str
    about: str
    labels: dict[str, str]
    value: float
    counter: bool = False


class _Read(Collector):
    """Gauges and totals that are asked for at each scrape."""

    def __init__(self, read: Callable[[], Iterable[Sample]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for sample in self._read():
            made = CounterMetricFamily if sample.counter else GaugeMetricFamily
            family = families.get(sample.name) or made(
                sample.name, sample.about, labels=list(sample.labels)
            )
            families[sample.name] = family
            family.add_metric(list(sample.labels.values()), sample.value)
        return families.values()


class Metrics:
    """Counters of one application, in a registry of their own."""

    def __init__(self, *, several_processes: bool = False, workers: Path | None = None) -> None:
        """`workers`: the folder into which worker processes of this machine count."""
        # The times at which counters were made double the page and tell nobody anything.
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
        """One more request."""
        self.requests.labels(operation, str(status)).inc()
        self.seconds.labels(operation).observe(seconds)

    def page(self, read: Callable[[], Iterable[Sample]]) -> bytes:
        """Everything in Prometheus' text format; of all processes where there are several."""
        counted = CollectorRegistry() if self._several else self._own
        if self._several:
            MultiProcessCollector(counted)  # type: ignore[no-untyped-call]
        asked = CollectorRegistry()
        asked.register(_Read(read))
        return generate_latest(counted) + self._of_workers() + generate_latest(asked)

    def _of_workers(self) -> bytes:
        """What the actors count, as dramatiq names it."""
        if self._workers is None or not self._workers.is_dir():
            return b""
        counted = CollectorRegistry()
        MultiProcessCollector(counted, path=str(self._workers))  # type: ignore[no-untyped-call]
        return generate_latest(counted)
