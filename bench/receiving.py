"""A receiver of webhooks that accepts everything, in a separate process."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web


@contextmanager
def receiver(latency_s: float) -> Iterator[str]:
    """The URL of a receiver that accepts everything, in a separate process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.receiving", str(latency_s)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


async def _receive(latency_s: float) -> None:
    async def take(request: web.Request) -> web.Response:
        await request.read()
        if latency_s:
            await asyncio.sleep(latency_s)
        return web.Response()

    application = web.Application()
    application.router.add_post("/{receiver}", take)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=512).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(_receive(float(sys.argv[1])))
