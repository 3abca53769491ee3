"""Run pytest; what failed by chance may show that it passes.

Of thousands of tests on a busy machine one may fail by chance. If no more than `MOST` tests failed,
each must pass `TIMES` times by itself, in processes of its own; then the run has passed, and says
which tests are unstable. Errors of another kind, as a module that cannot be imported, fail the run.
"""

import subprocess
import sys
from collections.abc import Sequence

import pytest

MOST = 2
TIMES = 5
ALONE = "--alone"
"""Before the names of tests, all of which must pass: one that is skipped shows nothing."""


class Outcomes:
    """A pytest plugin that notes which tests failed or passed, wherever they ran."""

    def __init__(self) -> None:
        self.failed: dict[str, None] = {}
        self.passed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Told of the start, the call and the end of every test."""
        if report.failed:
            self.failed[report.nodeid] = None
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)


def main(arguments: Sequence[str]) -> int:
    """The exit code of pytest with these arguments, or 0 if what failed is unstable."""
    outcomes = Outcomes()
    code = int(pytest.main(list(arguments), plugins=[outcomes]))
    if code != pytest.ExitCode.TESTS_FAILED or not 0 < len(outcomes.failed) <= MOST:
        return code
    for number in range(TIMES):
        sys.stdout.write(f"== rerun {number + 1} of {TIMES}: {' '.join(outcomes.failed)}\n")
        sys.stdout.flush()
        again = subprocess.run([sys.executable, "-m", "tests.rerun", ALONE, *outcomes.failed])
        if again.returncode:
            return again.returncode
    for test in outcomes.failed:
        sys.stdout.write(f"== UNSTABLE, mend it: {test} failed once, then passed {TIMES} times\n")
    return 0


def run_alone(tests: Sequence[str]) -> int:
    """0 if each of these tests passed."""
    outcomes = Outcomes()
    code = int(pytest.main(list(tests), plugins=[outcomes]))
    return code or int(not outcomes.passed.issuperset(tests))


if __name__ == "__main__":
    alone = sys.argv[1:2] == [ALONE]
    sys.exit(run_alone(sys.argv[2:]) if alone else main(sys.argv[1:]))
