"""Who asks Google Cloud Storage, where it is and over which connections.

Google's libraries settle endpoint, emulator and credentials. A call of their client takes 0.75 ms
of processor time, a thousand files are thousands of calls, and it streams, tries again and unpacks
as it likes: so requests go out through connections of our own, at a third of that.
"""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any, Final
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import google.auth
import google.cloud.storage
import urllib3
from google.auth import _default, iam
from google.auth.credentials import AnonymousCredentials, Signing, with_scopes_if_required
from google.auth.exceptions import DefaultCredentialsError
from google.auth.transport.requests import Request

from storage.blobs.clients import Limits, Reader
from storage.blobs.urls import as_called
from storage.errors import Unavailable
from storage.protocols import BLOCK

_SCOPES: Final = ("https://www.googleapis.com/auth/devstorage.read_write",)
_SIGNING_SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
_HEADERS: Final = {
    # Asked for packed, what is stored packed comes as it is stored.
    "Accept-Encoding": "gzip",
    "User-Agent": "consortium-store (gzip)",
}

Sign = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Server:
    """Where GCS is; what is None is ambient. `public` is the endpoint's name among those who are
    given signed URLs."""

    endpoint: str | None = None
    public: str | None = None
    project: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One request; its URL begins below the endpoint, or is whole where the server named it."""

    method: str
    url: str
    params: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | IO[bytes] | None = None
    start: int = 0
    """Where in a file its body begins."""
    stream: bool = False
    tries: int | None = None
    """At most so often, if that is less than the limits say."""


class Connection:
    """One process's way to a server; threads share it."""

    def __init__(self, server: Server, limits: Limits, *, credentials: Any = None) -> None:
        self.limits = limits
        self._server = server
        self.base = _endpoint(server)
        self._credentials = credentials or _credentials(self.base, server.project)
        self._pool = _pool(self.base, limits)
        # Tokens come from elsewhere, by way of the environment's proxies.
        self._tokens = partial(Request(), timeout=limits.read_s)
        self._signer: tuple[str, Sign] | None = None

    def send(self, call: Call) -> urllib3.BaseHTTPResponse:
        """The answer, whatever it says; of one that is streamed only the headers have come."""
        answer = self._once(call)
        if answer.status == 401 and not isinstance(self._credentials, AnonymousCredentials):
            # A token may be withdrawn before its time.
            answer.drain_conn()
            self._credentials.refresh(self._tokens)
            answer = self._once(call)
        return answer

    def _once(self, call: Call) -> urllib3.BaseHTTPResponse:
        url = call.url if "://" in call.url else self.base + call.url
        if call.params:
            url = f"{url}?{urlencode(call.params)}"
        headers = {**_HEADERS, **call.headers}
        self._credentials.before_request(self._tokens, call.method, url, headers)
        if call.body is not None and not isinstance(call.body, bytes):
            call.body.seek(call.start)
        return self._pool.urlopen(
            call.method,
            url,
            body=call.body,
            headers=headers,
            retries=False,
            redirect=False,
            preload_content=not call.stream,
            decode_content=not call.stream,
        )

    def signer(self) -> tuple[str, Sign]:
        """Who signs URLs, and with what: a key of our own, else a service account's by IAM, which
        is a call for each URL."""
        if self._signer is None:
            self._signer = signer_of(self._credentials, self._tokens)
        return self._signer

    @property
    def public(self) -> str:
        """The endpoint as strangers find it."""
        return as_called(self._server.public or self.base).rstrip("/")


def open_reader(limits: Limits) -> Reader[Connection]:
    """A connection with the ambient credentials, anonymous where there are none."""
    try:
        return Reader(Connection(Server(), limits), signed=True)
    except DefaultCredentialsError:
        anonymous = AnonymousCredentials()  # type: ignore[no-untyped-call]
        return Reader(Connection(Server(), limits, credentials=anonymous), signed=False)


def signer_of(credentials: Any, tokens: Any) -> tuple[str, Sign]:
    """A service account's name, and what signs for it; `tokens` sends requests to Google."""
    if isinstance(credentials, Signing):
        return str(credentials.signer_email), credentials.sign_bytes
    if not hasattr(credentials, "service_account_email"):
        raise Unavailable("there is no GCS service account to sign a URL with")
    credentials = with_scopes_if_required(credentials, _SIGNING_SCOPES)  # type: ignore[no-untyped-call]
    # Until it was asked for a token, a machine's account does not know its own name.
    credentials.refresh(tokens)
    email = credentials.service_account_email
    if not email:
        raise Unavailable("the GCS credentials act for no service account that could sign URLs")
    by_iam = iam.Signer(tokens, credentials, email)  # type: ignore[no-untyped-call]
    return str(email), by_iam.sign


def _endpoint(server: Server) -> str:
    """As the client finds it, an emulator's too."""
    nobody = AnonymousCredentials()  # type: ignore[no-untyped-call]
    options = {"api_endpoint": server.endpoint} if server.endpoint else None
    client = google.cloud.storage.Client(None, credentials=nobody, client_options=options)
    return str(client.api_endpoint).rstrip("/")


def _credentials(base: str, project: str | None) -> Any:
    """Ambient ones, used on a project's account if one is named. A server over plain HTTP is one's
    own: it is told only those of a file that is named, and nobody looks for a machine's."""
    if base.startswith("https://"):
        return google.auth.default(scopes=_SCOPES, quota_project_id=project)[0]
    named, _ = _default._get_explicit_environ_credentials()  # type: ignore[no-untyped-call]
    if named is None:
        return AnonymousCredentials()  # type: ignore[no-untyped-call]
    return with_scopes_if_required(named, _SCOPES)  # type: ignore[no-untyped-call]


def _pool(base: str, limits: Limits) -> urllib3.PoolManager:
    settings: dict[str, Any] = {
        "maxsize": limits.connections,
        "timeout": urllib3.Timeout(connect=limits.connect_s, read=limits.read_s),
        "blocksize": BLOCK // 4,
        "ssl_context": ssl.create_default_context(),
    }
    parts = urlsplit(base)
    proxy = getproxies().get(parts.scheme)
    if proxy and not proxy_bypass(parts.netloc):
        return urllib3.ProxyManager(proxy, **settings)
    return urllib3.PoolManager(**settings)
