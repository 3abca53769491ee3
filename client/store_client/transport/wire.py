"""One request on a connection of the pool, and what can break on the way.

This is the module that needs the HTTP library; it is loaded when something is asked first, so that
commands that ask nothing start fast.
"""

import contextlib
import functools
import importlib.metadata
import logging
import os
import socket
import ssl
from collections.abc import Iterator
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx

from store_client.errors import Unreachable
from store_client.transport.bodies import bound
from store_client.transport.limits import LARGEST_ANSWER
from store_client.transport.origins import shown
from store_client.transport.policy import Policy
from store_client.transport.sending import Broken, Sent

# Whoever uses this package in a program that tells much would find signed URLs in its log. A level
# that was set on purpose stays.
for _library in map(logging.getLogger, ("httpx", "httpcore")):
    if _library.level == logging.NOTSET:
        _library.setLevel(logging.WARNING)


@functools.lru_cache(maxsize=4)
def trusted(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    """The authorities that these variables name, or the usual ones: read once, there are many."""
    return httpx.create_ssl_context()


class Wire:
    """A pool of connections; many threads use it."""

    def __init__(self, policy: Policy, transport: httpx.BaseTransport | None) -> None:
        self._client = httpx.Client(
            verify=trusted(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")),
            timeout=httpx.Timeout(
                connect=policy.connect_s, read=policy.read_s, write=policy.write_s, pool=None
            ),
            limits=httpx.Limits(
                max_connections=policy.connections,
                max_keepalive_connections=policy.connections,
                keepalive_expiry=5.0,
            ),
            follow_redirects=False,
            transport=transport,
            # What is decoded in bounded memory, see `bodies`.
            headers={"User-Agent": f"store-client/{_version()}", "Accept-Encoding": "gzip"},
            # What one answer leaves behind is nothing to the next request.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        )

    def begin(self, sent: Sent) -> httpx.Response:
        """An answer whose body was not read; the caller closes it. Broken."""
        with breaking(sent.url):
            request = self._client.build_request(
                sent.method, sent.url, headers=dict(sent.headers), content=sent.content
            )
            answer = self._client.send(request, stream=True)
        if sent.limit is not None or answer.status_code >= httpx.codes.MULTIPLE_CHOICES:
            bound(answer, LARGEST_ANSWER if sent.limit is None else sent.limit)
        return answer

    def read(self, answer: httpx.Response) -> None:
        """The whole body, and the connection goes back. Broken."""
        try:
            with breaking(str(answer.url)):
                answer.read()
        finally:
            answer.close()

    @contextlib.contextmanager
    def reading(self, answer: httpx.Response) -> Iterator[httpx.Response]:
        """For callers that read a body piece by piece: what breaks then is Unreachable."""
        try:
            with breaking(str(answer.url)):
                yield answer
        except Broken as error:
            raise Unreachable(str(error), hint=error.hint) from error
        finally:
            answer.close()

    def close(self) -> None:
        """End all connections."""
        self._client.close()


@contextlib.contextmanager
def breaking(url: str) -> Iterator[None]:
    """Broken for whatever the HTTP library raises."""
    try:
        yield
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise Broken(f"{shown(url)} is no URL to ask", sent=False, lasting=True) from error
    except (httpx.LocalProtocolError, UnicodeError):
        # The text of that error may hold a token.
        raise Broken(
            f"the request to {shown(url)} cannot be sent: a header has letters that none may have",
            sent=False,
            lasting=True,
            hint="is the token whole, and nothing else with it?",
        ) from None
    except httpx.HTTPError as error:
        raise broken(url, error) from error


def broken(url: str, error: httpx.HTTPError) -> Broken:
    """What happened, in words of ours."""
    host = httpx.URL(url).netloc.decode()
    causes = list(_causes(error))
    if found := next((one for one in causes if isinstance(one, ssl.SSLError)), None):
        return _tls(host, found)
    if none := next((one for one in causes if isinstance(one, socket.gaierror)), None):
        return _unknown_host(host, none)
    before = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError)
    if isinstance(error, httpx.TimeoutException):
        doing = "connection to" if before else "answer from"
        return Broken(f"no {doing} {host} in time", sent=not before, hint=NETWORK)
    if before:
        return Broken(f"no connection to {host}: {_reason(error)}", sent=False, hint=RUNNING)
    return Broken(f"the connection to {host} broke: {_reason(error)}", sent=True, hint=NETWORK)


NETWORK = "is the network all right? Then try again"
RUNNING = "is the URL right, and does the store run? `store doctor` looks"


def _tls(host: str, error: ssl.SSLError) -> Broken:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Broken(
            f"the certificate of {host} is not valid: {error.verify_message}",
            sent=False,
            lasting=True,
            hint="is the URL right? SSL_CERT_FILE names the certificates of an own authority",
        )
    return Broken(
        f"no encrypted connection to {host}: {error.reason or error}",
        sent=True,
        # Something that speaks no TLS will not do so the next time.
        lasting=error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"),
        hint="does the URL begin with http:// instead of https://?",
    )


def _unknown_host(host: str, error: socket.gaierror) -> Broken:
    return Broken(
        f"there is no host {host}: {error.strerror or error}",
        sent=False,
        lasting=error.errno != socket.EAI_AGAIN,
        hint="is the URL right? `store profiles` shows what is kept",
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__


def _reason(error: httpx.HTTPError) -> str:
    return str(error) or type(error).__name__


def _version() -> str:
    try:
        return importlib.metadata.version("consortium-store-client")
    except importlib.metadata.PackageNotFoundError:
        return "0"
