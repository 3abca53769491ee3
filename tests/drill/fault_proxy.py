"""A TCP proxy that injects network and cloud failures.

It knows no more of HTTP than how to say 503: what passes is bytes.
"""

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from random import Random

BLOCK = 65_536
SLOW_S = (0.2, 1.5)
"""How much later whatever is asked arrives, while it is slow …"""
SLOW_BYTES = 400_000
"""… and how many bytes of an answer pass in a second."""
CUT = 0.25
"""Share of blocks of answers that end in the middle, and their connection with them."""
FLIPPED = 0.1
"""Share of blocks of answers in which one bit is another."""
LINGER_S = 2.0
CLOSING_S = 0.01
"""Until sockets that are opening are open, and those that are closing closed."""

_REQUEST = re.compile(rb"(?:GET|HEAD|PUT|POST|PATCH|DELETE|OPTIONS) \S+ HTTP/1")
HEAD_ENDS = b"\r\n\r\n"
UNAVAILABLE = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 9\r\nConnection: close\r\n\r\nslow down"
)


class Mode(StrEnum):
    """What it does to what passes."""

    PASS = "pass"
    REFUSE = "503"
    SLOW = "slow"
    TRUNCATE = "truncate"
    RESET = "reset"
    FLIP = "flip"


class Proxy:
    """Listens on loopback for one server. Set `mode` at any time, it holds for the next block, or
    `target`, which holds for the next connection. With `only` those connections alone are harmed
    whose latest request begins so. `asked` has the first line of every request. `slow_s` are the
    bounds of the delay of a request while it is slow, seconds."""

    def __init__(self, host: str, port: int, rng: Random) -> None:
        self.mode = Mode.PASS
        self.only = b""
        self.slow_s = SLOW_S
        self.asked: list[bytes] = []
        self.harmed: dict[Mode, int] = dict.fromkeys(Mode, 0)
        self.port = 0
        self.target, self._rng = (host, port), rng
        self._listening, self._over = threading.Event(), asyncio.Event()
        self._passing: set[asyncio.Future[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="faults", daemon=True)

    def start(self) -> None:
        """Listen; `port` is known when back."""
        self._thread.start()
        self._listening.wait()

    def close(self) -> None:
        """End every connection."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _run(self) -> None:
        self._loop.run_until_complete(self._until_over())
        self._loop.close()

    async def _until_over(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._listening.set()
        await self._over.wait()
        await asyncio.sleep(CLOSING_S)  # asyncio forgets sockets that it accepts while it closes
        server.close()
        while rest := asyncio.all_tasks() - {asyncio.current_task()}:
            while self._passing:
                self._passing.pop().cancel()
            await asyncio.wait(rest, timeout=0.1)
            await asyncio.sleep(CLOSING_S)

    async def _serve(self, asks: asyncio.StreamReader, hears: asyncio.StreamWriter) -> None:
        passing = asyncio.ensure_future(self._pass(asks, hears))
        self._passing.add(passing)

        def ended(task: asyncio.Future[None]) -> None:
            self._passing.discard(task)
            if task.cancelled():  # perhaps before it began
                hears.transport.abort()

        passing.add_done_callback(ended)

    async def _pass(self, asks: asyncio.StreamReader, hears: asyncio.StreamWriter) -> None:
        """Pass on what is said on one connection, until an end of it closes."""
        connecting = asyncio.ensure_future(asyncio.open_connection(*self.target))
        try:
            answers, told = await asyncio.shield(connecting)
        except OSError:
            hears.transport.abort()
            return
        except asyncio.CancelledError:  # a cancelled connect would leave its socket open
            with suppress(OSError):
                (await connecting)[1].transport.abort()
            raise
        asked = _Asked()
        both = [
            asyncio.ensure_future(self._asking(asks, told, hears, asked)),
            asyncio.ensure_future(self._answering(answers, hears, asked)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:  # closed before anything is awaited, as a cancellation may come then
            for task in both:
                task.cancel()
            told.transport.abort()
            hears.close()
            await asyncio.gather(*both, return_exceptions=True)

    def _does(self, asked: "_Asked") -> Mode:
        """What becomes of the next block of this connection."""
        return self.mode if asked.latest.startswith(self.only) else Mode.PASS

    async def _asking(
        self,
        asks: asyncio.StreamReader,
        told: asyncio.StreamWriter,
        hears: asyncio.StreamWriter,
        asked: "_Asked",
    ) -> None:
        while block := await asks.read(BLOCK):
            if _REQUEST.match(block):  # what is the middle of a body begins with no verb
                asked.latest = block.partition(b"\r\n")[0]
                self.asked.append(asked.latest)
            mode = self._does(asked)
            self.harmed[mode] += 1
            if mode is Mode.REFUSE:
                await self._refuse(asks, hears)
                return
            if mode is Mode.RESET:
                hears.transport.abort()
                return
            if mode is Mode.SLOW:
                await asyncio.sleep(self._rng.uniform(*self.slow_s))
            told.write(block)
            await told.drain()

    async def _refuse(self, asks: asyncio.StreamReader, hears: asyncio.StreamWriter) -> None:
        """Say so, and let it be read: a close before the end of a request would be a reset."""
        hears.write(UNAVAILABLE)
        hears.write_eof()
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while await asks.read(BLOCK):
                    pass

    async def _answering(
        self, answers: asyncio.StreamReader, hears: asyncio.StreamWriter, asked: "_Asked"
    ) -> None:
        while block := await answers.read(BLOCK):
            mode = self._does(asked)
            if mode is Mode.TRUNCATE and self._rng.random() < CUT:
                hears.write(block[: self._rng.randint(_head(block), len(block) - 1)])
                await hears.drain()
                return
            if mode is Mode.SLOW:
                await asyncio.sleep(len(block) / SLOW_BYTES)
            if mode is Mode.FLIP and self._rng.random() < FLIPPED:
                block = _flipped(block, self._rng)
            hears.write(block)
            await hears.drain()


@dataclass
class _Asked:
    """The first line of the latest request on a connection."""

    latest: bytes = b""


def _flipped(block: bytes, rng: Random) -> bytes:
    """One bit is another, behind the headers if there are any."""
    at = rng.randrange(_head(block), len(block))
    return block[:at] + bytes([block[at] ^ 1 << rng.randrange(8)]) + block[at + 1 :]


def _head(block: bytes) -> int:
    """Where it may be cut: an answer that lacks headers cannot be told from a short one."""
    return min(block.find(HEAD_ENDS) + len(HEAD_ENDS), len(block) - 1)


@contextmanager
def before(host: str, port: int, rng: Random) -> Iterator[Proxy]:
    """A proxy before this server until the block is left."""
    proxy = Proxy(host, port, rng)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.close()
