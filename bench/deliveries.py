"""Deliveries per second by the actor `deliver`, beside `requests` one by one (what it replaces).

All send the same signed requests to a receiver in a separate process; the actor also reads them
from the catalog and records every attempt. It is measured with all attempt permits and as a process
that has just started, then while one more receiver is slow, or dead.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from uuid import uuid4

import requests
from dramatiq import Worker
from sqlalchemy import text

from bench.harness import Figures, Measure
from bench.receiver import receiver
from bench.stores import AUTHOR, VERSION
from config import process
from pipelines.deliveries import build_request
from pipelines.flow import delivery_jobs
from storage.catalog import (
    Catalog,
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
from workers.webhooks import WebhookSender

KEY = b"a key of the bench"
RECEIVERS = 20
THREADS = 64
POLL_MS = 100
LIMIT_S = 120.0
DELAYS_S = (0, 60)
NEW_PROCESS = DeliveryRules(DELAYS_S)
ALL_PERMITS = DeliveryRules(DELAYS_S, first_permits=DeliveryRules.in_flight)
LATENCIES_MS = (0, 20)
"""How long the receiver thinks: not at all, and as long as a network takes."""
DEAD = "http://127.0.0.1:1"


@contextmanager
def prepare(
    count: int = 4_000, one_by_one: int = 500, slow_s: float = 5.0, held_up: int = 1_000
) -> Iterator[Measure]:
    """Send so many deliveries in each way; `held_up` of them wait for a slow or dead receiver."""
    with (
        receiver(LATENCIES_MS[0]) as fast,
        receiver(LATENCIES_MS[1]) as usual,
        receiver(int(slow_s * 1000)) as slow,
    ):

        def measure() -> Figures:
            figures = {}
            for latency_ms, url in zip(LATENCIES_MS, (fast, usual), strict=True):
                actor, plain = _rate(url, count), _rate_one_by_one(url, one_by_one)
                at = f"receivers of {latency_ms} ms:"
                figures[f"{at} actor /s"] = actor
                figures[f"{at} new process /s"] = _rate(url, count, rules=NEW_PROCESS)
                figures[f"{at} requests, one by one /s"] = plain
                figures[f"{at} actor / one by one ×"] = actor / plain
            # Beside others the last rate, of the actor alone, is the limit.
            for name, bad in (("slow", slow), ("dead", DEAD)):
                rate = _rate(usual, count, bad=bad, held_up=held_up)
                figures[f"beside a {name} receiver /s"] = rate
                figures[f"beside a {name} receiver / alone ×"] = rate / actor
            return figures

        yield measure


def _rate(
    url: str, count: int, *, rules: DeliveryRules = ALL_PERMITS, bad: str = "", held_up: int = 0
) -> float:
    """Deliveries to good receivers a second."""
    with _catalog(url, count) as catalog:
        if bad:
            _fill(catalog, f"{bad}/bad", held_up, receivers=1)
        return count / _deliver_all(catalog, rules, held_up)


def _rate_one_by_one(url: str, count: int) -> float:
    with _catalog(url, count) as catalog, requests.Session() as session:
        session.trust_env = False
        with catalog.read() as tx:
            due = [
                row
                for ident in endpoints.list_waiting(tx, limit=RECEIVERS)
                for row in deliveries.list_due(tx, ident, limit=count // RECEIVERS)
            ]
        now = time.time_ns() // 1000
        prepared = [build_request(row, attempt=1, now_us=now, keys=(KEY,)) for row in due]
        began = time.perf_counter()
        for each in prepared:
            headers = dict(each.headers)
            answer = session.request(each.method, each.url, data=each.body, headers=headers)
            answer.raise_for_status()
        return len(prepared) / (time.perf_counter() - began)


@contextmanager
def _catalog(url: str, count: int) -> Iterator[Catalog]:
    """A new catalog in which so many deliveries are due."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = Path(folder, "catalog.sqlite")
        path.write_bytes(_empty_catalog())
        with closing(Catalog(f"sqlite:///{path}")) as catalog:
            _fill(catalog, url, count, receivers=RECEIVERS)
            yield catalog


@cache
def _empty_catalog() -> bytes:
    """The file of a migrated catalog."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = Path(folder, "catalog.sqlite")
        with closing(Catalog(f"sqlite:///{path}")) as catalog:
            migrate.upgrade(catalog)
        return path.read_bytes()


def _fill(catalog: Catalog, url: str, count: int, *, receivers: int) -> None:
    with catalog.write() as tx:
        subscribed = []
        for number in range(receivers):
            address = f"{url}/{number}"
            new = _subscription(address)
            made = subscriptions.insert_subscription(tx, new, address=address, limit=10 * RECEIVERS)
            assert made is not None
            subscribed.append(made)
        for _ in range(count // receivers):
            event = BundleEvent(
                str(uuid4()), "aws", "CREATE", FQID(str(uuid4()), VERSION), 1, now_us(tx)
            )
            payload = '{"x":"%s"}' % ("y" * 700)
            new_rows = [NewDelivery(str(uuid4()), each.id, payload) for each in subscribed]
            deliveries.insert_matches(tx, new_rows, event)


def _subscription(url: str) -> Subscription:
    return Subscription(
        uuid=str(uuid4()),
        owner=AUTHOR,
        replica="aws",
        type="jmespath",
        query=None,
        callback_url=url,
        method="POST",
        encoding="application/json",
        form_fields={},
        payload_form_field="payload",
        hmac_secret=KEY,
    )


def _deliver_all(catalog: Catalog, rules: DeliveryRules, held_up: int) -> float:
    """Seconds until all but `held_up` deliveries are sent and recorded."""
    broker = MemoryBroker()
    sender = MessageSender(broker)
    deliverer = Deliverer(
        catalog,
        MemoryPubSub(),
        sender,
        rules=rules,
        new_sender=lambda: WebhookSender(timeout_s=10, allow_private=True, body_bytes=1024),
        unseal=lambda sealed, _: sealed,
        threads=THREADS,
    )
    deliver.declare_deliver(broker, deliverer)
    worker = Worker(broker, queues={deliver.QUEUE}, worker_timeout=POLL_MS, worker_threads=THREADS)
    # As a worker process does once it is set up.
    process.relax_gc()
    began = time.perf_counter()
    worker.start()
    with catalog.read() as tx:
        sender.send(delivery_jobs(endpoints.list_waiting(tx, limit=256)))
    while (pending := _count_pending(catalog)) > held_up:
        if time.perf_counter() - began > LIMIT_S:
            raise TimeoutError(f"{pending} are not delivered")
        time.sleep(0.02)
    took = time.perf_counter() - began
    worker.stop()
    return took


def _count_pending(catalog: Catalog) -> int:
    with catalog.read() as tx:
        query = text("SELECT count(*) FROM deliveries WHERE state = 'pending'")
        return int(tx.execute(query).scalar_one())
