"""The simple way: an actor that sends one delivery by `requests`.

Run as `python -m bench.real.actor REDIS_URL WAY COUNT`, a worker process that prints how long it
took for so many messages.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import requests
from dramatiq import Actor, Worker, actor
from dramatiq.brokers.redis import RedisBroker

from pipelines.deliveries import WebhookRequest

WAYS = ("actor, a session a thread", "actor, no session")
THREADS = 8
QUEUE = "bench_callbacks"
TIMEOUT_S = 10

Send = Callable[..., requests.Response]


def run(redis_url: str, wanted: Sequence[WebhookRequest], way: str) -> float:
    """Seconds from the first to the last of these, enqueued before."""
    broker = RedisBroker(url=redis_url)  # type: ignore[no-untyped-call]
    broker.flush_all()
    post = _declared(broker, requests.request, threading.Semaphore())
    for request in wanted:
        headers = dict(request.headers)
        post.send(request.method, request.url, request.body.decode(), headers)
    with _worker(redis_url, way, len(wanted)) as process:
        assert process.stdout is not None
        return float(process.stdout.readline())


@contextmanager
def _worker(redis_url: str, way: str, count: int) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "bench.real.actor", redis_url, way, str(count)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


def _declared(
    broker: RedisBroker, send: Send, done: threading.Semaphore
) -> Actor[[str, str, str, dict[str, str]], None]:
    @actor(broker=broker, queue_name=QUEUE)
    def post(method: str, url: str, body: str, headers: dict[str, str]) -> None:
        answer = send(method, url, data=body.encode(), headers=headers, timeout=TIMEOUT_S)
        answer.raise_for_status()
        done.release()

    return post


def _sender(way: str) -> Send:
    if way == WAYS[1]:
        return requests.request
    own = threading.local()

    def send(method: str, url: str, **options: object) -> requests.Response:
        if not hasattr(own, "session"):
            own.session = requests.Session()
            own.session.trust_env = False
        return own.session.request(method, url, **options)  # type: ignore[no-any-return]

    return send


def _work(redis_url: str, way: str, count: int) -> float:
    broker, done = RedisBroker(url=redis_url), threading.Semaphore(0)  # type: ignore[no-untyped-call]
    _declared(broker, _sender(way), done)
    worker = Worker(broker, worker_threads=THREADS)
    began = time.perf_counter()
    worker.start()
    for _ in range(count):
        done.acquire()
    took = time.perf_counter() - began
    worker.stop()
    return took


if __name__ == "__main__":
    print(_work(sys.argv[1], sys.argv[2], int(sys.argv[3])), flush=True)
