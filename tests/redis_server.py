"""A real Redis server of one test, which can be killed, paused or filled."""

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from fakeredis import TcpFakeServer

from ops import ports
from tests.waiting import until

PROGRAM = shutil.which("redis-server")
needed = pytest.mark.skipif(PROGRAM is None, reason="redis-server is not installed")


class RedisServer:
    """One server that keeps nothing; `options` are its own, `link` its URL around the address."""

    def __init__(
        self,
        folder: Path,
        options: Mapping[str, str] | None = None,
        *,
        link: str = "redis://{}/0",
        tls: bool = False,
    ) -> None:
        self.port = ports.find_free_port()
        self.url = link.format(f"127.0.0.1:{self.port}")
        kept = {"--save": "", "--appendonly": "no", "--loglevel": "warning"}
        doors = {"--port": "0" if tls else str(self.port)}
        doors |= {"--tls-port": str(self.port)} if tls else {}
        asked = {"--bind": "127.0.0.1", **doors, **kept, **(options or {})}
        self._command = [PROGRAM or "", *(word for option in asked.items() for word in option)]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin, empty; ready when back."""
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until(self._answers)

    def kill(self) -> None:
        """End without a word to anybody."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Die and come back empty."""
        self.kill()
        self.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It accepts connections and answers nobody."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)

    @contextmanager
    def client(self) -> Iterator[redis.Redis]:
        """A connection of the test's own."""
        with redis.Redis.from_url(self.url) as client:
            yield client

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


@contextmanager
def serving(
    folder: Path,
    options: Mapping[str, str] | None = None,
    *,
    link: str = "redis://{}/0",
    tls: bool = False,
) -> Iterator[RedisServer]:
    """A started server until the block is left."""
    server = RedisServer(folder, options, link=link, tls=tls)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def fake(port: int = 0) -> Iterator[int]:
    """A server in memory, for tests of what any Redis does; yields its port."""
    server = TcpFakeServer(("127.0.0.1", port))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
