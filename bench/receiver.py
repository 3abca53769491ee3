"""A receiver of webhooks that accepts everything, in a separate process."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web


@contextmanager
def receiver(latency_ms: int) -> Iterator[str]:
    """A receiver that takes everything, in a separate process; its URL."""
    command = [sys.executable, "-m", "bench.receiver", str(latency_ms)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


async def _receive(latency_s: float) -> None:
    async def accept(request: web.Request) -> web.Response:
        await request.read()
        if latency_s:
            await asyncio.sleep(latency_s)
        return web.Response()

    application = web.Application()
    application.router.add_post("/{receiver}", accept)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=512).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_receive(float(sys.argv[1]) / 1000))
