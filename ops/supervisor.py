"""Runs every process of the Procfile on one machine: starts, restarts, and stops them all.

The queue starts first and ends last. Each process is a group of its own and dies with us even when
we are killed, so a crash leaves no orphan; what was acknowledged is in the catalog.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from config import Settings
from ops import home as homes
from ops import ports, queue_server, tokens
from ops.child import Child, Say, start
from ops.procfile import ProcessLine

FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 10.0
STEADY_S = 5.0
"""Who ran this long before it died is restarted at once again."""

GRACE_S = 10.0
"""How long a process may take to end before it is killed."""

MIGRATE = (sys.executable, "-m", "ops", "migrate")
QUEUE_START_S = 15.0
PROBE_EVERY_S = 0.2


class StartFailed(Exception):
    """The store cannot start; the text says why."""


@dataclass
class Member:
    """One line of the Procfile and the process that stands for it now."""

    line: ProcessLine
    child: Child | None = None
    starts: int = 0


@dataclass
class Supervisor:
    """One run of a store; `say` gets every line that is printed, by us or by a process."""

    settings: Settings
    lines: tuple[ProcessLine, ...]
    environ: Mapping[str, str]
    say: Say
    prepare: tuple[str, ...] = MIGRATE
    grace_s: float = GRACE_S
    _members: dict[str, Member] = field(default_factory=dict)
    _keepers: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _opened: ExitStack = field(default_factory=ExitStack)

    async def run(self) -> None:
        """Until SIGINT, SIGTERM or SIGHUP; StartFailed when it cannot begin."""
        self._listen()
        try:
            await self._start_queue()
            await self._migrate()
            for line in self.lines:
                self._keep(line)
            await self._announce()
            await self._stopping.wait()
        finally:
            await self._stop()

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._asked_to_stop, number)

    def _asked_to_stop(self, number: signal.Signals) -> None:
        if self._stopping.is_set():
            self._tell_all(signal.SIGKILL)
            return
        self._stopping.set()
        self.say("store", f"stopping ({number.name}); again to kill")

    # Starting ------------------------------------------------------------------------------

    async def _start_queue(self) -> None:
        """Serve a queue of our own unless the operator named one."""
        if "STORE_REDIS_URL" in self.environ:
            return
        queue = self._opened.enter_context(queue_server.private(self.settings.home))
        self.environ = {**self.environ, "STORE_REDIS_URL": queue.url}
        self._keep(queue.line(path=self.environ["PATH"]))
        if not await self._until(QUEUE_START_S, queue.listens):
            raise StartFailed("the queue did not start")

    async def _migrate(self) -> None:
        """Before anything else; an engine that is away, as after a power cut, is waited for."""
        delay_s, last = FIRST_DELAY_S, ""

        def hear(name: str, line: str) -> None:
            nonlocal last
            last = line
            self.say(name, line)

        while not self._stopping.is_set():
            last = ""
            child = await start("migrate", self.prepare, self.environ, hear)
            code = await child.wait()
            if code == 0:
                return
            if code != os.EX_TEMPFAIL:
                cause = last.removeprefix("Error: ") or f"exit code {code}"
                raise StartFailed(f"the catalog could not be migrated: {cause}")
            delay_s = min(delay_s * 2, LONGEST_DELAY_S)
            await self._pause(delay_s)

    def _keep(self, line: ProcessLine) -> None:
        self._members[line.name] = Member(line)
        self._keepers[line.name] = asyncio.create_task(self._keep_running(line.name))

    async def _keep_running(self, name: str) -> None:
        """Start it, wait for its end, start it again: at once at first, then with longer pauses."""
        member, delay_s = self._members[name], FIRST_DELAY_S
        while not self._stopping.is_set():
            began = time.monotonic()
            code = await self._run_once(member)
            if self._stopping.is_set():
                return
            delay_s = next_delay_s(delay_s, lived_s=time.monotonic() - began)
            self.say("store", f"{name} ended ({_reason(code)}), again in {delay_s:.1f} s")
            await self._pause(delay_s)

    async def _run_once(self, member: Member) -> int:
        name, command = member.line.name, member.line.command
        child = member.child = await start(name, command, self.environ, self.say)
        member.starts += 1
        self._note()
        # Asked to stop while it was starting: it has not been told yet.
        if self._stopping.is_set():
            child.signal(signal.SIGTERM)
        code = await child.wait()
        member.child = None
        return code

    async def _announce(self) -> None:
        """Say that the store is ready once both services answer."""
        began = time.monotonic()
        while not self._stopping.is_set():
            if await _healthy(self.settings):
                break
            await self._pause(PROBE_EVERY_S)
        else:
            return
        token = tokens.keep_administrators(self.settings)
        address = {
            "api": self.settings.external_url or self.settings.internal_url,
            "auth": self.settings.auth_url,
        }
        homes.write(self.settings.home, homes.READY, {**address, "pid": os.getpid()})
        self.say(
            "store",
            f"ready in {time.monotonic() - began:.1f} s: API {address['api']},"
            f" authorization {address['auth']}, administrator's token in {token}",
        )

    # Watching ------------------------------------------------------------------------------

    def _note(self) -> None:
        """Who runs now, for operators and drills."""
        running = {
            name: {"pid": member.child.pid, "starts": member.starts}
            for name, member in self._members.items()
            if member.child is not None
        }
        homes.write(
            self.settings.home,
            homes.PROCESSES,
            {
                "supervisor": os.getpid(),
                "redis_url": self.environ["STORE_REDIS_URL"],
                "processes": running,
            },
        )

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _until(self, limit_s: float, holds: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + limit_s
        while not holds():
            if time.monotonic() > deadline or self._stopping.is_set():
                return False
            await asyncio.sleep(0.02)
        return True

    # Stopping ------------------------------------------------------------------------------

    async def _stop(self) -> None:
        """End everything in bounded time; the queue last, since the others speak to it."""
        self._stopping.set()
        homes.remove(self.settings.home, homes.READY)
        others = [name for name in self._keepers if name != queue_server.NAME]
        await self._end(others)
        await self._end([name for name in self._keepers if name == queue_server.NAME])
        homes.remove(self.settings.home, homes.PROCESSES)
        self._opened.close()
        self.say("store", "stopped")

    async def _end(self, names: list[str]) -> None:
        for number, limit_s in ((signal.SIGTERM, self.grace_s), (signal.SIGKILL, None)):
            waiting = [self._keepers[name] for name in names if not self._keepers[name].done()]
            if not waiting:
                return
            self._tell(names, number)
            await asyncio.wait(waiting, timeout=limit_s)

    def _tell(self, names: list[str], number: signal.Signals) -> None:
        for name in names:
            child = self._members[name].child
            if child is not None:
                child.signal(number)

    def _tell_all(self, number: signal.Signals) -> None:
        self._tell(list(self._members), number)


def next_delay_s(before_s: float, *, lived_s: float) -> float:
    """The pause before what died is started again, by the one before it and how long it lived."""
    return FIRST_DELAY_S if lived_s >= STEADY_S else min(before_s * 2, LONGEST_DELAY_S)


def _reason(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


async def _healthy(settings: Settings) -> bool:
    """Both services answer, and the API finds every part in order."""
    addresses = (
        f"{settings.internal_url}/health",
        f"http://{settings.host}:{settings.port + 1}/.well-known/jwks.json",
    )
    async with httpx.AsyncClient(trust_env=False, timeout=2.0) as client:
        try:
            return all([(await client.get(url)).status_code == 200 for url in addresses])
        except httpx.HTTPError:
            return False


def environment(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """What every process gets: our own environment, with the home spelled out."""
    programs = str(Path(sys.executable).parent)
    return {
        **environ,
        "PATH": os.pathsep.join((programs, environ.get("PATH", os.defpath))),
        "PYTHONUNBUFFERED": "1",
        "STORE_HOME": str(settings.home.absolute()),
        "STORE_PORT": str(settings.port),
        "STORE_SECRET_KEY": tokens.secret_key(settings),
    }


def run(
    settings: Settings,
    lines: tuple[ProcessLine, ...],
    *,
    environ: Mapping[str, str],
    say: Say,
    prepare: tuple[str, ...] = MIGRATE,
    grace_s: float = GRACE_S,
) -> None:
    """Run the store until it is told to stop; StartFailed, Taken, Exposed or PortTaken if not."""
    with homes.locked(settings.home):
        ports.require(settings.host, settings.port)
        # Left by one that was killed: it must not speak for us.
        for name in (homes.READY, homes.PROCESSES):
            homes.remove(settings.home, name)
        given = environment(settings, environ)
        supervisor = Supervisor(settings, lines, given, say, prepare, grace_s)
        asyncio.run(supervisor.run())
