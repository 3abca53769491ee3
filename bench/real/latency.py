"""From PUT of a bundle to the first callback, at a steady rate, with everything real.

API and workers by the supervisor; PostgreSQL, Redis, OpenSearch, S3 for both replicas.
The bundles' files are there before. Run as `python -m bench.real.latency [seconds] [per second]`.
"""

import asyncio
import logging
import os
import sys

from bench import latency, stand
from bench.real import engines

RATES = (20, 50)
SECONDS = 30


def main(seconds: int = SECONDS, *rates: int) -> None:
    """Print the percentiles at each rate."""
    for rate in rates or RATES:
        bundles = seconds * rate
        print(f"{bundles} bundles of 2 files, {rate} a second, one subscription on every bundle")
        print(f"{'':<18}{'p50 ms':>8}{'p95 ms':>8}{'max ms':>8}")
        with engines.settings() as environ, stand.running(environ) as (store, _, _):
            times, shares = asyncio.run(latency.measured(store, bundles, rate))
        latency.show("", times)
        print(f"  cores used: {shares}")


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(f"{os.cpu_count()} cores; {engines.versions()}")
    main(*map(int, sys.argv[1:]))
