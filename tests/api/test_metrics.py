"""Metrics that each scrape reads: jobs, replication, health, build, backup, uploads."""

import platform
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families

from api.app import create_app
from config import VERSION, Settings
from ops.procfile import ROOT
from storage.catalog import Catalog, jobs, now_us, store_state
from storage.model import Job
from storage.stores import Stores
from tests.api.builders import ADMIN, MIRRORED, record_mirror
from tests.api.conftest import verify

pytestmark = pytest.mark.spec("OPS-02")

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parse_samples(page: str) -> Samples:
    """Return the samples of a page by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def find(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, tuple(sorted(labels.items()))))


@pytest.fixture
def scrape(client: FlaskClient) -> Callable[[], Samples]:
    return lambda: parse_samples(client.get("/metrics", headers=ADMIN).text)


def test_counts_jobs_by_step_replica_and_state(stores: Stores, scrape) -> None:
    late, claimed, dead = (Job("sync", "gcp", f"file:{name}") for name in ("a", "b", "c"))
    with stores.catalog.write() as tx:
        jobs.insert(tx, [late, claimed, dead, Job("index", "aws", "d")])
        jobs.claim(tx, claimed, token="t", lease_s=60, max_claims=5)
        failing = jobs.claim(tx, dead, token="u", lease_s=60, max_claims=5)
        assert failing is not None
        jobs.mark_dead(tx, failing, reason="broken")
    samples = scrape()
    for state in ("waiting", "running", "dead"):
        assert find(samples, "store_jobs", step="sync", replica="gcp", state=state) == 1
    assert find(samples, "store_jobs", step="index", replica="aws", state="waiting") == 1
    assert find(samples, "store_jobs", step="index", replica="aws", state="dead") == 0
    assert find(samples, "store_todo_rows", step="sync", replica="gcp") == 2
    assert find(samples, "store_todo_parked") == 1
    oldest = find(samples, "store_job_oldest_seconds", step="sync", replica="gcp")
    assert oldest is not None
    assert 0 <= oldest < 60


def test_replication_lag_is_the_age_of_the_oldest_version_that_lacks(
    stores: Stores, scrape
) -> None:
    with stores.catalog.write() as tx:
        jobs.insert(tx, [Job("sync", "gcp", "file:a"), Job("sync_large", "gcp", "file:b")])
        tx.exec_driver_sql("UPDATE todo SET born_us = born_us - 90000000 WHERE ref = 'file:b'")
    samples = scrape()
    assert find(samples, "store_replication_waiting", replica="gcp") == 2
    assert find(samples, "store_replication_waiting", replica="aws") == 0
    lag = find(samples, "store_replication_lag_seconds", replica="gcp")
    assert lag is not None
    assert 90 <= lag < 120
    assert find(samples, "store_replication_lag_seconds", replica="aws") == 0


def test_backup_age_is_absent_before_the_first_backup(
    settings: Settings, stores: Stores, job_queue
) -> None:
    def scrape_new() -> Samples:
        app = create_app(settings, stores, job_queue=job_queue, verify=verify)
        return parse_samples(app.test_client().get("/metrics", headers=ADMIN).text)

    assert find(scrape_new(), "store_backup_age_seconds") is None
    with stores.catalog.write() as tx:
        store_state.write_value(tx, store_state.LAST_BACKUP_KEY, str(now_us(tx) - 5_000_000))
    age = find(scrape_new(), "store_backup_age_seconds")
    assert age is not None
    assert 5 <= age < 60


def test_shows_how_far_a_mirror_is(settings: Settings, stores: Stores, job_queue) -> None:
    names = ("success_time_seconds", "complete_time_seconds", "events_failed")

    def scrape_new(url: str) -> list[float | None]:
        own = replace(settings, mirror_of=url)
        app = create_app(own, stores, job_queue=job_queue, verify=verify)
        samples = parse_samples(app.test_client().get("/metrics", headers=ADMIN).text)
        return [find(samples, f"store_mirror_{name}") for name in names]

    assert scrape_new("") == [None, None, None]
    assert scrape_new(MIRRORED) == [0, 0, 0]
    record_mirror(stores, success_us=2_500_000, complete_us=1_500_000, failed=1)
    assert scrape_new(f"{MIRRORED}/") == [2.5, 1.5, 1]
    assert scrape_new("https://other.example.org") == [0, 0, 0]


def test_parts_are_those_of_health(client: FlaskClient, scrape) -> None:
    samples = scrape()
    for part, result in client.get("/health").json["parts"].items():
        for state in ("ok", "warning", "failed"):
            wanted = float(result["status"] == state)
            assert find(samples, "store_part", part=part, state=state) == wanted, part


def test_lost_catalog_leaves_the_other_metrics(
    settings: Settings, stores: Stores, job_queue, tmp_path: Path
) -> None:
    app = create_app(
        replace(settings, ops_port=9999),
        replace(stores, catalog=Catalog(f"sqlite:///{tmp_path}/absent/catalog.sqlite")),
        job_queue=job_queue,
        verify=verify,
    )
    answer = app.test_client().get("/metrics", environ_overrides={"SERVER_PORT": "9999"})
    assert answer.status_code == 200
    samples = parse_samples(answer.text)
    assert find(samples, "store_part", part="catalog", state="failed") == 1
    assert find(samples, "store_part", part="bucket.aws", state="ok") == 1
    assert find(samples, "store_todo_parked") is None


def test_build_info_has_the_versions(scrape) -> None:
    labels = {"version": VERSION, "python": platform.python_version()}
    assert find(scrape(), "store_build_info", **labels) == 1
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["version"] == VERSION
