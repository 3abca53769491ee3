"""A pytest plugin: a run in which an engine that was named took part in no test has failed."""

import os
import re
from collections import Counter

import pytest

TOOK_PART = {
    "STORE_TEST_POSTGRES": r"\[.*postgresql",
    "STORE_TEST_PGBOUNCER": r"\[.*pgbouncer",
    "STORE_TEST_REDIS": r"\[.*named",
    "STORE_TEST_S3": r"\[.*s3-server",
    "STORE_TEST_GCS": r"\[.*gcs-server",
    "STORE_TEST_OPENSEARCH": r"\[.*opensearch",
}
"""What the names of those tests hold in which an engine takes part."""
WHOLE_STORE = "tests/real/"

_passed: Counter[str] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Told of every test, wherever it ran."""
    if report.when != "call" or not report.passed:
        return
    _passed["whole store"] += report.nodeid.startswith(WHOLE_STORE)
    for variable, pattern in TOOK_PART.items():
        _passed[variable] += bool(re.search(pattern, report.nodeid))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Workers of a distributed run see a part only; who started them sees all."""
    if not hasattr(session.config, "workerinput") and _idle():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many tests each engine took part in."""
    terminalreporter.section("real engines")
    for name, count in sorted(_passed.items()):
        terminalreporter.write_line(f"{name}: {count} tests passed")
    for name in _idle():
        terminalreporter.write_line(f"{name} is named and took part in no test", red=True)


def _idle() -> list[str]:
    named = [variable for variable in TOOK_PART if os.environ.get(variable)]
    return [name for name in ("whole store", *named) if not _passed[name]]
