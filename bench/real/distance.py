"""A server of S3 that is some milliseconds away: a relay that holds back what passes through it.

Run as `python -m bench.real.distance HOST PORT MILLISECONDS`.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from bench.real import engines

CHUNK = 256 * 1024


@contextmanager
def away(milliseconds: int) -> Iterator[None]:
    """In the block the engine S3 is so far away, for a request and its answer together."""
    near, before = urlsplit(engines.endpoint("s3")), engines.url("s3")
    command = [sys.executable, "-m", "bench.real.distance"]
    where = [str(near.hostname), str(near.port), str(milliseconds)]
    process = subprocess.Popen([*command, *where], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        far = process.stdout.readline().strip()
        os.environ[engines.VARIABLES["s3"]] = before.replace(near.geturl(), far)
        yield
    finally:
        os.environ[engines.VARIABLES["s3"]] = before
        process.terminate()
        process.wait()
        process.stdout.close()


async def _relay(host: str, port: int, delay_s: float) -> None:
    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(host, port)
        await asyncio.gather(
            _pass_on(reader, far_writer, delay_s), _pass_on(far_reader, writer, delay_s)
        )

    server = await asyncio.start_server(meet, "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float
) -> None:
    """Everything, in order, each piece so much later: a long line, not a slow one."""
    loop, last = asyncio.get_running_loop(), 0.0
    with suppress(ConnectionError):
        while data := await reader.read(CHUNK):
            last = loop.time() + delay_s
            loop.call_at(last, writer.write, data)
            await writer.drain()
    loop.call_at(max(last, loop.time()) + 0.001, writer.close)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(_relay(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) / 2000))
