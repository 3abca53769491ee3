"""What a small bundle costs our processes on the real engines, beside an older commit.

PostgreSQL, Redis, OpenSearch, S3 for both replicas. The processor time is that of the store's own
processes. Run as `python -m bench.real.reach [rounds] [bundles] [seconds idle] [callbacks]`.
"""

import logging
import sys

from bench import reach
from bench.reach import BASELINE, Plan
from bench.real import engines


def main(
    rounds: int = 5, bundles: int = 100, idle_s: int = 10, callbacks: int = 200, paired: int = 1
) -> None:
    """Each round on new buckets and an empty database, which the store migrates itself."""
    plan = Plan(rounds, bundles, idle_s, callbacks)
    reach.compare(plan, lambda: engines.settings(False), BASELINE if paired else "")


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main(*map(int, sys.argv[1:]))
