"""The asynchronous client against a served store, and one that does not answer."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest

from store_client import AsyncClient, Misused, NotFound
from store_client.configuration import Configuration
from tests.client.conftest import ADMIN_TOKEN, Served
from tests.client.download.deposits import uuid_of
from tests.client.remote.conftest import Deposit
from tests.drill.fault_proxy import Mode, before

CONTENTS = {"sample.json": b"{}", **{f"f{number}": b"%d" % number for number in range(24)}}


@pytest.fixture(scope="module")
def bundle(deposit: Deposit) -> str:
    return deposit(CONTENTS)


Use = Callable[[Callable[[AsyncClient], Coroutine[Any, Any, Any]]], Any]


@pytest.fixture
def use(config: Configuration) -> Use:
    """Runs a function with a client in an event loop."""

    def run(function: Callable[[AsyncClient], Coroutine[Any, Any, Any]]) -> Any:
        async def main() -> Any:
            async with AsyncClient(config=config, token=ADMIN_TOKEN, threads=4) as client:
                return await function(client)

        return asyncio.run(asyncio.wait_for(main(), 60))

    return run


def test_calls_run_side_by_side(use: Use, bundle: str) -> None:
    async def main(client: AsyncClient) -> list[Any]:
        calls = (client.get_bundle(uuid=bundle, replica="aws") for _ in range(12))
        return await asyncio.gather(*calls)

    assert {one["bundle"]["uuid"] for one in use(main)} == {bundle}


def test_iterates_over_items_and_pages(use: Use, bundle: str) -> None:
    async def main(client: AsyncClient) -> tuple[list[str], list[int]]:
        asked: dict[str, Any] = {"uuid": bundle, "replica": "aws", "per_page": 10}
        items = [file["name"] async for file in client.get_bundle.iterate(**asked)]
        pages = [len(one["bundle"]["files"]) async for one in client.get_bundle.pages(**asked)]
        return items, pages

    items, pages = use(main)
    assert sorted(items) == sorted(CONTENTS)
    assert pages == [10, 10, 5]


def test_iteration_may_end_early(use: Use, bundle: str) -> None:
    async def main(client: AsyncClient) -> str:
        async for file in client.get_bundle.iterate(uuid=bundle, replica="aws", per_page=10):
            return str(file["name"])
        raise AssertionError

    assert use(main) in CONTENTS


def test_errors_are_those_of_the_client(use: Use) -> None:
    async def main(client: AsyncClient) -> None:
        with pytest.raises(NotFound):
            await client.get_bundle(uuid=uuid_of(99), replica="aws")
        with pytest.raises(Misused, match="azure"):
            await client.get_bundle(uuid=uuid_of(99), replica="azure")
        with pytest.raises(Misused, match="get_bundle"):
            await client.get_bundel(uuid=uuid_of(99), replica="aws")
        with pytest.raises(Misused, match="no pages"):
            await anext(client.get_file.iterate(uuid=uuid_of(99), replica="aws"))
        with pytest.raises(AttributeError):
            client._no_operation  # noqa: B018

    use(main)


def test_transfers_are_awaited(use: Use, tmp_path: Path) -> None:
    (tmp_path / "sample").mkdir()
    (tmp_path / "sample" / "a.json").write_text(json.dumps({"kind": "async0"}))

    async def main(client: AsyncClient) -> Any:
        made = await client.upload(tmp_path / "sample")
        return await client.download(made.bundle_uuid, tmp_path / "here", cache=tmp_path / "cache")

    report = use(main)
    assert (Path(report.directory) / "a.json").read_text() == '{"kind": "async0"}'


def test_search_frames_are_awaited(use: Use, bundle: str) -> None:
    async def main(client: AsyncClient) -> Any:
        return await client.search_frame({"match_all": {}}, limit=3)

    assert list(use(main).columns) == ["uuid", "version"]


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_cancelled_call_returns_at_once(silent: str, tmp_path: Path) -> None:
    config = Configuration(tmp_path, tmp_path / "cache", silent)

    async def main() -> float:
        async with AsyncClient(config=config, token=ADMIN_TOKEN) as client:
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.get_health(), 0.2)
            return time.monotonic() - began

    assert asyncio.run(main()) < 10


def test_cancelled_call_has_its_thread_until_it_ends(silent: str, tmp_path: Path) -> None:
    config = Configuration(tmp_path, tmp_path / "cache", silent)
    begun, ended = threading.Semaphore(0), threading.Event()

    def work() -> bool:
        begun.release()
        return ended.wait(60)

    async def main() -> None:
        async with AsyncClient(config=config, token=ADMIN_TOKEN, threads=2) as client:
            first = [asyncio.create_task(client.run(work)) for _ in range(2)]
            for _ in first:
                assert await asyncio.to_thread(begun.acquire, timeout=60)
            for one in first:
                one.cancel()
            await asyncio.wait(first)
            dropped = asyncio.create_task(client.run(work))
            next_one = asyncio.create_task(client.run(work))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(dropped, 0.2)
            assert not begun.acquire(blocking=False)
            ended.set()
            assert await next_one
            # The one that was cancelled before it began never does.
            assert begun.acquire(blocking=False)
            assert not begun.acquire(blocking=False)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_closing_ends_calls_that_wait_for_an_answer(tmp_path: Path) -> None:
    """A program would otherwise wait for the time-out of the request when it ends."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        config = Configuration(tmp_path, tmp_path / "cache", url)

        async def main() -> None:
            async with AsyncClient(config=config, token=ADMIN_TOKEN) as client:
                call = asyncio.create_task(client.get_health())
                connection, _ = await asyncio.to_thread(server.accept)
                with connection:
                    assert await asyncio.to_thread(connection.recv, 1)
                    call.cancel()
                    await asyncio.wait([call])
                    client.close()
                    for thread in threading.enumerate():
                        if thread.name.startswith("store_"):
                            thread.join(30)
                            assert not thread.is_alive()
            with pytest.raises(Misused, match="closed"):
                await client.get_health()

        asyncio.run(asyncio.wait_for(main(), 80))


@pytest.mark.parametrize("more", [{}, {"stop": None}])
def test_cancelled_download_stops_and_resumes(
    store: Served, deposit: Deposit, config: Configuration, tmp_path: Path, more: dict[str, None]
) -> None:
    reads = Random(4).randbytes(2_000_000)
    bundle = deposit({f"reads{number}": reads[number:] for number in range(8)})
    where = urlsplit(store.url)
    with before(str(where.hostname), int(where.port or 0), Random(1)) as proxy:
        slow = replace(config, url=f"http://127.0.0.1:{proxy.port}")

        async def main() -> Any:
            async with AsyncClient(config=slow, token=ADMIN_TOKEN) as client:
                places = {"directory": tmp_path / "here", "cache": tmp_path / "cache", "jobs": 1}
                proxy.only, proxy.mode = b"GET /v1/objects/", Mode.SLOW
                going = asyncio.create_task(client.download(bundle, **places, **more))
                while not proxy.harmed[Mode.SLOW]:
                    await asyncio.sleep(0.02)
                going.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await going
                proxy.mode = Mode.PASS
                return await client.download(bundle, **places)

        report = asyncio.run(asyncio.wait_for(main(), 60))
    for number in range(8):
        assert (Path(report.directory) / f"reads{number}").read_bytes() == reads[number:]
    asked = [line for line in proxy.asked if line.startswith(b"GET /v1/objects/")]
    # The first one began one of them only; had it gone on, all would have come twice.
    assert len(asked) <= 10
