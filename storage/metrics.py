"""Metrics that processes count, and how the processes of a home share them through files.

Every metric has a label: those without one would choose between memory and files on import.
"""

import errno
import fcntl
import logging
import os
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakMethod
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
    make_wsgi_app,
    values,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from config.settings import SettingValueError
from storage.model import REPLICAS

log = logging.getLogger(__name__)

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""The variable in which the library expects the folder of the files."""
ENDED = "ended"
"""Stands for the process id in the names of files that hold the sums of ended processes."""
SAMPLE_S = 1.0
"""Interval at which sampled gauges are written to the files."""
PORT_POLL_S = 5.0
"""Pause before each further attempt to take the port."""
SERVER_THREADS = 4
"""Requests of the port that are answered at once."""
REQUEST_TIMEOUT_S = 10
"""How long the port waits for a part of a request, and to send the answer."""
SECONDS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
ENGINE_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10, 60)
ATTEMPT_BUCKETS = (1, 2, 3, 5, 10, 20)

# Creation times of counters would double the page for no use.
disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY = CollectorRegistry()
BUCKET_SECONDS = Histogram(
    "store_bucket_seconds",
    "Seconds of a call to a bucket; of streams and listings, until the first item",
    ("replica", "verb", "outcome"),
    buckets=ENGINE_BUCKETS,
    registry=REGISTRY,
)
SEARCH_SECONDS = Histogram(
    "store_search_seconds",
    "Seconds of a call to a search index",
    ("replica", "verb", "outcome"),
    buckets=ENGINE_BUCKETS,
    registry=REGISTRY,
)
CATALOG_CONNECTIONS = Gauge(
    "store_catalog_connections",
    "Connections to the catalog: in use, idle, and the limit of all processes",
    ("state",),
    registry=REGISTRY,
    multiprocess_mode="livesum",
)
CATALOG_POOL_USED = Gauge(
    "store_catalog_pool_used_ratio",
    "Share of a process's connections to the catalog that are in use; the highest of all processes",
    ("process",),
    registry=REGISTRY,
    multiprocess_mode="livemax",
)
CATALOG_STANDBY_LAG = Gauge(
    "store_catalog_standby_lag_seconds",
    "How far the standby was behind the catalog, at most; the highest of all processes",
    ("standby",),
    registry=REGISTRY,
    multiprocess_mode="livemax",
)
CATALOG_READS = Counter(
    "store_catalog_reads",
    "Requests whose answer may be a little old, by the server that was asked: the standby, the"
    " primary, or first the one and then the other",
    ("server",),
    registry=REGISTRY,
)
CLAIMS_LOST = Counter(
    "store_claims_lost",
    "Jobs whose claim was lost while they ran; another worker repeats them",
    ("step",),
    registry=REGISTRY,
)
DELIVERIES = Counter(
    "store_deliveries",
    "Attempts to deliver, by outcome and class of the receiver's address",
    ("outcome", "endpoint"),
    registry=REGISTRY,
)
DELIVERY_SECONDS = Histogram(
    "store_delivery_seconds",
    "Seconds until a receiver answered, or the attempt failed",
    ("endpoint",),
    buckets=SECONDS_BUCKETS,
    registry=REGISTRY,
)
DELIVERY_ATTEMPTS = Histogram(
    "store_delivery_attempts",
    "Attempts until a delivery succeeded",
    ("endpoint",),
    buckets=ATTEMPT_BUCKETS,
    registry=REGISTRY,
)
DAMAGED_BYTES = Counter(
    "store_damaged_bytes",
    "Bytes of objects that were found damaged, by the size they should have",
    ("replica",),
    registry=REGISTRY,
)
REPAIRED_BYTES = Counter(
    "store_repaired_bytes",
    "Bytes that replaced damaged objects",
    ("replica",),
    registry=REGISTRY,
)
MIRROR_EVENTS = Counter(
    "store_mirror_events",
    "Events of the mirrored store that a mirror tried to apply, by outcome",
    ("outcome",),
    registry=REGISTRY,
)
EVENT_LOOP_LAG = Gauge(
    "store_event_loop_lag_seconds",
    "How late the event loop runs what is due, also while stuck; the highest of all processes",
    ("process",),
    registry=REGISTRY,
    multiprocess_mode="livemax",
)
PROCESS_START = Gauge(
    "store_process_start_time_seconds",
    "When the process started, seconds since 1970; the latest of several",
    ("process",),
    registry=REGISTRY,
    multiprocess_mode="livemax",
)

_shared_folder: Path | None = None
_process = "other"
_Readers = list[WeakMethod[Callable[[], float]]]
_samplers: dict[Gauge, _Readers] = {}
"""Sampled gauges, and the methods that read the value of each; the last one is shown."""


def share_metrics(folder: Path, process: str) -> None:
    """Count into files of this folder from now on; call it before anything is counted.

    `process` is the kind of this process, which has just started. The library's own variable, if
    it is set, names another folder.
    """
    global _shared_folder, _process
    _process = process
    _shared_folder = Path(os.environ.setdefault(FOLDER_VARIABLE, str(folder)))
    _shared_folder.mkdir(parents=True, exist_ok=True)
    merge_ended_processes(_shared_folder)
    # The library chose on import, when the variable was not set.
    values.ValueClass = values.MultiProcessValue()  # type: ignore[no-untyped-call]
    PROCESS_START.labels(process).set(time.time())
    for replica in REPLICAS:  # the first increase is seen only of what was 0 before
        DAMAGED_BYTES.labels(replica)
        REPAIRED_BYTES.labels(replica)
    threading.Thread(target=_write_samples, name="gauges", daemon=True).start()


def sample_gauge(gauge: Gauge, read: Callable[[], float]) -> None:
    """Show in a gauge what the method `read` returns, as long as its object is used elsewhere.

    It is read at a scrape; each second if processes share files. For values that change so often
    that writing each of them takes too long.
    """
    readers = _samplers.setdefault(gauge, [])
    readers.append(WeakMethod(read, readers.remove))
    if _shared_folder is None:
        gauge.set_function(lambda: _read_sample(readers))


def _read_sample(readers: _Readers) -> float:
    """Return the value of the last reader; 0 without one."""
    for reader in reversed([*readers]):
        if (read := reader()) is not None:
            return read()
    return 0.0


def _write_samples() -> None:
    is_failing = False
    while True:
        failures = _write_sample_round()
        if failures and not is_failing:
            log.warning("cannot write gauges, trying again: %s", "; ".join(failures))
        is_failing = bool(failures)
        time.sleep(SAMPLE_S)


def _write_sample_round() -> list[str]:
    """Write all sampled gauges, and return what failed."""
    failures = []
    for gauge, readers in [*_samplers.items()]:
        try:
            gauge.set(_read_sample(readers))
        except Exception as error:
            failures.append(repr(error))
    return failures


def find_shared_folder() -> Path | None:
    """Return the folder that this process counts into; None if it counts in memory."""
    return _shared_folder


def find_process() -> str:
    """Return the kind of this process; `other` if it shares no metrics."""
    return _process


def serve_metrics(host: str, port: int) -> None:
    """Serve the metrics of this home at a separate port; 0: don't.

    One process of a home serves those of all. The others wait until that process has ended. While
    another program has the port, it tries again. SettingValueError if this machine cannot listen
    there.
    """
    if not port or _shared_folder is None:
        return
    lock = os.open(_shared_folder / "port.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _start_server(host, port, _shared_folder)
    except BlockingIOError:
        log.info("another process of this home serves the metrics at port %d", port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            os.close(lock)
            raise SettingValueError("metrics_port", f"cannot listen at {host}: {error}") from error
        log.warning("another program has port %d of the metrics; trying again", port)
    else:
        return
    threading.Thread(
        target=_wait_for_port,
        args=(lock, host, port, _shared_folder),
        name="metrics port",
        daemon=True,
    ).start()


def _wait_for_port(lock: int, host: str, port: int, folder: Path) -> None:
    fcntl.flock(lock, fcntl.LOCK_EX)
    is_reported = False
    while True:
        time.sleep(PORT_POLL_S)
        try:
            return _start_server(host, port, folder)
        except OSError as error:
            if not is_reported:
                log.warning("port %d of the metrics: %s; trying again", port, error)
            is_reported = True


def _start_server(host: str, port: int, folder: Path) -> None:
    """Serve the metrics of a folder by a few daemon threads; OSError if it cannot listen."""
    server = _MetricsServer(host, port, folder)
    for _ in range(SERVER_THREADS):
        threading.Thread(target=server.serve, name="metrics server", daemon=True).start()


class _MetricsHandler(WSGIRequestHandler):
    timeout = REQUEST_TIMEOUT_S

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log no requests."""


class _MetricsServer(WSGIServer):
    """Serves `/metrics`; further connections wait in the backlog while all threads are busy."""

    def __init__(self, host: str, port: int, folder: Path) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, _, _, _, address = found[0]
        super().__init__((str(address[0]), port), _MetricsHandler)
        registry = CollectorRegistry()
        registry.register(_SharedMetrics(folder))
        self._render = make_wsgi_app(registry)
        self.set_app(self._answer)

    def serve(self) -> None:
        """Handle one request after another, for ever."""
        while True:
            self.handle_request()

    def handle_error(self, request: object, client_address: object) -> None:
        """Log why a connection ended, such as a request that did not come in time."""
        log.debug("metrics: a connection of %s failed", client_address, exc_info=True)

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/metrics":
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"The metrics are at /metrics.\n"]
        page: Iterable[bytes] = self._render(environ, start_response)
        return page


def render_metrics(folder: Path) -> bytes:
    """Return the metrics of all processes that share a folder, in Prometheus' text format."""
    return generate_latest(_SharedMetrics(folder))


class _SharedMetrics(Collector):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """Return what all processes that share the folder have counted."""
        merge_ended_processes(self._folder)
        with _lock(self._folder, fcntl.LOCK_SH):
            files = [str(path) for path in self._folder.glob("*.db") if not _is_new(path)]
            merged: Iterable[Metric] = MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call]
            return merged


def _is_new(path: Path) -> bool:
    """A process has created it, and not yet written its header; a killed one never does."""
    return path.stat().st_size == 0


def merge_ended_processes(folder: Path) -> None:
    """Add the counts of ended processes to one file for each type, and delete their files.

    Totals go on, and the number of files stays that of the running processes.
    """
    if not _list_ended(folder):
        return
    with _lock(folder, fcntl.LOCK_EX):
        ended = _list_ended(folder)
        for kind in ("counter", "histogram"):
            if paths := [path for path in ended if path.name.startswith(kind)]:
                _merge_files(folder / f"{kind}_{ENDED}.db", paths)
        for path in ended:
            path.unlink()


def _merge_files(target: Path, paths: list[Path]) -> None:
    sums: dict[str, float] = defaultdict(float)
    for path in (target, *paths):
        if path.exists() and not _is_new(path):
            for key, value, _, _ in MmapedDict.read_all_values_from_file(str(path)):  # type: ignore[no-untyped-call]
                sums[key] += value
    scratch = target.with_suffix(".new")
    scratch.unlink(missing_ok=True)
    merged = MmapedDict(str(scratch))  # type: ignore[no-untyped-call]
    for key, value in sums.items():
        merged.write_value(key, value, 0.0)  # type: ignore[no-untyped-call]
    merged.close()  # type: ignore[no-untyped-call]
    scratch.replace(target)


def _list_ended(folder: Path) -> list[Path]:
    """Return the files of processes that do not run any more."""
    found = [(path, path.stem.rpartition("_")[2]) for path in folder.glob("*.db")]
    return [path for path, pid in found if pid.isdecimal() and not _is_running(int(pid))]


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


@contextmanager
def _lock(folder: Path, mode: int) -> Iterator[None]:
    handle = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, mode)
        yield
    finally:
        os.close(handle)
