"""Deliveries per second by the actor `deliver`, beside an actor that sends one by `requests`.

Both send the same signed requests to the same receivers. Ours reads them from PostgreSQL, signs
them and records every attempt there; the actor takes them, signed, from Redis and records nothing.
Run as `python -m bench.real.callbacks [deliveries] [rounds]`.
"""

import logging
import os
import statistics
import sys
from collections.abc import Mapping

from bench import deliveries
from bench.real import actor, engines
from bench.receiving import receiver

RECEIVERS_MS = (0, 20)


def main(count: int = 4000, rounds: int = 3) -> None:
    """Print rates and ratios for each kind of receiver."""
    print(f"{count} signed deliveries, {deliveries.RECEIVERS} receivers, {rounds} rounds")
    print(f"the actor: one process, {actor.THREADS} threads, which is dramatiq's default")
    for latency_ms in RECEIVERS_MS:
        rates: Mapping[str, list[float]] = {name: [] for name in ("ours", *actor.WAYS)}
        for turn in range(rounds):
            with receiver(latency_ms / 1000) as url:
                _round(url, count, latency_ms, rates, turn)
        _show(latency_ms, rates)


def _round(
    url: str, count: int, latency_ms: int, rates: Mapping[str, list[float]], turn: int
) -> None:
    with engines.database() as database, engines.catalog(database) as catalog:
        deliveries.fill(catalog, url, count)
        # Its threads wait: fewer tell as much.
        some = count // 4 if latency_ms else count
        requests = deliveries.waiting(catalog, some)
        order = list(rates)
        for name in order[turn % len(order) :] + order[: turn % len(order)]:
            if name == "ours":
                rates[name].append(count / deliveries.deliver_all(catalog))
            else:
                rates[name].append(some / actor.run(engines.url("redis"), requests, name))


def _show(latency_ms: int, rates: Mapping[str, list[float]]) -> None:
    print(f"the receivers answer after {latency_ms} ms")
    ours = statistics.median(rates["ours"])
    for name, found in rates.items():
        middle = statistics.median(found)
        ratio = f"{ours / middle:>7.1f}×" if name != "ours" else ""
        print(f"  {name:<28}{middle:>8.0f}/s median{max(found):>8.0f}/s best{ratio}")


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(f"{os.cpu_count()} cores; {engines.versions()}")
    main(*map(int, sys.argv[1:]))
