"""The drill `python -m tests.drill.alerts`: alerts fire for their causes, and clear without them.

Prometheus scrapes the stores and evaluates `deploy/alerts.yml`, in which only the durations are
shorter (`tests.live.prometheus`). What would take days to grow old gets an earlier time in the
catalog. The stores are hurt beside each other, and each of them in one or more sequences.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import click

from config.settings import FILE_VARIABLE
from ops import local_store, ports
from tests.drill import alert_causes, environment
from tests.drill.alert_causes import AlertFixture
from tests.engines import prometheus as prometheus_package
from tests.engines.engine import CACHE
from tests.live.api import ApiClient
from tests.live.prometheus import SCRAPE_S, Prometheus, measure_until, running_prometheus
from tests.monitoring import PanelQuery, list_panel_queries, read_alerts

LIMIT_S = 150.0
"""How long an alert may take to fire, and to clear."""
RATE_INTERVAL = f"{4 * SCRAPE_S}s"
"""What Grafana makes of `$__rate_interval` at this interval of scrapes."""
EMPTY_PANELS = {"Deliveries given up"}
"""Panels without data: no delivery reaches its last attempt in the drill."""


@dataclass(frozen=True)
class Scenario:
    """A cause, the alerts that it must let fire, and how it is described.

    The block of `provoke` lasts until they fire; they have to clear after it.
    """

    alerts: tuple[str, ...]
    how: str
    provoke: Callable[[AlertFixture], AbstractContextManager[None]]


@dataclass(frozen=True)
class Stage:
    """A store with its settings, and the sequences of scenarios that run beside each other."""

    name: str
    settings: Mapping[str, str]
    sequences: Sequence[Sequence[Scenario]]
    file: str = ""
    """The settings file, which a process reads again when it starts."""
    engines: frozenset[str] = frozenset()
    """The engines under it; without any it is an embedded store."""
    is_mirror: bool = False
    """Whether it mirrors another embedded store."""


STAGES = (
    Stage(
        "data",
        {
            "STORE_SCRUB_BYTES_S": "0",
            "STORE_SWEEP_S": "10",
            "STORE_DELIVERY_DELAYS_S": ",".join(["0", *["1"] * 500]),
        },
        (
            (
                Scenario(("StoreNeverBackedUp",), "a new store", alert_causes.no_backup),
                Scenario(
                    ("StoreBackupOld",),
                    "the last backup's time set back by 37 hours",
                    alert_causes.old_backup,
                ),
            ),
            (
                Scenario(
                    ("StoreObjectsDamaged",),
                    "a byte changed in both copies of a file, and `ops verify`",
                    alert_causes.damaged_copies,
                ),
                Scenario(
                    ("StoreScrubBehind",),
                    "no scrub, and verifications set back by 46 days",
                    alert_causes.no_scrub,
                ),
            ),
            (
                Scenario(
                    ("StoreReplicasDiffer",),
                    "another record of a bundle put into a bucket",
                    alert_causes.other_record_in_bucket,
                ),
            ),
            (
                Scenario(
                    ("StoreDocumentsRefused",),
                    "the most fields of a document set to 5",
                    alert_causes.too_few_fields,
                ),
            ),
            (
                Scenario(
                    ("StoreDeliveriesFailing",),
                    "the only receiver answers 503",
                    alert_causes.refusing_receiver,
                ),
            ),
        ),
        alert_causes.SETTINGS_FILE.format(fields=alert_causes.FEW_FIELDS),
    ),
    Stage(
        "service",
        {"STORE_MAX_CLAIMS": "2"},
        (
            (
                Scenario(
                    ("StoreDiskRefusesWrites", "StoreErrorRatio"),
                    "the folder of upload areas moved away, while clients write",
                    alert_causes.folder_away,
                ),
                Scenario(("StoreDown",), "SIGSTOP of the API", alert_causes.stopped_api),
                Scenario(
                    ("StoreSchedulerMissing", "StoreJobsLate"),
                    "SIGSTOP of the worker, and the time of a due job set back by 20 minutes",
                    alert_causes.stopped_worker,
                ),
                Scenario(("StoreReadOnly",), "`ops read-only on`", alert_causes.read_only),
                Scenario(
                    ("StoreJobsDead",),
                    "a byte changed in a file that has yet to be copied",
                    alert_causes.damaged_before_its_copy,
                ),
            ),
        ),
    ),
    Stage(
        "mirror",
        {"STORE_ALLOW_PRIVATE_CALLBACKS": "1"},
        (
            (
                Scenario(
                    ("StoreMirrorEventsFailed",),
                    "a byte changed in both copies of a file of the mirrored store",
                    alert_causes.damaged_mirrored_file,
                ),
                Scenario(
                    ("StoreMirrorBehind",),
                    "SIGSTOP of the mirrored store, and the last success set back by 2 hours",
                    alert_causes.stopped_mirrored_store,
                ),
            ),
        ),
        is_mirror=True,
    ),
    Stage(
        "engines",
        {
            "STORE_CATALOG_CONNECTIONS": "8",
            "STORE_CATALOG_OVERFLOW": "0",
            "STORE_CLOUD_ATTEMPTS": "1",
            "STORE_SEARCH_TIMEOUT_S": "2",
        },
        (
            (
                Scenario(
                    ("StorePartFailed", "StoreBucketErrors", "StoreReplicationLate"),
                    "a proxy answers 503 for the S3 bucket, and a copy's time set back by 2 hours",
                    alert_causes.failing_bucket,
                ),
                Scenario(
                    ("StoreBucketSlow",),
                    "a proxy delays each request to the S3 bucket by 4 to 6 s",
                    alert_causes.slow_bucket,
                ),
            ),
            (
                Scenario(
                    ("StoreSearchErrors",),
                    "SIGSTOP of OpenSearch, while clients search",
                    alert_causes.stopped_search,
                ),
                Scenario(
                    ("StoreSlowRequests",),
                    "a session locks the table of bundles in PostgreSQL for 5 s at a time",
                    alert_causes.slow_catalog,
                ),
                Scenario(
                    ("StoreCatalogPoolExhausted",),
                    "a session locks the tables of bundles in PostgreSQL, while clients read them",
                    alert_causes.locked_catalog,
                ),
            ),
        ),
        engines=frozenset({"postgres", "s3", "opensearch"}),
    ),
    Stage(
        "workers",
        {"STORE_API_PROCESSES": "1"},
        (
            (
                Scenario(
                    ("StoreClaimsLost",),
                    "SIGSTOP of two workers by turns, until others have taken their jobs",
                    alert_causes.lost_claims,
                ),
            ),
            (
                Scenario(
                    ("StoreEventLoopStuck",),
                    "the thread of the event loop of deliveries held by `ptrace`",
                    alert_causes.stuck_event_loop,
                ),
            ),
        ),
        engines=frozenset({"postgres", "redis"}),
    ),
)


@dataclass
class Report:
    """The lines of the table, and what went wrong."""

    lines: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    series: dict[PanelQuery, int] = field(default_factory=dict)
    """How many series each query of a panel of the dashboards had."""

    def add(self, alert: str, how: str, fired_s: float | None, cleared_s: float | None) -> None:
        """Add the result of one alert; None is a time that did not come."""
        fired, cleared = (
            "never" if seconds is None else f"{seconds:.0f} s" for seconds in (fired_s, cleared_s)
        )
        self.lines.append(f"| `{alert}` | {how} | {fired} | {cleared} |")
        click.echo(f"alerts: {alert}: fired after {fired}, cleared after {cleared}")
        if fired_s is None:
            self.faults.append(f"{alert} did not fire within {LIMIT_S:.0f} s: {how}")
        elif cleared_s is None:
            self.faults.append(f"{alert} did not clear within {LIMIT_S:.0f} s: {how}")

    def check_panels(self, is_complete: bool) -> None:
        """Show which queries of panels had no data; of a complete drill, these are faults."""
        empty = [query for query, count in self.series.items() if not count]
        click.echo(f"alerts: {len(empty)} of {len(self.series)} queries of panels had no data")
        for query in empty:
            line = f"{query.dashboard}, {query.panel}: query {query.name} had no data"
            click.echo(f"alerts: {line}")
            if is_complete and query.panel not in EMPTY_PANELS:
                self.faults.append(line)


@click.command()
@click.option("--stage", "names", multiple=True, help="Only this stage; repeatable.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the proxy's delays.")
def drill(names: tuple[str, ...], seed: int) -> None:
    """Provoke alerts, and wait until each fires and clears; exit with 1 if one does not."""
    began = time.monotonic()
    if lacks := prometheus_package.missing():
        sys.exit(f"alerts: this machine lacks {lacks}")
    prometheus_package.install(CACHE)
    stages = [stage for stage in STAGES if not names or stage.name in names]
    report = Report()
    with local_store.temporary_home() as folder:
        run_stages(stages, folder, Random(seed), report)
    report.check_panels(is_complete=not names)
    click.echo("| alert | provoked by | fires after | clears after |\n|---|---|---|---|")
    for line in sorted(report.lines):
        click.echo(line)
    for fault in report.faults:
        click.echo(f"alerts: FAIL {fault}")
    click.echo(
        f"alerts: {len(report.lines)} of {len(read_alerts())} alerts"
        f" in {time.monotonic() - began:.0f} s, {len(report.faults)} faults"
    )
    sys.exit(1 if report.faults else 0)


def run_stages(stages: Sequence[Stage], folder: Path, rng: Random, report: Report) -> None:
    """Run the stages beside each other."""
    (folder / "prometheus").mkdir()
    began = time.time()
    with (
        running_prometheus(folder / "prometheus") as server,
        ThreadPoolExecutor(len(stages)) as pool,
    ):
        # The thread that starts a store has to live as long as the store.
        running = [pool.submit(run_stage, stage, folder, server, rng, report) for stage in stages]
        for future in running:
            future.result()
        for query in list_panel_queries():
            found = server.query_range(query.fill_in(RATE_INTERVAL), began)
            report.series[query] = len(found)


def run_stage(stage: Stage, folder: Path, server: Prometheus, rng: Random, report: Report) -> None:
    """Start the store of a stage, and run its sequences beside each other."""
    with (
        _opened(stage, folder, rng) as fixture,
        ThreadPoolExecutor(len(stage.sequences)) as pool,
    ):
        server.add_target(fixture.target)
        click.echo(
            f"alerts: the store `{stage.name}` runs after {fixture.store.started_in_s:.0f} s"
        )
        running = [
            pool.submit(_run_sequence, scenarios, fixture, server, report)
            for scenarios in stage.sequences
        ]
        for future in running:
            future.result()


@contextmanager
def _opened(stage: Stage, folder: Path, rng: Random) -> Iterator[AlertFixture]:
    with ExitStack() as stack:
        backend = environment.Stand()
        if stage.engines:
            engines = folder / f"{stage.name}-engines"
            engines.mkdir()
            excused = frozenset(environment.ENGINES) - stage.engines
            backend = stack.enter_context(environment.real(engines, rng, excused=excused))
        home = folder / stage.name
        home.mkdir(mode=0o700)
        file = folder / f"{stage.name}.toml"
        file.write_text(stage.file, encoding="utf-8")
        settings = {
            **backend.settings,
            **stage.settings,
            FILE_VARIABLE: str(file),
        }
        if not stage.is_mirror:
            yield _start_store(stack, home, settings, backend)
            return
        source = folder / f"{stage.name}-source"
        source.mkdir(mode=0o700)
        mirrored = _start_store(stack, source, {}, backend)
        settings["STORE_MIRROR_OF"] = mirrored.store.api
        fixture = _start_store(stack, home, settings, backend)
        mirror = alert_causes.running_mirror(home, mirrored, fixture.store.environ)
        yield replace(fixture, mirrored=stack.enter_context(mirror))


def _start_store(
    stack: ExitStack, home: Path, settings: Mapping[str, str], backend: environment.Stand
) -> AlertFixture:
    """Start a store, which serves metrics at a port of its own."""
    port = ports.find_free_port()
    own = {**settings, "STORE_OPS_PORT": str(port)}
    store = stack.enter_context(local_store.running_store(home, own))
    service = ApiClient.open(store.api, store.token)
    stack.enter_context(service.http)
    return AlertFixture(store, service, f"127.0.0.1:{port}", backend)


def _run_sequence(
    scenarios: Sequence[Scenario], fixture: AlertFixture, server: Prometheus, report: Report
) -> None:
    for scenario in scenarios:
        _run_scenario(scenario, fixture, server, report)


def _run_scenario(
    scenario: Scenario, fixture: AlertFixture, server: Prometheus, report: Report
) -> None:
    def is_firing(alert: str) -> bool:
        return server.is_firing(alert, instance=fixture.target)

    def measure(fires: bool) -> dict[str, float | None]:
        with ThreadPoolExecutor(len(scenario.alerts)) as pool:
            taken = {
                alert: pool.submit(measure_until, lambda a=alert: is_firing(a) == fires, LIMIT_S)
                for alert in scenario.alerts
            }
            return {alert: future.result() for alert, future in taken.items()}

    # The cause before may have let other alerts fire, too.
    for alert, seconds in measure(fires=False).items():
        if seconds is None:
            report.faults.append(f"{alert} fired before its cause")
    try:
        with scenario.provoke(fixture):
            fired = measure(fires=True)
        cleared = measure(fires=False)
    except Exception as error:
        report.faults.append(f"{', '.join(scenario.alerts)}: {error!r}")
        return
    for alert in scenario.alerts:
        report.add(alert, scenario.how, fired[alert], cleared[alert])


if __name__ == "__main__":
    drill()
