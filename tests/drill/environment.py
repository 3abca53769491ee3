"""Engines under a drill's store, embedded or real, and how to disturb them.

A real engine that this machine lacks stops the drill, unless it was excused by its name.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from types import ModuleType
from urllib.parse import parse_qsl, urlsplit

import httpx
import redis

import config
from ops import commands
from ops.local_store import LocalStore
from storage.connect import connect
from storage.pubsub import MemoryPubSub
from storage.stores import Stores
from tests.drill import fault_proxy
from tests.drill.buckets import Bucket, GcsBucket, S3Bucket
from tests.engines import engine, gcs, opensearch, postgres, s3
from tests.engines import redis as redis_engine
from tests.engines.engine import Running
from tests.storage.blobs import backend_gcs

ENGINES: Mapping[str, ModuleType] = {
    "postgres": postgres,
    "redis": redis_engine,
    "s3": s3,
    "gcs": gcs,
    "opensearch": opensearch,
}
PREFIX = "drill"
COMMON = {
    # What is refused comes again soon, not in a minute.
    "STORE_DELIVERY_DELAYS_S": "0,1,2,5,10,30,60",
}
SETTINGS = {
    **COMMON,
    # Two, so that one can die and the other goes on.
    "STORE_API_PROCESSES": "2",
    # What an operator would wait a quarter of an hour for, a drill waits for seconds.
    "STORE_SWEEP_S": "20",
}

FILLING_S = 60.0

Hand = Callable[[], None]


class Lacking(Exception):
    """An engine cannot run here; the text names it and what it wants."""


@dataclass
class Stand:
    """A store's settings, what strangers see of its buckets, and what can be done to its engines.

    `buckets` is empty for folders, which nobody else reads."""

    settings: Mapping[str, str] = field(default_factory=dict)
    buckets: Mapping[str, Bucket] = field(default_factory=dict)
    hands: dict[str, Hand] = field(default_factory=dict)
    proxy: fault_proxy.Proxy | None = None
    struck: str = ""
    engines: Mapping[str, Running] = field(default_factory=dict)


@contextmanager
def embedded() -> Iterator[Stand]:
    """No engine but what `make run` has."""
    yield Stand(settings=COMMON)


@contextmanager
def real(home: Path, rng: Random, *, excused: frozenset[str]) -> Iterator[Stand]:
    """Every engine, started for this drill, one of the clouds behind a proxy; Lacking."""
    wanted = [name for name in ENGINES if name not in excused]
    for name in wanted:
        _install(name)
    with ExitStack() as stack:
        if "gcs" in wanted:
            # Whose server believes anybody; only who signs URLs must be somebody.
            stack.enter_context(backend_gcs.running(_folder(home, "account")))
        started: dict[str, Running] = {
            name: stack.enter_context(ENGINES[name].running(_folder(home, name))) for name in wanted
        }
        struck = rng.choice(sorted({"s3", "gcs"} & started.keys()) or [""])
        proxy = _proxy(started[struck], rng, stack) if struck else None
        yield _stand(started, proxy, struck)


def _install(name: str) -> None:
    lacks = ENGINES[name].missing()
    if lacks:
        raise Lacking(f"{name} is not run: this machine lacks {lacks}")
    ENGINES[name].install(engine.CACHE)


def _folder(home: Path, name: str) -> Path:
    folder = home / name
    folder.mkdir(parents=True)
    return folder


def _proxy(server: Running, rng: Random, stack: ExitStack) -> fault_proxy.Proxy:
    parts = urlsplit(_endpoint(server))
    return stack.enter_context(fault_proxy.before(parts.hostname or "", parts.port or 0, rng))


def _endpoint(server: Running) -> str:
    return dict(parse_qsl(urlsplit(server.url).query))["endpoint"]


def _stand(started: Mapping[str, Running], proxy: fault_proxy.Proxy | None, struck: str) -> Stand:
    stand = Stand(proxy=proxy, struck=struck, engines=started)
    settings = dict(SETTINGS)
    environ: dict[str, str] = {}
    buckets: dict[str, Bucket] = {}
    for name, server in started.items():
        environ.update(server.environ)
        if name in ("s3", "gcs"):
            reached = f"http://127.0.0.1:{proxy.port}" if proxy and name == struck else None
            _buckets(name, server, reached, settings, buckets)
        else:
            settings[SETTING[name]] = server.url + (f"/{PREFIX}" if name == "opensearch" else "")
    stand.settings, stand.buckets = {**environ, **settings}, buckets
    stand.hands = _hands(started)
    return stand


SETTING = {
    "postgres": "STORE_CATALOG_URL",
    "redis": "STORE_REDIS_URL",
    "opensearch": "STORE_SEARCH_URL",
}


def _buckets(
    name: str,
    server: Running,
    reached: str | None,
    settings: dict[str, str],
    buckets: dict[str, Bucket],
) -> None:
    """Make the buckets of a cloud; the store may have to go through a proxy, strangers do not."""
    straight = _endpoint(server)
    if name == "gcs":
        bucket = GcsBucket(f"gs://gcp?endpoint={straight}")
        bucket.create()
        buckets["gcp"] = bucket
        # What it serves to browsers it serves under its own address only.
        options = f"endpoint={reached or straight}&public={straight}&project=drill"
        settings["STORE_REPLICA_GCP"] = f"gs://gcp?{options}"
        return
    for label, setting in (("aws", "STORE_REPLICA_AWS"), ("areas", "STORE_AREAS_URL")):
        made = S3Bucket(f"s3://{label}?endpoint={straight}", server.environ)
        made.create()
        buckets[label] = made
        settings[setting] = f"s3://{label}?endpoint={reached or straight}&region=us-east-1"


def _hands(started: Mapping[str, Running]) -> dict[str, Hand]:
    hands: dict[str, Hand] = {}
    if "redis" in started:
        hands["queue restarted"] = lambda: _kill_and_restart(started["redis"])
    if "postgres" in started:
        hands["catalog restarted"] = started["postgres"].restart
        hands["catalog killed"] = lambda: _kill_and_restart(started["postgres"])
    if "opensearch" in started:
        hands["index deleted"] = lambda: _delete_index(started["opensearch"].url)
    return hands


def _kill_and_restart(server: Running) -> None:
    os.kill(server.pid, signal.SIGKILL)
    server.restart()


def _delete_index(url: str) -> None:
    """Every index of the store, once it holds something: an empty one would be no loss."""
    deadline = time.monotonic() + FILLING_S
    with httpx.Client(base_url=url, timeout=30.0, trust_env=False) as client:
        while not (full := _full(client)) and time.monotonic() < deadline:
            time.sleep(0.2)
        for name in full:
            client.delete(f"/{name}").raise_for_status()


def _full(client: httpx.Client) -> list[str]:
    found = client.get("/_cat/indices?format=json").json()
    ours = [index for index in found if index["index"].startswith(PREFIX)]
    some = any(int(index["docs.count"] or 0) > 0 for index in ours)
    return [index["index"] for index in ours] if some else []


def flush(redis_url: str) -> None:
    """Empty the queue's server."""
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()


@contextmanager
def opened(store: LocalStore, stand: Stand) -> Iterator[Stores]:
    """The store's own stores, opened beside it."""
    given = {key: text for key, text in stand.settings.items() if key.startswith("STORE_")}
    settings = config.load_settings({**given, "STORE_HOME": str(store.home)})
    secret = commands.read_secret_key(settings)
    stores = connect(replace(settings, secret_key=secret), notices=MemoryPubSub())
    try:
        yield stores
    finally:
        stores.catalog.close()
