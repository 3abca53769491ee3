"""Domain errors, without HTTP, and how commands report them to operators."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from config import SettingsError


class DomainError(Exception):
    """Base of all errors that a caller may see; `code` is the API's word for it."""

    code = "internal_error"

    def __init__(
        self,
        detail: str,
        *,
        code: str | None = None,
        errors: Mapping[str, list[str]] | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or type(self).code
        self.errors = dict(errors or {})
        self.retry_after_s = retry_after_s


class Invalid(DomainError):
    """The request is wrong; `errors` maps a JSON pointer or parameter to messages."""

    code = "illegal_arguments"


@contextmanager
def prefix_pointers(pointer: str) -> Iterator[None]:
    """Prefix the JSON pointers of Invalid errors raised in the block."""
    try:
        yield
    except Invalid as error:
        below = {pointer + at.rstrip("/"): messages for at, messages in error.errors.items()}
        errors = below or {pointer: [error.detail]}
        raise Invalid(error.detail, code=error.code, errors=errors) from error


class Unauthorized(DomainError):
    """No acceptable identity came with the request."""

    code = "unauthorized"


class Forbidden(DomainError):
    """The principal is known but lacks permission."""

    code = "forbidden"


class NotFoundError(DomainError):
    """The named thing does not exist."""

    code = "not_found"


class ConflictError(DomainError):
    """The request conflicts with existing state."""

    code = "already_exists"


class Unprocessable(DomainError):
    """The request is well-formed, but something it names is not valid."""

    code = "invalid_checksum"


class TooLarge(DomainError):
    """A size limit is exceeded."""

    code = "too_large"


class QuotaExceeded(TooLarge):
    """A quota has no room for the request; `quota` says whose it is, and what is left of it."""

    code = "quota_exceeded"

    def __init__(self, detail: str, quota: Mapping[str, str | int]) -> None:
        super().__init__(detail)
        self.quota = dict(quota)


class TooManyRequests(DomainError):
    """A rate limit is exceeded."""

    code = "too_many_requests"


class NotAcceptable(DomainError):
    """A quota of the owner is exceeded."""

    code = "not_acceptable"


class RangeNotSatisfiable(DomainError):
    """The byte range is outside the object."""

    code = "range_not_satisfiable"


class UnsupportedMediaType(DomainError):
    """This operation does not accept bodies of this type."""

    code = "unsupported_media_type"


class Unavailable(DomainError):
    """Temporarily impossible; a retry may succeed."""

    code = "service_unavailable"


class NotReady(Unavailable):
    """Waits for other work of the store, not for an engine.

    The job is retried after `retry_after_s`, or as soon as the work on reference `until` wakes it.
    """

    def __init__(self, detail: str, *, retry_after_s: int, until: str | None = None) -> None:
        super().__init__(detail, retry_after_s=retry_after_s)
        self.wakes_on = until


class DamagedObjectError(DomainError):
    """Stored bytes differ from what was written; retries do not help."""


class CatalogDamagedError(DomainError):
    """The catalog's file is damaged: an operator has to restore it.

    Not a DamagedObjectError, which names one object and triggers its repair.
    """


class TimeLimitExceeded(DomainError):
    """A time or step limit is exceeded."""

    code = "timed_out"


class AlreadyExists(DomainError):
    """A conditional create found that the key exists."""

    code = "already_exists"


class SourceChanged(DomainError):
    """A pinned object has changed."""

    code = "checksum_mismatch"


class ClaimLost(DomainError):
    """The claim on a job is no longer ours: roll back, another worker has it."""

    code = "internal_error"


RESTORE_HINT = "restore a backup, or rebuild it with `python -m ops rebuild catalog`"


@contextmanager
def exit_on_error(code_of: Callable[[Exception], int]) -> Iterator[None]:
    """End the process with a message and an exit code if the block fails."""
    try:
        yield
    except (SettingsError, DomainError, OSError) as error:
        sys.stderr.write(f"Error: {explain_error(error)}\n")
        sys.exit(code_of(error))


def explain_error(error: Exception) -> str:
    """Return the message for operators, with the cause; API users do not see the cause."""
    if isinstance(error, DomainError):
        return _explain_domain_error(error)
    if isinstance(error, OSError) and error.strerror:
        named = f"{error.filename}: " if error.filename else ""
        return f"{named}{error.strerror}"
    return str(error)


def _explain_domain_error(error: DomainError) -> str:
    cause = getattr(error.__cause__, "orig", None) or error.__cause__
    cause_lines = str(cause).strip().splitlines() if cause is not None else []
    message = error.detail
    if cause_lines and cause_lines[0] not in message:
        message = f"{message.rstrip('.')}: {cause_lines[0]}"
    return f"{message}; {RESTORE_HINT}" if isinstance(error, CatalogDamagedError) else message
