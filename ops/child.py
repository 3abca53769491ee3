"""One supervised process: started on a leash, in a group of its own, its lines passed on."""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress

from ops.leash import leashed
from ops.procfile import ROOT

Say = Callable[[str, str], None]
"""Told who speaks and one line."""

CHUNK = 65_536
DRAIN_S = 1.0


class Child:
    """A running process and everything that it starts."""

    def __init__(
        self, process: asyncio.subprocess.Process, following: "asyncio.Task[None]"
    ) -> None:
        self.pid = process.pid
        self._process = process
        self._following = following

    async def wait(self) -> int:
        """Its exit code, once nothing of its group is left."""
        code = await self._process.wait()
        # What a killed process leaves behind would hold its port.
        self.signal(signal.SIGKILL)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._following, DRAIN_S)
        return code

    def signal(self, number: signal.Signals) -> None:
        """Signal the whole group; no error when it is gone."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


async def start(name: str, command: tuple[str, ...], environ: Mapping[str, str], say: Say) -> Child:
    """Start a command from the checkout's root; `say` gets every line it prints."""
    receiving, sending = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *leashed(command),
            cwd=ROOT,
            env=dict(environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sending,
            stderr=sending,
            process_group=0,
        )
    finally:
        os.close(sending)
    return Child(process, asyncio.create_task(_follow(receiving, name, say)))


async def _follow(handle: int, name: str, say: Say) -> None:
    """Pass on line by line until all who hold the other end have closed it."""
    reader = asyncio.StreamReader()
    pipe = os.fdopen(handle, "rb", buffering=0)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    tail = b""
    try:
        while chunk := await reader.read(CHUNK):
            *lines, tail = (tail + chunk).split(b"\n")
            for line in lines:
                say(name, line.decode(errors="replace"))
    finally:
        if tail:
            say(name, tail.decode(errors="replace"))
        transport.close()
