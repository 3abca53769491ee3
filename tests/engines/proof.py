"""A pytest plugin that requires every named engine to take part in a test that is not skipped.

It keeps the tests that a run without these engines could not make, and fails a run in which an
engine that was named took part in no test.
"""

import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pytest

POSTGRES, PGBOUNCER, REDIS = "STORE_TEST_POSTGRES", "STORE_TEST_PGBOUNCER", "STORE_TEST_REDIS"
S3, GCS, OPENSEARCH = "STORE_TEST_S3", "STORE_TEST_GCS", "STORE_TEST_OPENSEARCH"
REAL_DATA, HCA = "STORE_REAL_DATA", "STORE_TEST_HCA"
ANALYSIS = "STORE_TEST_ANALYSIS"
DRS_SUITE = "STORE_TEST_DRS_COMPLIANCE_SUITE"
OPENAPI_PYTHON_CLIENT = "STORE_TEST_OPENAPI_PYTHON_CLIENT"
OPENAPI_TYPESCRIPT = "STORE_TEST_OPENAPI_TYPESCRIPT"
ROC_VALIDATOR = "STORE_TEST_ROC_VALIDATOR"
PROMTOOL = "STORE_TEST_PROMTOOL"
NEXTFLOW, SNAKEMAKE = "STORE_TEST_NEXTFLOW", "STORE_TEST_SNAKEMAKE"
STORE = (POSTGRES, REDIS, S3, OPENSEARCH)


class Part(NamedTuple):
    """A test takes part when its name matches; one must, when the environment names all these."""

    matches: str
    named: Sequence[str]


PARTS = {
    "postgres": Part(r"\[.*postgresql", [POSTGRES]),
    "races on postgres": Part(r"test_write_races\.py.*\[.*postgresql", [POSTGRES]),
    "pgbouncer": Part(r"\[.*pgbouncer", [PGBOUNCER]),
    "catalog on pgbouncer": Part(r"^tests/storage/catalog/.*\[.*pgbouncer", [PGBOUNCER]),
    "backups on pgbouncer": Part(r"test_backups\.py.*\[.*pgbouncer", [PGBOUNCER]),
    "writers on pgbouncer": Part(r"pipelines/test_concurrency\.py.*\[.*pgbouncer", [PGBOUNCER]),
    "deposits on pgbouncer": Part(r"test_ingest\.py.*\[.*pgbouncer", [PGBOUNCER]),
    "workers on pgbouncer": Part(r"^tests/workers/.*\[.*pgbouncer", [PGBOUNCER]),
    "redis": Part(r"\[.*named", [REDIS]),
    "s3": Part(r"\[.*s3-server", [S3]),
    "gcs": Part(r"\[.*gcs-server", [GCS]),
    "opensearch": Part(r"\[.*opensearch", [OPENSEARCH]),
    "answers about real metadata": Part(r"test_differential\.py", [OPENSEARCH, REAL_DATA]),
    "copies between clouds": Part(r"test_copies\.py.*gcs-server", [S3, GCS]),
    "original client": Part(r"test_original_client\.py", [HCA, S3]),
    "dask and xarray": Part(r"test_analysis\.py", [ANALYSIS]),
    "drs-compliance-suite": Part(r"test_drs_compliance\.py.*\[.*s3", [DRS_SUITE, S3]),
    "nextflow": Part(r"test_workflows\.py.*\[nextflow", [NEXTFLOW]),
    "snakemake": Part(r"test_workflows\.py.*\[snakemake", [SNAKEMAKE]),
    "openapi-python-client": Part(r"\[openapi-python-client", [OPENAPI_PYTHON_CLIENT]),
    "openapi-typescript": Part(r"\[openapi-typescript", [OPENAPI_TYPESCRIPT]),
    "roc-validator": Part(r"test_crates\.py", [ROC_VALIDATOR]),
    "promtool": Part(r"test_alerts\.py", [PROMTOOL]),
    "whole store on s3": Part(r"^tests/real/.*\[.*s3 and s3", STORE),
    "whole store on s3 and gcs": Part(r"^tests/real/.*\[.*s3 and gcs", [*STORE, GCS]),
}

POOLED = re.compile(
    r"^tests/storage/catalog/(?!test_query_plans|test_subscription_status)"
    r"|^tests/pipelines/test_(backups|concurrency|ingest)\.py"
    r"|^tests/workers/(?!test_redis_outages)"
)
"""Tests that run on PgBouncer. It shares the sessions of PostgreSQL among transactions, so it
concerns what holds a connection: all statements of the catalog, cursors, concurrent writers and
processes. The plans of queries and the order of a pipeline's steps are PostgreSQL's."""

PRIVATE_REDIS = re.compile(r"\[.*private")
"""Tests that start a Redis of their own."""

_ran: Counter[str] = Counter()


WHOLE_STORES = "tests/real/"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what other engines ran already; begin with what takes longest: at the end one
    process of a distributed run would wait for it, or start the same store again to help."""
    needless = [item for item in items if not _needs_an_engine(item)]
    config.hook.pytest_deselected(items=needless)
    needed = [item for item in items if _needs_an_engine(item)]
    items[:] = sorted(needed, key=lambda item: not item.nodeid.startswith(WHOLE_STORES))


def _needs_an_engine(item: pytest.Item) -> bool:
    """It is named after an engine, or is skipped where there is none."""
    if re.search(PARTS["pgbouncer"].matches, item.nodeid) and not POOLED.search(item.nodeid):
        return False
    return (
        any(re.search(part.matches, item.nodeid) for part in PARTS.values())
        or bool(PRIVATE_REDIS.search(item.nodeid))
        or any(item.get_closest_marker(name) for name in ("real", "skipif"))
    )


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Told of every test, wherever it ran."""
    if report.when != "call" or report.skipped:
        return
    _ran.update(name for name, part in PARTS.items() if re.search(part.matches, report.nodeid))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Workers of a distributed run see a part only; who started them sees all."""
    if not hasattr(session.config, "workerinput") and _idle():
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED  # no rerun can mend that


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many tests each engine took part in."""
    terminalreporter.section("real engines")
    for name in PARTS:
        terminalreporter.write_line(f"{name}: {_ran[name]} tests ran")
    for name in _idle():
        terminalreporter.write_line(f"{name} is named and took part in no test", red=True)


def _idle() -> list[str]:
    def expected(part: Part) -> bool:
        return all(os.environ.get(variable) for variable in part.named)

    return [name for name, part in PARTS.items() if expected(part) and not _ran[name]]
