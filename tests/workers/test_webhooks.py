"""The webhook client: SSRF guard at connect time, one request per attempt."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from config import Settings
from pipelines.deliveries import WebhookRequest, WebhookResponse
from tests.workers.virtual_clock import LeapingLoop
from tests.workers.webhook_receivers import Got, Receiver, hangs, receiving
from workers.deliver import build_webhook_sender
from workers.webhooks import AddressRefused, GuardedResolver, WebhookSender


def a_request(url: str) -> WebhookRequest:
    return WebhookRequest("POST", url, {"X-One": "1"}, b"body")


def sending(
    *requests: WebhookRequest, timeout_s: float = 5.0, allow_private: bool = True
) -> list[WebhookResponse]:
    async def scene() -> list[WebhookResponse]:
        sender = WebhookSender(timeout_s=timeout_s, allow_private=allow_private, body_bytes=10)
        try:
            return [await sender.send(request) for request in requests]
        finally:
            await sender.close()

    return asyncio.run(scene())


def scene_with(
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter, int], Awaitable[None]],
    count: int = 1,
) -> tuple[list[WebhookResponse], int]:
    """Answers to so many requests to a bare server, and how many connections it saw."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await handle(reader, writer, connections)
        writer.close()

    async def scene() -> list[WebhookResponse]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        sender = WebhookSender(timeout_s=1, allow_private=True, body_bytes=10)
        answers = []
        for _ in range(count):
            answers.append(await sender.send(a_request(url)))
            await asyncio.sleep(0.05)
        await sender.close()
        server.close()
        await server.wait_closed()
        return answers

    return asyncio.run(scene()), connections


async def request_of(reader: asyncio.StreamReader) -> None:
    await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(4)


def test_an_answer_is_status_retry_after_and_the_beginning_of_the_body() -> None:
    async def busy(_receiver: Receiver, _got: Got) -> web.StreamResponse:
        return web.Response(status=503, text="come back later", headers={"Retry-After": "7"})

    async def scene() -> None:
        async with receiving(busy) as receiver:
            sender = WebhookSender(timeout_s=5, allow_private=True, body_bytes=10)
            answer = await sender.send(a_request(receiver.url + "/a%20b?c=%2F&d='1'"))
            await sender.close()
            assert answer == WebhookResponse(
                status=503, retry_after="7", body=b"come back ", endpoint="loopback"
            )
            (got,) = receiver.got
            assert (got.path, got.body, got.headers["x-one"]) == (
                "/a%20b?c=%2F&d='1'",
                b"body",
                "1",
            )
            assert "cookie" not in got.headers

    asyncio.run(scene())


@pytest.mark.spec("NOT-19")
def test_silence_is_an_error() -> None:
    async def scene() -> WebhookResponse:
        async with receiving(hangs) as receiver:
            sender = WebhookSender(timeout_s=0.2, allow_private=True, body_bytes=10)
            try:
                return await sender.send(a_request(receiver.url))
            finally:
                await sender.close()

    assert asyncio.run(scene()) == WebhookResponse(
        error="The receiver did not answer in time.", failure="timeout", endpoint="loopback"
    )


@pytest.mark.spec("NOT-19")
@pytest.mark.parametrize(
    ("after_s", "said"),
    [
        (9.5, WebhookResponse(status=200, endpoint="loopback")),
        # Whole seconds of the clock: the tenth may be its beginning or its end.
        (
            11.5,
            WebhookResponse(
                error="The receiver did not answer in time.", failure="timeout", endpoint="loopback"
            ),
        ),
    ],
)
def test_a_receiver_has_ten_seconds(after_s: float, said: WebhookResponse) -> None:
    async def late(_receiver: Receiver, _got: Got) -> web.StreamResponse:
        await asyncio.sleep(after_s)
        return web.Response()

    async def scene() -> WebhookResponse:
        async with receiving(late) as receiver:
            sender = build_webhook_sender(Settings(allow_private_callbacks=True))
            answer = await sender.send(a_request(receiver.url))
            await sender.close()
            return answer

    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        assert runner.run(scene()) == said


@pytest.mark.spec("NOT-19")
def test_silent_receiver_times_out() -> None:
    async def scene() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, LeapingLoop)
        async with receiving(hangs) as receiver:
            sender = build_webhook_sender(
                Settings(allow_private_callbacks=True, delivery_timeout_s=40)
            )
            began = loop.time()
            assert (await sender.send(a_request(receiver.url))).error
            await sender.close()
            return loop.time() - began, loop.leapt_s()

    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        took_s, leapt_s = runner.run(scene())
    assert took_s >= 40
    assert leapt_s <= 41


@pytest.mark.spec("NOT-19")
def test_a_refused_connection_and_an_unknown_name_are_errors() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        first, second = sending(
            a_request(f"http://127.0.0.1:{port}/"), a_request("http://unknown.invalid/")
        )
    assert "Connect" in (first.error or "")
    assert second.status is None
    assert second.error


@pytest.mark.spec("NOT-19")
def test_non_http_response_is_an_error() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _n: int) -> None:
        await request_of(reader)
        writer.write(b"220 mail.example ESMTP\r\n\r\n")
        await writer.drain()

    ((answer,), _) = scene_with(babble)
    assert answer.status is None


@pytest.mark.spec("NOT-01")
def test_a_receiver_that_hangs_up_sees_one_request_for_one_attempt() -> None:
    async def hang_up(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, _n: int) -> None:
        await request_of(reader)

    ((answer,), connections) = scene_with(hang_up)
    assert "Disconnected" in (answer.error or "")
    assert connections == 1


def test_reopens_closed_connection() -> None:
    async def once_each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, n: int) -> None:
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        if n == 1:  # takes the next request and hangs up on it
            await request_of(reader)

    (answers, connections) = scene_with(once_each, count=2)
    assert [answer.status for answer in answers] == [200, 200]
    assert connections == 2


@pytest.mark.spec("NOT-19")
def test_endless_body_does_not_change_result() -> None:
    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _n: int) -> None:
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
        await writer.drain()
        await reader.read()

    ((answer,), _) = scene_with(trickle)
    assert answer == WebhookResponse(status=200, body=b"abc", endpoint="loopback")


@pytest.mark.spec("NOT-20")
@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/", "http://localhost:1/", "http://[::1]:1/", "http://0x7f000001:1/"]
)
def test_private_addresses_are_refused_before_connecting(url: str) -> None:
    (answer,) = sending(a_request(url), allow_private=False)
    assert answer.error == "The name resolves to a loopback address, which is not allowed."


@pytest.mark.spec("NOT-20")
def test_every_address_of_a_name_is_checked() -> None:
    async def scene() -> None:
        resolver = GuardedResolver(allow_private=False)
        with pytest.raises(AddressRefused):
            await resolver.resolve("localhost", 80, socket.AF_UNSPEC)
        with pytest.raises(AddressRefused):
            resolver.check_host("64:ff9b::7f00:1")
        resolver.check_host("8.8.8.8")
        await resolver.close()

    asyncio.run(scene())


@pytest.mark.spec("NOT-20")
@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["::ffff:169.254.169.254"], ["::1"]]
)
def test_name_that_resolves_to_a_special_address_is_refused(
    monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    """As `127.0.0.1.nip.io` does, or a name with a public address beside a private one."""

    def look_up(_host: str, port: int, **_more: object) -> list[tuple[object, ...]]:
        kinds = [socket.AF_INET6 if ":" in one else socket.AF_INET for one in addresses]
        return [
            (kind, socket.SOCK_STREAM, 6, "", (one, port))
            for kind, one in zip(kinds, addresses, strict=True)
        ]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    (answer,) = sending(a_request("http://127.0.0.1.nip.io:1/"), allow_private=False)
    assert "which is not allowed" in (answer.error or "")


@pytest.mark.spec("NOT-20")
def test_the_environment_names_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    async def scene() -> WebhookResponse:
        async with receiving() as receiver:
            sender = WebhookSender(timeout_s=5, allow_private=True, body_bytes=10)
            try:
                return await sender.send(a_request(receiver.url))
            finally:
                await sender.close()

    assert asyncio.run(scene()).status == 200
