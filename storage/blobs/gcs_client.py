"""google-cloud-storage client: endpoint, credentials, retries and error translation.

A call that reads or creates may be sent twice when a response is lost. Creation is conditional: a
retry finds its own object, raises AlreadyExists, and the caller reads the object back.
"""

import io
import os
import time
from collections.abc import Callable
from contextlib import suppress
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

from storage import errors
from storage.blobs.clients import (
    AMBIENT_ACCESS,
    CloudLimits,
    SourceAccess,
    SourceReader,
    canonical_endpoint,
)
from storage.protocols import BLOCK

T = TypeVar("T")

# Otherwise the library requests each bucket's metadata in the background, for traces.
os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")

_SCOPES: Final = ("https://www.googleapis.com/auth/devstorage.read_write",)
_SIGNING_SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
MAX_URL_LIFETIME_S: Final = 7 * 24 * 3600
"""Longest life of a signed URL that GCS accepts."""
_BUCKET_CHECK_S: Final = 60.0
"""Seconds for which a bucket that answered counts as existing."""
_FIRST_DELAY_S: Final = 0.25
_MAX_DELAY_S: Final = 8.0
_CHECKSUM_MISMATCH: Final = "match calculated"
"""Words of GCS's response to bytes with another checksum than declared."""
_NETWORK_ERRORS: Final = (RequestException, HTTPError, ConnectionError)


@dataclass(frozen=True, slots=True)
class GcsServer:
    """Where GCS is; None means the ambient setting. `public` is the endpoint in signed URLs."""

    endpoint: str | None = None
    public: str | None = None
    project: str | None = None


class GcsClient:
    """The library's client of one process, with our limits; threads share it."""

    def __init__(self, server: GcsServer, limits: CloudLimits, *, credentials: Any = None) -> None:
        self.limits = limits
        self.endpoint = _find_endpoint(server)
        self.public = canonical_endpoint(server.public or self.endpoint).rstrip("/")
        self._credentials = credentials or _find_credentials(self.endpoint, server.project)
        self._token_request = partial(Request(), timeout=limits.read_s)
        self._signing: Any = None
        options = {"api_endpoint": self.endpoint}
        session = _make_session(self._credentials, self._token_request, self.endpoint, limits)
        self.storage = storage.Client(None, self._credentials, session, client_options=options)

    def signing_credentials(self) -> Any:
        """Return credentials that sign URLs: our private key, else IAM, at one request each."""
        if self._signing is None:
            self._signing = make_signing_credentials(self._credentials, self._token_request)
        return self._signing


class GcsBucketClient:
    """A bucket and its client.

    In one of the store's `own` buckets a 403 or 404 is Unavailable, since an operator may fix it;
    in a depositor's bucket it is Forbidden or NotFoundError.
    """

    def __init__(self, name: str, client: Callable[[], GcsClient], *, own: bool = True) -> None:
        self.name, self.client, self.own = name, client, own
        self._seen_at = -_BUCKET_CHECK_S

    def blob(self, key: str, pin: str | None = None, **options: Any) -> storage.Blob:
        """Return a handle of an object, of one generation with a pin; nothing is requested yet."""
        if key in (".", ".."):
            raise errors.Invalid("object key: is not a valid GCS object name")
        try:
            # The library makes one client per process, too, which may find no credentials.
            bucket = self.translate_errors(lambda: self.client().storage.bucket(self.name))
            return bucket.blob(key, generation=int(pin) if pin else None, **options)
        except ValueError as error:
            raise errors.NotFoundError(
                f"GCS bucket or generation does not exist: {error}"
            ) from error

    def sign_url(self, key: str, method: str, expires_s: int, **options: object) -> str:
        """Return a signed URL; without a private key it costs a request to IAM."""
        blob = self.blob(key)
        try:
            client = self.client()
            return str(
                blob.generate_signed_url(
                    version="v4",
                    method=method,
                    expiration=min(expires_s, MAX_URL_LIFETIME_S),
                    api_access_endpoint=client.public,
                    credentials=client.signing_credentials(),
                    **options,
                )
            )
        except GoogleAuthError as error:
            raise errors.Unavailable(f"GCS URL cannot be signed: {error}") from error

    def call(self, method: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call a library method with our timeouts and attempts; translate its errors."""
        creates = options.get("if_generation_match") == 0
        result = self.translate_errors(
            lambda: method(*arguments, **options, **self._call_options()), creates=creates
        )
        self._seen_at = time.monotonic()
        return result

    def list_blobs(self, **options: Any) -> Any:
        """Return the library's iterator; run each step in `translate_errors`."""
        return self.translate_errors(
            lambda: self.client().storage.list_blobs(self.name, **options, **self._call_options())
        )

    def _call_options(self) -> dict[str, Any]:
        """Timeouts and retries, as every library method takes them."""
        limits = self.client().limits
        timeout = (limits.connect_s, limits.read_s)
        return {"timeout": timeout, "retry": make_retry(limits.attempts)}

    def translate_errors(self, work: Callable[[], T], *, creates: bool = False) -> T:
        """Return the result of `work`; translate the library's errors."""
        try:
            return work()
        except GoogleAPICallError as error:
            raise self._translate(error, creates) from error
        except DataCorruption as error:
            raise errors.Unavailable(
                f"GCS bucket {self.name}: bytes were corrupted on the way: {error}"
            ) from error
        except GoogleAuthError as error:
            raise errors.Unavailable(f"no usable GCS credentials: {error}") from error
        except _NETWORK_ERRORS as error:
            raise errors.Unavailable(f"GCS cannot be reached: {error}") from error

    def _translate(self, error: GoogleAPICallError, creates: bool) -> errors.DomainError:
        status = int(error.code or 0)
        message = f"GCS bucket {self.name}: {status} {_error_message(error.response)}"
        match status:
            case 404:
                return self._explain_not_found(message)
            case 410:
                # An upload session or rewrite token that has ended.
                return errors.NotFoundError(message)
            case 412:
                return errors.AlreadyExists(message) if creates else errors.SourceChanged(message)
            case 416:
                return errors.RangeNotSatisfiable(message)
            case 401 | 403:
                advice = f"{message}: check the store's credentials and the bucket's permissions"
                return errors.Unavailable(advice) if self.own else errors.Forbidden(message)
            case 400 | 405 | 411 | 413 if _CHECKSUM_MISMATCH not in message:
                return errors.Invalid(message)
        return errors.Unavailable(message)

    def _explain_not_found(self, message: str) -> errors.DomainError:
        """Tell an absent object from an absent bucket, which a 404 does not."""
        if not self.own:
            return errors.NotFoundError(message)
        try:
            self.check_exists()
        except (errors.NotFoundError, errors.Forbidden) as error:
            return errors.Unavailable(f"GCS bucket {self.name} is absent or closed to us: {error}")
        return errors.NotFoundError(message)

    def check_exists(self) -> None:
        """Raise NotFoundError if the bucket is absent; cached for a while."""
        if time.monotonic() - self._seen_at < _BUCKET_CHECK_S:
            return
        probe = GcsBucketClient(self.name, self.client, own=False)
        blobs = probe.list_blobs(max_results=1, fields="items(name)")
        probe.translate_errors(lambda: next(blobs, None))
        self._seen_at = time.monotonic()


def make_retry(attempts: int) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Return a retry policy of at most `attempts` attempts."""

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        attempt_numbers = count(1)
        retry = Retry(
            predicate=lambda error: next(attempt_numbers) < attempts and _is_transient(error),
            initial=_FIRST_DELAY_S,
            maximum=_MAX_DELAY_S,
            timeout=None,
        )
        return retry(function)

    return decorate


def _is_transient(error: BaseException) -> bool:
    """Return whether a retry may succeed."""
    if not isinstance(error, GoogleAPICallError | InvalidResponse):
        return isinstance(error, _NETWORK_ERRORS)
    response = error.response
    status = response.status_code if response is not None else 0
    # Reading the response also gives the connection back.
    return _CHECKSUM_MISMATCH in _error_message(response) or status in (408, 429) or status >= 500


def _error_message(response: Response | None) -> str:
    """Return the server's message without the URL, which may hold a signature."""
    if response is None:
        return ""
    try:
        return str(response.json()["error"]["message"])[:500]
    except (ValueError, KeyError, TypeError, RuntimeError):
        return response.text.strip()[:500]


def open_gcs_source_reader(
    limits: CloudLimits, access: SourceAccess = AMBIENT_ACCESS
) -> SourceReader[GcsClient]:
    """Open a client with the ambient credentials; anonymous without, or if `access` says so."""
    if not access.anonymous:
        with suppress(DefaultCredentialsError):
            return SourceReader(GcsClient(GcsServer(), limits), signed=True)
    client = GcsClient(GcsServer(), limits, credentials=_anonymous_credentials())
    return SourceReader(client, signed=False, anonymous=access.anonymous)


def make_signing_credentials(credentials: Any, request: Any) -> Any:
    """Return service account credentials that sign; `request` sends HTTP requests to Google."""
    if isinstance(credentials, Signing):
        return credentials
    if not hasattr(credentials, "service_account_email"):
        raise errors.Unavailable("no GCS service account is configured that could sign URLs")
    credentials = with_scopes_if_required(credentials, _SIGNING_SCOPES)  # type: ignore[no-untyped-call]
    # The account of a virtual machine learns its name with its first token.
    credentials.refresh(request)
    email = credentials.service_account_email
    if not email:
        message = "the GCS credentials belong to no service account that could sign URLs"
        raise errors.Unavailable(message)
    signer = iam.Signer(request, credentials, email)  # type: ignore[no-untyped-call]
    return service_account.Credentials(signer, email, "")  # type: ignore[no-untyped-call]


def _anonymous_credentials() -> Any:
    return AnonymousCredentials()  # type: ignore[no-untyped-call]


def _find_endpoint(server: GcsServer) -> str:
    """Return the endpoint as the library finds it, with STORAGE_EMULATOR_HOST."""
    options = {"api_endpoint": server.endpoint} if server.endpoint else None
    client = storage.Client(None, credentials=_anonymous_credentials(), client_options=options)
    return str(client.api_endpoint).rstrip("/")


def _find_credentials(endpoint: str, project: str | None) -> Any:
    """Return the ambient credentials, billed to `project` if set.

    A plain HTTP server is not Google's: it gets only those of GOOGLE_APPLICATION_CREDENTIALS, never
    a machine's.
    """
    if endpoint.startswith("https://"):
        return google.auth.default(scopes=_SCOPES, quota_project_id=project)[0]
    explicit, _ = _default._get_explicit_environ_credentials()  # type: ignore[no-untyped-call]
    return with_scopes_if_required(explicit, _SCOPES) if explicit else _anonymous_credentials()  # type: ignore[no-untyped-call]


def _make_session(
    credentials: Any, request: Any, endpoint: str, limits: CloudLimits
) -> AuthorizedSession:
    """Make the client's HTTP session.

    requests reads the environment before each request; reading it once halves the CPU time of a
    small call.
    """
    anonymous = isinstance(credentials, AnonymousCredentials)
    codes = {"refresh_status_codes": ()} if anonymous else {}
    session = AuthorizedSession(credentials, auth_request=request, **codes)  # type: ignore[no-untyped-call]
    ambient = session.merge_environment_settings(endpoint, {}, None, None, None)
    session.proxies, session.verify = dict(ambient["proxies"]), ambient["verify"]
    session.trust_env = False
    # GCS never redirects; following a redirect would show our token to another server.
    session.max_redirects = 0
    for scheme in ("http://", "https://"):
        session.mount(scheme, _BlockAdapter(pool_maxsize=limits.connections))
    return session


class _BlockAdapter(HTTPAdapter):
    """Sends large bodies in blocks.

    The timeout holds for each socket call: sent at once, 64 MiB would have to leave within it.
    """

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options, blocksize=BLOCK // 4)

    def send(self, request: PreparedRequest, *arguments: Any, **options: Any) -> Response:
        if isinstance(request.body, bytes) and len(request.body) > BLOCK:
            # The Content-Length is there already; the bytes are not copied.
            request.body = io.BytesIO(request.body)
        return super().send(request, *arguments, **options)
