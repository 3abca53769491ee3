"""What may happen to requests on their way: bytes are flipped, answers cut, processes killed."""

from collections.abc import Callable, Iterator

import httpx

from store_client.client import Client
from store_client.configuration import Configuration
from store_client.http import HttpSession, StaticToken

Meddle = Callable[[httpx.Request], httpx.Request | None]
"""What becomes of a request; None: it is lost."""


class Cut(httpx.SyncByteStream):
    """An answer that breaks off in its midst."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def __iter__(self) -> Iterator[bytes]:
        yield self._content[: len(self._content) // 2]
        raise httpx.ReadError("cut")


class Meddling(httpx.BaseTransport):
    """The network, with somebody in it; `asked` are the requests that came through."""

    def __init__(
        self, meddle: Meddle, *, cuts: Callable[[httpx.Request], bool] = lambda _: False
    ) -> None:
        self._meddle, self._cuts = meddle, cuts
        self._network = httpx.HTTPTransport()
        self.asked: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        through = self._meddle(request)
        if through is None:
            raise httpx.ReadError("cut", request=request)
        answer = self._network.handle_request(through)
        self.asked.append(f"{request.method} {request.url.raw_path.decode()}")
        if self._cuts(request):
            answer.read()
            answer.close()
            return httpx.Response(answer.status_code, stream=Cut(answer.content))
        return answer

    def close(self) -> None:
        self._network.close()


def flipped(request: httpx.Request) -> httpx.Request:
    """The same with one bit of its body turned."""

    def blocks() -> Iterator[bytes]:
        assert isinstance(request.stream, httpx.SyncByteStream)
        for number, block in enumerate(request.stream):
            yield bytes([block[0] ^ 1, *block[1:]]) if number == 0 else block

    return httpx.Request(request.method, request.url, headers=request.headers, content=blocks())


def through(config: Configuration, network: Meddling) -> Client:
    """A client as an administrator whose requests go that way."""
    session = HttpSession(
        config.url, tokens=StaticToken("admin"), transport=network, sleep=lambda _: None
    )
    return Client(config=config, session=session)
