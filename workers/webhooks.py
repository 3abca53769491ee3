"""Asynchronous webhook client with an SSRF guard at connect time; follows no redirects."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import replace

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

from pipelines.deliveries import WebhookRequest, WebhookResponse
from pipelines.ssrf_guard import CACHE_SIZE, check_address_text, parse_ip_literal

LOOKUP_THREADS = 64
"""Threads for DNS lookups: a server that does not answer blocks one for long."""
DNS_CACHE_S = 10
KEEPALIVE_S = 4.0
"""Idle time of a connection, shorter than most servers allow."""
MAX_HEADER_LINE_BYTES = 16 * 1024
"""Longest header line of a response."""


SendPermission = Callable[[], Awaitable[bool]]
"""Returns whether a request may still be sent."""


class DeliveryWithdrawn(Exception):
    """The request must not be sent any more; none of its bytes were."""


class AddressRefused(OSError):
    """The SSRF guard rejects this address."""


class GuardedResolver(AbstractResolver):
    """Resolves a name and rejects it if any of its addresses is special.

    Connections use exactly the addresses that were checked, under the original name.
    """

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._threads = ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix="lookup")
        self._addresses: dict[str, str] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a name; OSError if there are none, or one is rejected."""
        addresses = await asyncio.get_running_loop().run_in_executor(
            self._threads, _look_up_addresses, host, port, family
        )
        if len(self._addresses) >= CACHE_SIZE:
            self._addresses.clear()
        self._addresses[host] = addresses[0]["host"]
        for address in addresses:
            self.check_host(address["host"])
        return addresses

    def classify_host(self, host: str) -> str:
        """Return the class of an address, or of a name's latest: public, private or loopback."""
        address = host if parse_ip_literal(host) is not None else self._addresses.get(host)
        if address is None:
            return "unknown"
        reason = check_address_text(address)
        return "public" if reason is None else "loopback" if reason == "loopback" else "private"

    def check_host(self, host: str) -> None:
        """Raise AddressRefused for a special IP address."""
        reason = check_address_text(host)
        if reason and not self._allow_private:
            raise AddressRefused(f"The name resolves to a {reason} address, which is not allowed.")

    async def close(self) -> None:
        """Stop resolving; lookups that hang are abandoned."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up_addresses(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
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


async def allow_always() -> bool:
    """Allow the request; the default."""
    return True


_send_permission: ContextVar[SendPermission] = ContextVar("send_permission", default=allow_always)
"""Returns whether the request of this task may still be sent."""
_opened_connection: ContextVar[bool] = ContextVar("opened_connection", default=False)
"""Whether this task opened a new connection, or tried to."""


class _GuardedConnector(TCPConnector):
    """Asks for permission once the connection is ready, and notes new connections.

    The note distinguishes a closed kept connection from a refused one.
    """

    async def connect(
        self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        try:
            # aiohttp waits for nothing else before it writes the headers.
            if not await _send_permission.get()():
                raise DeliveryWithdrawn
        except BaseException:
            connection.close()
            raise
        return connection

    async def _create_connection(
        self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> ResponseHandler:
        _opened_connection.set(True)
        return await super()._create_connection(req, traces, timeout)


class WebhookSender:
    """One session for all receivers; build it inside the event loop."""

    def __init__(self, *, timeout_s: float, allow_private: bool, body_bytes: int) -> None:
        self._body_bytes = body_bytes
        self._resolver = GuardedResolver(allow_private=allow_private)
        self._session = ClientSession(
            connector=_GuardedConnector(
                resolver=self._resolver,
                limit=0,
                ttl_dns_cache=DNS_CACHE_S,
                keepalive_timeout=KEEPALIVE_S,
            ),
            timeout=ClientTimeout(total=timeout_s),
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            max_line_size=MAX_HEADER_LINE_BYTES,
            max_field_size=MAX_HEADER_LINE_BYTES,
        )

    async def send(
        self, request: WebhookRequest, allowed: SendPermission = allow_always
    ) -> WebhookResponse:
        """Return the response or the error; DeliveryWithdrawn if refused at the last moment.

        `allowed` is called after DNS and connecting, which may take seconds.
        """
        _send_permission.set(allowed)
        try:
            response = await self._send_with_reconnect(request)
        except TimeoutError:
            detail = "The receiver did not answer in time."
            response = WebhookResponse(error=detail, failure="timeout")
        except (ClientError, OSError, ValueError) as error:
            response = _describe_error(error)
        host = URL(request.url, encoded=True).raw_host or ""
        return replace(response, endpoint=self._resolver.classify_host(host))

    async def _send_with_reconnect(self, request: WebhookRequest) -> WebhookResponse:
        """Retry once if the receiver had closed a kept connection."""
        _opened_connection.set(False)
        try:
            return await self._send(request)
        except (ServerDisconnectedError, ClientOSError):
            if _opened_connection.get():
                raise
            return await self._send(request)

    async def _send(self, request: WebhookRequest) -> WebhookResponse:
        url = URL(request.url, encoded=True)
        # The connector does not resolve IP literals.
        if parse_ip_literal(url.raw_host or "") is not None:
            self._resolver.check_host(url.raw_host or "")
        async with self._session.request(
            request.method,
            url,
            data=request.body,
            headers=request.headers,
            allow_redirects=False,
        ) as response:
            body = await self._read_prefix(response)
            return WebhookResponse(
                status=response.status, retry_after=response.headers.get("Retry-After"), body=body
            )

    async def _read_prefix(self, response: ClientResponse) -> bytes:
        """Return the first bytes of the body; errors in the rest do not matter."""
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


def _describe_error(error: BaseException) -> WebhookResponse:
    """Return the reason of the SSRF guard, which a library's error may wrap, or the error."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, AddressRefused):
        cause = cause.__cause__ or cause.__context__
    if cause is not None:
        return WebhookResponse(error=str(cause), failure="blocked")
    text = f"{type(error).__name__}: {error}"[:300]
    return WebhookResponse(error=text, failure="unreachable")
