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


class Failures:
    """A pytest plugin that notes the tests that failed, wherever they ran."""

    def __init__(self) -> None:
        self.tests: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Told of the start, the call and the end of every test."""
        if report.failed:
            self.tests[report.nodeid] = None


def main(arguments: Sequence[str]) -> int:
    """The exit code of pytest with these arguments, or 0 if what failed is unstable."""
    failures = Failures()
    code = int(pytest.main(list(arguments), plugins=[failures]))
    if code != pytest.ExitCode.TESTS_FAILED or not 0 < len(failures.tests) <= MOST:
        return code
    for number in range(TIMES):
        sys.stdout.write(f"== rerun {number + 1} of {TIMES}: {' '.join(failures.tests)}\n")
        sys.stdout.flush()
        again = subprocess.run([sys.executable, "-m", "pytest", *failures.tests])
        if again.returncode:
            return again.returncode
    for test in failures.tests:
        sys.stdout.write(f"== UNSTABLE, mend it: {test} failed once, then passed {TIMES} times\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
