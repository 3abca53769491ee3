"""A client that notes what it asks, and that can be made to die as `kill -9` makes it.

As a program: one command of such a client, in a process of its own.
"""

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

from store_client.auth.tokens import open_tokens
from store_client.cli.context import ProgramRun
from store_client.cli.main import cli
from store_client.client import Client
from store_client.configuration import Configuration
from store_client.http.session import HttpSession

_FILE_NAME = re.compile(r'; filename="([0-9a-f-]{36}[.][^"]*)"')


@dataclass
class Recording(httpx.BaseTransport):
    """Notes `METHOD path` of each request that was answered, of one that is about several files one
    line each; `watch` hears of each request before it goes."""

    watch: Callable[[str], None] = lambda _: None
    asked: list[str] = field(default_factory=list)
    through: httpx.BaseTransport = field(default_factory=httpx.HTTPTransport)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        line = f"{request.method} {request.url.path}"
        self.watch(line)
        answer = self.through.handle_request(request)
        if line == "PUT /v1/files":
            files = json.loads(request.read())["files"]
            self.asked += [f"{line}/{file['uuid']}" for file in files]
        elif line.startswith("PUT /v1/area/") and line.endswith("/files"):
            self.asked += [
                f"{line}/{name}" for name in _FILE_NAME.findall(request.read().decode("latin-1"))
            ]
        else:
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
    tokens = open_tokens(config, given=token)
    session = HttpSession(config.url, tokens=tokens, transport=recording, sleep=lambda _: None)
    return Client(config=config, session=session)


def _signalling(number: int, what: str, which: int) -> Callable[[str], None]:
    """Send this process a signal when it is about to ask something for that time."""
    seen: list[str] = []

    def watch(line: str) -> None:
        if line.startswith(what):
            seen.append(line)
            if len(seen) == which:
                os.kill(os.getpid(), number)

    return watch


if __name__ == "__main__":
    home, url, which_signal, what, which, *words = sys.argv[1:]
    os.environ["STORE_CLIENT_HOME"] = home
    recorded = Recording(_signalling(int(which_signal), what, int(which)))
    place = ProgramRun(make=lambda config: client_of(config, recorded))
    cli.main([*words, "--url", url], obj=place)
