"""The client for asynchronous programs: the same operations, awaited.

    async with AsyncClient("https://store.example") as store:
        async for hit in store.post_search.iterate(replica="aws", es_query=query):
            bundle = await store.get_bundle(uuid=..., replica="aws")

Each call runs in a thread, of which there are at most so many at once. A call that is cancelled
returns at once; its request ends by itself, and has its thread until then, without further retries
once the client is closed. A transfer that is cancelled stops at its next block, and resumes when it
is called again.
"""

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from store_client import frames, library
from store_client.auth.tokens import open_tokens
from store_client.client import Client
from store_client.configuration import Configuration, load_configuration
from store_client.errors import Misused
from store_client.http.session import HttpSession
from store_client.transfer.engine import StopSignal

if TYPE_CHECKING:
    from store_client.definition.operations import AsyncOperations
else:
    AsyncOperations = object

THREADS = 16
"""Calls at once."""

P = ParamSpec("P")
R = TypeVar("R")
_END = object()


class AsyncOperationMethod:
    """An operation as an awaitable method of one client."""

    def __init__(self, client: "AsyncClient", name: str) -> None:
        self._client = client
        self.__name__ = self.__qualname__ = name

    async def __call__(self, **arguments: Any) -> Any:
        return await self._client.call(self.__name__, **arguments)

    def iterate(self, **arguments: Any) -> AsyncIterator[Any]:
        """Iterate over the items of all pages."""
        return self._client.items(self.__name__, **arguments)

    def pages(self, **arguments: Any) -> AsyncIterator[Any]:
        """Iterate over the bodies of all pages."""
        return self._client.pages(self.__name__, **arguments)


def _make_awaitable(
    function: Callable[P, R], *, stoppable: bool = False
) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, R]]:
    """A method that calls a function of the library with the client, in a thread."""

    @wraps(function)
    async def method(self: "AsyncClient", /, *args: P.args, **options: P.kwargs) -> R:
        stop = threading.Event()
        given: dict[str, Any] = {"client": self.client, **options}
        if stoppable and given.get("stop") is None:
            given["stop"] = stop
        try:
            return await self.run(partial(function, *args, **given))
        except asyncio.CancelledError:
            given.get("stop", stop).set()
            raise

    return method


class AsyncClient(AsyncOperations):
    """A client of one store for asynchronous programs; arguments as those of `Client`."""

    def __init__(
        self,
        url: str | None = None,
        *,
        profile: str | None = None,
        token: str | None = None,
        config: Configuration | None = None,
        threads: int = THREADS,
    ) -> None:
        config = config if config is not None else load_configuration(url, profile)
        self._closed = threading.Event()
        session = HttpSession(
            config.url,
            tokens=open_tokens(config, given=token),
            sleep=StopSignal(self._closed).pause,
        )
        self.client = Client(config=config, session=session)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="store")

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"AsyncClient({self.client.config.url!r})"

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.client.__dir__()})

    def __getattr__(self, name: str) -> AsyncOperationMethod:
        # Whether the store has the operation is looked up when it is called, in a thread.
        if name.startswith("_"):
            raise AttributeError(name)
        return AsyncOperationMethod(self, name)

    download = _make_awaitable(library.download, stoppable=True)
    upload = _make_awaitable(library.upload, stoppable=True)
    search_frame = _make_awaitable(frames.search_frame)

    async def call(self, name: str, /, **arguments: Any) -> Any:
        """Call an operation, as `Client.call`."""
        return await self.run(partial(self.client.call, name, **arguments))

    async def pages(self, name: str, /, **arguments: Any) -> AsyncIterator[Any]:
        """Iterate over the bodies of all pages."""
        found = await self.run(partial(self.client.pages, name, **arguments))
        while (page := await self.run(partial(next, found, _END))) is not _END:
            yield page

    async def items(self, name: str, /, **arguments: Any) -> AsyncIterator[Any]:
        """Iterate over the items of all pages; Misused for an operation without pages."""
        found = await self.run(partial(self.client.item_pages, name, **arguments))
        while (page := await self.run(partial(next, found, _END))) is not _END:
            for item in page:
                yield item

    async def run(self, function: Callable[[], R]) -> R:
        """Call a function in one of the client's threads; Misused when the client is closed."""
        if self._closed.is_set():
            raise Misused("the client is closed")
        # Unlike a limiter of the loop, an executor counts calls that nothing waits for any more.
        bound = partial(contextvars.copy_context().run, function)
        return await asyncio.get_running_loop().run_in_executor(self._threads, bound)

    def close(self) -> None:
        """Close all connections, and retry nothing any more."""
        self._closed.set()
        self._threads.shutdown(wait=False)
        self.client.close()
