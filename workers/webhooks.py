"""Sending one request from the event loop: connects to checked addresses only, follows nothing."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

from aiohttp import (
    ClientError,
    ClientOSError,
    ClientRequest,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    ServerDisconnectedError,
    TCPConnector,
)
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from yarl import URL

from pipelines.notifying.addresses import check_address, literal
from pipelines.notifying.delivery import Answer, Request

LOOKUPS = 64
"""Threads that look names up: a name server that does not answer holds one for a long time."""
NAMES_KEPT_S = 10
KEPT_ALIVE_S = 4.0
"""How long a connection is kept: less than most servers keep theirs."""
HEADER_BYTES = 16 * 1024
"""The longest line of an answer's head."""


Allowed = Callable[[], Awaitable[bool]]
"""Whether a request may still be sent."""


class Withdrawn(Exception):
    """The request is not wanted any more; none of its bytes were sent."""


class Refused(OSError):
    """An address that nothing may be sent to."""


class GuardedResolver(AbstractResolver):
    """Looks a name up and refuses it when any of its addresses is special.

    What is connected to are the very addresses that were checked, under the original name.
    """

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._threads = ThreadPoolExecutor(LOOKUPS, thread_name_prefix="lookup")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a name; OSError when there are none, or one is refused."""
        found = await asyncio.get_running_loop().run_in_executor(
            self._threads, _lookup, host, port, family
        )
        for each in found:
            self.check(each["host"])
        return found

    def check(self, host: str) -> None:
        """Refuse an address, spelled out, that is special."""
        reason = check_address(host)
        if reason and not self._allow_private:
            raise Refused(f"The name leads to a {reason} address.")

    async def close(self) -> None:
        """Look nothing up any more; what hangs is left behind."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _lookup(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    rows = socket.getaddrinfo(
        host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
    )
    return [
        ResolveResult(
            hostname=host,
            host=str(address[0]),
            port=int(address[1]),
            family=family,
            proto=proto,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
        for family, _, proto, _, address in rows
    ]


async def always() -> bool:
    """The default of `Allowed`."""
    return True


_allowed: ContextVar[Allowed] = ContextVar("allowed", default=always)
"""Whether the request of this task may still be sent."""
_connected: ContextVar[bool] = ContextVar("connected", default=False)
"""Whether it opened a connection of its own, or tried to."""


class _Connector(TCPConnector):
    """Asks whether a request is still allowed when its connection is ready; says when it connects,
    so that a kept connection found closed is told from a refusal."""

    async def connect(
        self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        try:
            # aiohttp waits for nothing else before it writes the headers.
            if not await _allowed.get()():
                raise Withdrawn
        except BaseException:
            connection.close()
            raise
        return connection

    async def _create_connection(
        self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> ResponseHandler:
        _connected.set(True)
        return await super()._create_connection(req, traces, timeout)


class Sender:
    """One session for all receivers; build it inside the event loop."""

    def __init__(self, *, timeout_s: float, allow_private: bool, body_bytes: int) -> None:
        self._body_bytes = body_bytes
        self._resolver = GuardedResolver(allow_private=allow_private)
        self._session = ClientSession(
            connector=_Connector(
                resolver=self._resolver,
                limit=0,
                ttl_dns_cache=NAMES_KEPT_S,
                keepalive_timeout=KEPT_ALIVE_S,
            ),
            timeout=ClientTimeout(total=timeout_s),
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
        )

    async def send(self, request: Request, allowed: Allowed = always) -> Answer:
        """The answer, or the reason why there is none; Withdrawn if not allowed at the last moment.

        Looking up a name and connecting may take seconds: `allowed` is asked when that is done.
        """
        _allowed.set(allowed)
        try:
            return await self._send_on_a_live_connection(request)
        except TimeoutError:
            return Answer(error="The receiver did not answer in time.")
        except (ClientError, OSError, ValueError) as error:
            return Answer(error=_told(error))

    async def _send_on_a_live_connection(self, request: Request) -> Answer:
        """Once more when a connection of before turns out to be closed by the receiver."""
        _connected.set(False)
        try:
            return await self._send(request)
        except (ServerDisconnectedError, ClientOSError):
            if _connected.get():
                raise
            return await self._send(request)

    async def _send(self, request: Request) -> Answer:
        url = URL(request.url, encoded=True)
        # The connector asks no resolver about what is an address already.
        if literal(url.raw_host or "") is not None:
            self._resolver.check(url.raw_host or "")
        async with self._session.request(
            request.method,
            url,
            data=request.body,
            headers=request.headers,
            allow_redirects=False,
        ) as response:
            body = await self._beginning(response)
            return Answer(
                status=response.status, retry_after=response.headers.get("Retry-After"), body=body
            )

    async def _beginning(self, response: ClientResponse) -> bytes:
        """The first bytes of the body; the status is the answer whatever becomes of the rest."""
        body = b""
        try:
            while len(body) < self._body_bytes:
                block = await response.content.read(self._body_bytes - len(body))
                if not block:
                    return body
                body += block
        except (ClientError, OSError):
            pass
        response.close()
        return body

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()
        await self._resolver.close()


def _told(error: BaseException) -> str:
    refused = _refused(error)
    if refused is not None:
        return str(refused)
    return f"{type(error).__name__}: {error}"[:300]


def _refused(error: BaseException | None) -> Refused | None:
    """The refusal that a library's error wraps."""
    while error is not None and not isinstance(error, Refused):
        error = error.__cause__ or error.__context__
    return error
