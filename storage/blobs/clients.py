"""Shared parts of cloud clients: limits, one client per process, bucket URLs."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import signature
from typing import Generic, TypeVar
from urllib.parse import parse_qsl, urlsplit

from config import SettingsError
from config.parsing import is_plain_url
from storage.errors import Forbidden, Invalid, NotFoundError, Unavailable, Unprocessable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CloudLimits:
    """Timeouts and attempts of cloud calls.

    `read_s` is the longest silence on a connection, not the length of a transfer; `connections` is
    the pool size of one process for one cloud.
    """

    connect_s: float = 5.0
    read_s: float = 60.0
    attempts: int = 5
    connections: int = 64


class PerProcess(Generic[T]):
    """Makes a value once per process: lazily, again in a forked child, and when `expired`."""

    def __init__(
        self, make: Callable[[], T], *, expired: Callable[[T], bool] = lambda _thing: False
    ) -> None:
        self._make, self._expired = make, expired
        self._lock = threading.Lock()
        self._made: tuple[int, T] | None = None

    def __call__(self) -> T:
        """Return this process's value."""
        with self._lock:
            made = self._made
            if made is None or made[0] != os.getpid() or self._expired(made[1]):
                made = self._made = (os.getpid(), self._make())
            return made[1]


@dataclass(frozen=True, slots=True)
class SourceAccess:
    """Credentials and endpoint for reading sources; `s3_endpoint` None means the ambient one."""

    anonymous: bool = False
    s3_endpoint: str | None = None


AMBIENT_ACCESS = SourceAccess()

CREDENTIALS_RETRY_S = 60.0
"""Seconds between two searches for credentials while there are none."""


@dataclass(frozen=True, slots=True)
class SourceReader(Generic[T]):
    """A client for reading sources, unsigned if the environment has no credentials."""

    client: T
    signed: bool
    created_at: float = field(default_factory=time.monotonic)
    anonymous: bool = False

    @property
    def is_expired(self) -> bool:
        """Return whether to look for credentials again."""
        is_searched = not (self.signed or self.anonymous)
        return is_searched and time.monotonic() - self.created_at > CREDENTIALS_RETRY_S


@contextmanager
def translate_source_errors(
    is_unreadable: Callable[[BaseException | None], bool] = lambda _cause: False,
) -> Iterator[None]:
    """Raise Unprocessable for a depositor's object that is absent or may not be read.

    `is_unreadable` decides by the cause of an Unavailable error.
    """
    try:
        yield
    except (NotFoundError, Invalid) as error:
        message = f"the source cannot be read: {error.detail}"
        raise Unprocessable(message, code="source_not_found") from error
    except (Forbidden, Unavailable) as error:
        if isinstance(error, Unavailable) and not is_unreadable(error.__cause__):
            raise
        message = f"the source cannot be read: {error.detail}"
        raise Unprocessable(message, code="source_not_readable") from error


def parse_bucket_url(url: str, scheme: str, make_server: Callable[..., T]) -> tuple[str, T]:
    """Return the bucket's name, and its server made of the options that are not empty.

    SettingsError names what is wrong, without the URL, which may hold secrets: the message is
    logged. `endpoint` and `public` must be http or https URLs.
    """
    parts, about = urlsplit(url), f"{scheme} bucket URL"
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    ends = {name: options[name] for name in ("endpoint", "public") if options.get(name)}
    if any("@" in each for each in (parts.netloc, *ends.values())):
        raise SettingsError(f"{about}: credentials are ambient, never in the URL")
    unknown = sorted(options.keys() - signature(make_server).parameters.keys())
    if unknown or parts.scheme != scheme or not parts.netloc or parts.path.strip("/"):
        expected = f"{scheme}://<bucket> is expected"
        why = f"unknown options {', '.join(unknown)}" if unknown else expected
        raise SettingsError(f"{about}: {why}")
    for name, end in ends.items():
        if not is_plain_url(end):
            raise SettingsError(f"{about}: {name} must be an http or https URL")
    return parts.netloc, make_server(**{name: value for name, value in options.items() if value})


def canonical_endpoint(base: str) -> str:
    """Return an endpoint in lower case without the default port.

    Clients differ in whether they send that port in `Host`, which is signed.
    """
    parts = urlsplit(base)
    usual = {"http": ":80", "https": ":443"}.get(parts.scheme, "")
    return parts._replace(netloc=parts.netloc.lower().removesuffix(usual)).geturl()
