"""The client of google-cloud-storage: endpoint, credentials, connections, retries and errors.

Calls that read or create may be sent twice when an answer is lost. Creation is conditional: its
retry then meets its own object as AlreadyExists, and the caller reads that back.
"""

import io
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar

import google.auth
from google.api_core.exceptions import GoogleAPICallError
from google.api_core.retry import Retry
from google.auth import _default, iam
from google.auth.credentials import AnonymousCredentials, Signing, with_scopes_if_required
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
from google.auth.transport.requests import AuthorizedSession, Request
from google.cloud import storage
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
from google.oauth2 import service_account
from requests import PreparedRequest, RequestException, Response
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from storage.blobs.clients import Limits, Reader
from storage.blobs.urls import as_called
from storage.errors import (
    AlreadyExists,
    Forbidden,
    Invalid,
    NotFound,
    RangeNotSatisfiable,
    SourceChanged,
    StoreError,
    Unavailable,
)
from storage.protocols import BLOCK

T = TypeVar("T")

# Otherwise the library requests each bucket's own metadata in the background, for traces.
os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")

_SCOPES: Final = ("https://www.googleapis.com/auth/devstorage.read_write",)
_SIGNING_SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
_SEEN_S: Final = 60.0
"""Seconds for which a bucket that answered counts as existing."""
_FIRST_DELAY_S: Final = 0.25
_LONGEST_DELAY_S: Final = 8.0
_CHECKSUM_REFUSED: Final = "match calculated"
"""Words of GCS's answer when bytes arrived with another checksum than announced."""
_UNREACHABLE: Final = (RequestException, HTTPError, ConnectionError)


@dataclass(frozen=True, slots=True)
class Server:
    """Where GCS is; None means the ambient setting. `public` is the endpoint in signed URLs."""

    endpoint: str | None = None
    public: str | None = None
    project: str | None = None


class GcsClient:
    """The library's client of one process, with our limits; threads share it."""

    def __init__(self, server: Server, limits: Limits, *, credentials: Any = None) -> None:
        self.limits = limits
        self.endpoint = _endpoint(server)
        self.public = as_called(server.public or self.endpoint).rstrip("/")
        self._credentials = credentials or _credentials(self.endpoint, server.project)
        self._token_request = partial(Request(), timeout=limits.read_s)
        self._signing: Any = None
        options = {"api_endpoint": self.endpoint}
        session = _session(self._credentials, self._token_request, self.endpoint, limits)
        self.storage = storage.Client(None, self._credentials, session, client_options=options)

    def signing_credentials(self) -> Any:
        """Credentials that sign URLs: our own key, else IAM signs, with one request for each."""
        if self._signing is None:
            self._signing = signing_credentials(self._credentials, self._token_request)
        return self._signing


class Bucket:
    """A bucket, and how its methods are called. In our `own` bucket a refusal is a fault of the
    installation, which may be mended; in a depositor's it is an answer."""

    def __init__(self, name: str, client: Callable[[], GcsClient], *, own: bool = True) -> None:
        self.name, self.client, self.own = name, client, own
        self._seen = -_SEEN_S

    def blob(self, key: str, pin: str | None = None, **options: Any) -> storage.Blob:
        """An object, of one generation if a pin is given; nothing is requested yet."""
        if key in (".", ".."):
            raise Invalid("GCS has no objects with such a name")
        try:
            # The library makes one client per process, too, which may find no credentials.
            bucket = self.guarded(lambda: self.client().storage.bucket(self.name))
            return bucket.blob(key, generation=int(pin) if pin else None, **options)
        except ValueError as error:
            raise NotFound(f"There is no such bucket or generation: {error}") from error

    def call(self, method: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call a method of the library with our time limits and attempts; translate its errors."""
        creates = options.get("if_generation_match") == 0
        result = self.guarded(
            lambda: method(*arguments, **options, **self._patience()), creates=creates
        )
        self._seen = time.monotonic()
        return result

    def list_blobs(self, **options: Any) -> Any:
        """The library's iterator over objects; each step of it has to be `guarded`."""
        return self.guarded(
            lambda: self.client().storage.list_blobs(self.name, **options, **self._patience())
        )

    def _patience(self) -> dict[str, Any]:
        """Time limits and retries, as every method of the library takes them."""
        limits = self.client().limits
        timeout = (limits.connect_s, limits.read_s)
        return {"timeout": timeout, "retry": retrying(limits.attempts)}

    def guarded(self, work: Callable[[], T], *, creates: bool = False) -> T:
        """What `work` returns; the library's errors in our words."""
        try:
            return work()
        except GoogleAPICallError as error:
            raise self._translated(error, creates) from error
        except DataCorruption as error:
            raise Unavailable(f"GCS bucket {self.name}: bytes were mangled: {error}") from error
        except GoogleAuthError as error:
            raise Unavailable(f"there are no usable GCS credentials: {error}") from error
        except _UNREACHABLE as error:
            raise Unavailable(f"GCS cannot be reached: {error}") from error

    def _translated(self, error: GoogleAPICallError, creates: bool) -> StoreError:
        status = int(error.code or 0)
        said = f"GCS bucket {self.name}: {status} {_said(error.response)}"
        match status:
            case 404:
                return self._absence(said)
            case 410:
                # An upload session or rewrite token that has ended.
                return NotFound(said)
            case 412:
                return AlreadyExists(said) if creates else SourceChanged(said)
            case 416:
                return RangeNotSatisfiable(said)
            case 401 | 403:
                refused = f"{said}: check the store's credentials and the bucket's permissions"
                return Unavailable(refused) if self.own else Forbidden(said)
            case 400 | 405 | 411 | 413 if _CHECKSUM_REFUSED not in said:
                return Invalid(said)
        return Unavailable(said)

    def _absence(self, said: str) -> StoreError:
        """A 404 does not tell an absent object from an absent bucket."""
        if not self.own:
            return NotFound(said)
        try:
            self.expect()
        except (NotFound, Forbidden) as error:
            return Unavailable(f"GCS bucket {self.name} is absent or closed to us: {error}")
        return NotFound(said)

    def expect(self) -> None:
        """Raise NotFound if there is no such bucket; one that answered lately is not asked."""
        if time.monotonic() - self._seen < _SEEN_S:
            return
        probe = Bucket(self.name, self.client, own=False)
        found = probe.list_blobs(max_results=1, fields="items(name)")
        probe.guarded(lambda: next(found, None))
        self._seen = time.monotonic()


def retrying(attempts: int) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """What the library takes for a retry: each call is made at most `attempts` times."""

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        made = count(1)
        retry = Retry(
            predicate=lambda error: next(made) < attempts and _is_transient(error),
            initial=_FIRST_DELAY_S,
            maximum=_LONGEST_DELAY_S,
            timeout=None,
        )
        return retry(function)

    return decorate


def _is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed later."""
    if not isinstance(error, GoogleAPICallError | InvalidResponse):
        return isinstance(error, _UNREACHABLE)
    response = error.response
    status = response.status_code if response is not None else 0
    # To read what was said also gives the connection back.
    return _CHECKSUM_REFUSED in _said(response) or status in (408, 429) or status >= 500


def _said(response: Response | None) -> str:
    """The server's own words, without the URL, which may hold a signature or a session."""
    if response is None:
        return ""
    try:
        return str(response.json()["error"]["message"])[:500]
    except (ValueError, KeyError, TypeError, RuntimeError):
        return response.text.strip()[:500]


def open_reader(limits: Limits) -> Reader[GcsClient]:
    """A client with the ambient credentials, anonymous if there are none."""
    try:
        return Reader(GcsClient(Server(), limits), signed=True)
    except DefaultCredentialsError:
        return Reader(GcsClient(Server(), limits, credentials=_anonymous()), signed=False)


def signing_credentials(credentials: Any, request: Any) -> Any:
    """Credentials of a service account that sign; `request` sends HTTP requests to Google."""
    if isinstance(credentials, Signing):
        return credentials
    if not hasattr(credentials, "service_account_email"):
        raise Unavailable("there is no GCS service account to sign a URL with")
    credentials = with_scopes_if_required(credentials, _SIGNING_SCOPES)  # type: ignore[no-untyped-call]
    # A virtual machine's account learns its own name with its first token.
    credentials.refresh(request)
    email = credentials.service_account_email
    if not email:
        raise Unavailable("the GCS credentials act for no service account that could sign URLs")
    signer = iam.Signer(request, credentials, email)  # type: ignore[no-untyped-call]
    return service_account.Credentials(signer, email, "")  # type: ignore[no-untyped-call]


def _anonymous() -> Any:
    return AnonymousCredentials()  # type: ignore[no-untyped-call]


def _endpoint(server: Server) -> str:
    """As the library finds it, with STORAGE_EMULATOR_HOST."""
    options = {"api_endpoint": server.endpoint} if server.endpoint else None
    client = storage.Client(None, credentials=_anonymous(), client_options=options)
    return str(client.api_endpoint).rstrip("/")


def _credentials(endpoint: str, project: str | None) -> Any:
    """The ambient ones, billed to a project if one is named. A server over plain HTTP is not
    Google's: it gets those of GOOGLE_APPLICATION_CREDENTIALS only, never a machine's."""
    if endpoint.startswith("https://"):
        return google.auth.default(scopes=_SCOPES, quota_project_id=project)[0]
    named, _ = _default._get_explicit_environ_credentials()  # type: ignore[no-untyped-call]
    return with_scopes_if_required(named, _SCOPES) if named else _anonymous()  # type: ignore[no-untyped-call]


def _session(credentials: Any, request: Any, endpoint: str, limits: Limits) -> AuthorizedSession:
    """Connections of the client. requests looks at the environment before each request; here it
    does so once, which halves the processor time of a small call."""
    anonymous = isinstance(credentials, AnonymousCredentials)
    codes = {"refresh_status_codes": ()} if anonymous else {}
    session = AuthorizedSession(credentials, auth_request=request, **codes)  # type: ignore[no-untyped-call]
    ambient = session.merge_environment_settings(endpoint, {}, None, None, None)
    session.proxies, session.verify = dict(ambient["proxies"]), ambient["verify"]
    session.trust_env = False
    # GCS redirects no call; to follow one would show our token to another server.
    session.max_redirects = 0
    for scheme in ("http://", "https://"):
        session.mount(scheme, _BlockAdapter(pool_maxsize=limits.connections))
    return session


class _BlockAdapter(HTTPAdapter):
    """Sends large bodies in blocks. A time limit holds for each call of the socket: sent at once, a
    body of 64 MiB would have to leave within it."""

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options, blocksize=BLOCK // 4)

    def send(self, request: PreparedRequest, *arguments: Any, **options: Any) -> Response:
        if isinstance(request.body, bytes) and len(request.body) > BLOCK:
            # The Content-Length is there already; the bytes are not copied.
            request.body = io.BytesIO(request.body)
        return super().send(request, *arguments, **options)
