"""A client that notes what it asks, and that can be made to die as `kill -9` makes it.

As a program: one upload by such a client, in a process of its own.
"""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from store_client.client import Client
from store_client.configuration import Configuration
from store_client.login.tokens import tokens_of
from store_client.transport.session import Session
from store_client.upload.options import UploadOptions
from store_client.upload.running import upload


@dataclass
class Recording(httpx.BaseTransport):
    """Notes `METHOD path` of each request that was answered; `watch` hears of each before it goes."""

    watch: Callable[[str], None] = lambda _: None
    asked: list[str] = field(default_factory=list)
    through: httpx.BaseTransport = field(default_factory=httpx.HTTPTransport)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        line = f"{request.method} {request.url.path}"
        self.watch(line)
        answer = self.through.handle_request(request)
        self.asked.append(line)
        return answer

    def close(self) -> None:
        self.through.close()

    def puts(self, what: str) -> list[str]:
        """The PUTs below `/v1/<what>`."""
        return [line for line in self.asked if line.startswith(f"PUT /v1/{what}")]


def client_of(
    config: Configuration, recording: httpx.BaseTransport, token: str = "admin"
) -> Client:
    """A client whose requests go through there."""
    tokens = tokens_of(config, given=token)
    session = Session(config.url, tokens=tokens, transport=recording, sleep=lambda _: None)
    return Client(config=config, session=session)


def _dies_at(what: str, number: int) -> Callable[[str], None]:
    seen: list[str] = []

    def watch(line: str) -> None:
        if line.startswith(what):
            seen.append(line)
        if len(seen) >= number:
            os.kill(os.getpid(), signal.SIGKILL)

    return watch


if __name__ == "__main__":
    url, home, source, what, number = sys.argv[1:]
    configuration = Configuration(Path(home), Path(home) / "cache", url)
    recorded = Recording(_dies_at(what, int(number)))
    with client_of(configuration, recorded) as client:
        upload(client, UploadOptions(Path(source), "aws", jobs=2))
