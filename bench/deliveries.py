"""Deliveries per second by the actor `deliver`, beside another commit and `requests` one by one.

All send the same signed requests to a receiver in a separate process; the actor also reads them
from the catalog and records every attempt. They take turns within one run. The actor runs in a
process that has every place for attempts and in one that has just begun, and again while one of
the other receivers is slow or dead.
Run as `python -m bench.deliveries [deliveries] [rounds] [the other commit]`.
"""

import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from uuid import uuid4

import requests
from dramatiq import Worker

from bench.checkouts import GitCheckout, checkout_of
from bench.receiving import receiver
from config import process
from pipelines.deliveries import WebhookRequest, build_request
from pipelines.flow import delivery_jobs
from storage.catalog import (
    Catalog,
    Tx,
    deliveries,
    endpoints,
    migrate,
    now_us,
    subscriptions,
)
from storage.catalog.deliveries import NewDelivery
from storage.catalog.subscriptions import Subscription
from storage.model import FQID, BundleEvent
from storage.pubsub import MemoryPubSub
from workers import deliver
from workers.broker import MemoryBroker
from workers.deliver import Deliverer
from workers.delivery_turns import DeliveryRules
from workers.messages import MessageSender
from workers.runtime import IDLE_POLL_MS
from workers.webhooks import WebhookSender

KEY = b"a key of the bench"
RECEIVERS = 20
ONE_BY_ONE = 500
"""How many are sent one after the other in a round."""
LIMIT_S = 120.0
THREADS = 64
DISPATCHER = "a01d035"
"""The last commit whose deliveries were sent by a separate process, the dispatcher."""
DELAYS_S = (0, 60)
SETTLED = DeliveryRules(DELAYS_S, first_permits=DeliveryRules.in_flight)
"""A process that has recorded so much that it has every place."""

BAD = 1000
"""Deliveries that wait for the bad receiver."""
SLOW_S = 5.0
"""How long a slow receiver thinks."""
LATENCIES_S = (0.0, 0.02)
"""How long the receiver thinks: none at all, and as long as a network takes."""


def main(
    count: int = 4000,
    rounds: int = 3,
    other: str = DISPATCHER,
    slow_s: float = SLOW_S,
    bad: int = BAD,
) -> None:
    """Print rates and their ratios for each latency of the receiver, then what bad ones cost."""
    with checkout_of(other) if other else nullcontext() as checkout:
        _show_rates(count, rounds, checkout)
    _show_bad(count, rounds, slow_s, bad)


def _show_rates(count: int, rounds: int, other: GitCheckout | None) -> None:
    print(
        f"{count} signed deliveries, {RECEIVERS} receivers, {rounds} rounds, {os.cpu_count()} cores"
    )
    for latency_s in LATENCIES_S:
        rates: dict[str, list[float]] = {"actor": [], "just begun": [], "one by one": []}
        if other:
            rates[other.name] = []
        with tempfile.TemporaryDirectory() as folder, receiver(latency_s) as url:
            for number in range(rounds):
                catalog = _catalog(Path(folder) / f"{number}.sqlite", url, count)
                rates["one by one"].append(_one_by_one(catalog))
                rates["actor"].append(count / deliver_all(catalog))
                catalog.close()
                catalog = _catalog(Path(folder) / f"{number}-begins.sqlite", url, count)
                rates["just begun"].append(count / deliver_all(catalog, DeliveryRules(DELAYS_S)))
                catalog.close()
                if other:
                    rates[other.name].append(_other(other.root, url, count))
        _show(latency_s, rates)


def _show(latency_s: float, rates: dict[str, list[float]]) -> None:
    print(f"the receiver answers after {latency_s * 1000:.0f} ms")
    ours = rates.pop("actor")
    print(f"  {'actor':<14}{statistics.median(ours):>8.0f}/s median{max(ours):>8.0f}/s best")
    for name, found in rates.items():
        ratio = statistics.median(a / b for a, b in zip(ours, found, strict=True))
        print(
            f"  {name:<14}{statistics.median(found):>8.0f}/s median{max(found):>8.0f}/s best"
            f"{ratio:>8.2f}: the actor's rate, paired"
        )


def _other(checkout: Path, url: str, count: int) -> float:
    """The rate of another commit, by its own bench, on a new catalog."""
    code = (
        "import asyncio, sys; from pathlib import Path; from bench import deliveries as bench\n"
        "catalog = bench._catalog(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))\n"
        "deliver_all = getattr(bench, 'deliver_all', None)\n"
        "print(deliver_all(catalog) if deliver_all else asyncio.run(bench.dispatch(catalog)))"
    )
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-c", code, f"{folder}/other.sqlite", url, str(count)]
        done = subprocess.run(words, cwd=checkout, stdout=subprocess.PIPE, text=True, check=True)
    return count / float(done.stdout)


def _show_bad(count: int, rounds: int, slow_s: float, held_up: int) -> None:
    """Rates of the good receivers: alone, beside a slow one and beside a dead one."""
    rates: dict[str, list[float]] = {"alone": [], "beside a slow one": [], "beside a dead one": []}
    with (
        tempfile.TemporaryDirectory() as folder,
        receiver(LATENCIES_S[1]) as good,
        receiver(slow_s) as slow,
    ):
        bad = {"beside a slow one": slow, "beside a dead one": "http://127.0.0.1:1"}
        for number in range(rounds):
            for name, found in rates.items():
                catalog = _catalog(Path(folder) / f"{number}{name}.sqlite", good, count)
                if name in bad:
                    fill(catalog, f"{bad[name]}/bad", held_up, receivers=1)
                found.append(count / deliver_all(catalog, but=held_up if name in bad else 0))
                catalog.close()
    print(f"{count} deliveries to good receivers that answer after {LATENCIES_S[1] * 1000:.0f} ms")
    for name, found in rates.items():
        ratios = [each / alone for each, alone in zip(found, rates["alone"], strict=True)]
        print(f"  {name:<20}{statistics.median(found):>8.0f}/s{statistics.median(ratios):>8.2f}")


def _catalog(path: Path, url: str, count: int) -> Catalog:
    catalog = Catalog(f"sqlite:///{path}")
    migrate.upgrade(catalog)
    fill(catalog, url, count)
    return catalog


def fill(
    catalog: Catalog, url: str, count: int, *, key: bytes | None = KEY, receivers: int = RECEIVERS
) -> None:
    """Let so many deliveries be due; without a key unsigned ones."""
    with catalog.write() as tx:
        made = [_subscribe(tx, f"{url}/{number}", key) for number in range(receivers)]
        for _ in range(count // receivers):
            fqid = FQID(str(uuid4()), "2026-01-01T000000.000000Z")
            event = BundleEvent(str(uuid4()), "aws", "CREATE", fqid, 1, now_us(tx))
            fresh = [
                NewDelivery(str(uuid4()), each.id, '{"x":"%s"}' % ("y" * 700)) for each in made
            ]
            deliveries.insert_matches(tx, fresh, event)


def _subscribe(tx: Tx, url: str, key: bytes | None) -> Subscription:
    fresh = Subscription(
        uuid=str(uuid4()),
        owner="bench@example.org",
        replica="aws",
        type="jmespath",
        query=None,
        callback_url=url,
        method="POST",
        encoding="application/json",
        form_fields={},
        payload_form_field="payload",
        hmac_secret=key,
    )
    made = subscriptions.insert_subscription(tx, fresh, address=url, limit=10 * RECEIVERS)
    assert made is not None
    return made


def _one_by_one(catalog: Catalog) -> float:
    """Requests per second."""
    with requests.Session() as session:
        session.trust_env = False
        due = waiting(catalog, ONE_BY_ONE)
        began = time.perf_counter()
        for request in due:
            session.request(
                request.method,
                request.url,
                data=request.body,
                headers=dict(request.headers),
                timeout=10,
            ).raise_for_status()
        return len(due) / (time.perf_counter() - began)


def waiting(catalog: Catalog, count: int) -> list[WebhookRequest]:
    """So many of the requests that are due, signed, evenly of all receivers."""
    with catalog.read() as tx:
        due = [
            row
            for ident in endpoints.list_waiting(tx, limit=RECEIVERS)
            for row in deliveries.list_due(tx, ident, limit=count // RECEIVERS)
        ]
    now = time.time_ns() // 1000
    return [build_request(row, attempt=1, now_us=now, keys=(KEY,)) for row in due]


def deliver_all(catalog: Catalog, rules: DeliveryRules = SETTLED, *, but: int = 0) -> float:
    """Seconds until all of them, but for so many, are delivered and recorded."""
    broker = MemoryBroker()
    chains = MessageSender(broker)
    deliverer = Deliverer(
        catalog,
        MemoryPubSub(),
        chains,
        rules=rules,
        new_sender=lambda: WebhookSender(timeout_s=10, allow_private=True, body_bytes=1024),
        unseal=lambda sealed, _: sealed,
        threads=THREADS,
    )
    deliver.declare_deliver(broker, deliverer)
    worker = Worker(
        broker, queues={deliver.QUEUE}, worker_timeout=IDLE_POLL_MS, worker_threads=THREADS
    )
    # As a worker does once it is set up; the dispatcher did not.
    process.relax_gc()
    began = time.perf_counter()
    worker.start()
    with catalog.read() as tx:
        chains.send(delivery_jobs(endpoints.list_waiting(tx, limit=256)))
    while pending(catalog) > but:
        if time.perf_counter() - began > LIMIT_S:
            raise TimeoutError(f"{pending(catalog)} are not delivered")
        time.sleep(0.02)
    took = time.perf_counter() - began
    worker.stop()
    return took


def pending(catalog: Catalog) -> int:
    """Deliveries that are not done."""
    with catalog.read() as tx:
        return deliveries.count_pending(tx)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    given = [*sys.argv[1:], *("4000", "3", "")[len(sys.argv) - 1 :]]
    main(int(given[0]), int(given[1]), given[2])
