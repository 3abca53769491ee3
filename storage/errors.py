"""What can go wrong, by meaning. Nothing here knows HTTP; `api/errors.py` gives each a status.

StoreError
├── Invalid                 the request itself is wrong
├── Unauthorized            no acceptable identity
├── Forbidden               an identity that may not
├── NotFound                what was named does not exist
├── Conflict                what exists forbids it
├── Unprocessable           well-formed, but what it names does not hold
├── TooLarge                beyond a limit on size
├── TooMany                 beyond a limit on number or rate
├── NotAcceptable           beyond a quota of the owner
├── RangeNotSatisfiable     a range that lies outside of the object
├── UnsupportedMediaType    a body of a type that is not read here
├── Unavailable             cannot now, may later
├── Damaged                 what is stored is not what was written
├── TimedOut                took longer than it may
├── AlreadyExists           a conditional create found the key taken (blob stores only)
├── SourceChanged           a pinned object is no longer the one that was pinned
└── Lost                    the claim on a to-do row is no longer ours
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class StoreError(Exception):
    """Base of all errors that a caller may see; `code` is the word the interface gives it."""

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


class Invalid(StoreError):
    """The request is wrong; `errors` maps a JSON pointer or parameter to messages."""

    code = "illegal_arguments"


@contextmanager
def within(pointer: str) -> Iterator[None]:
    """What is Invalid in the block is so in this part of the body: pointers begin there."""
    try:
        yield
    except Invalid as error:
        below = {pointer + where.rstrip("/"): said for where, said in error.errors.items()}
        errors = below or {pointer: [error.detail]}
        raise Invalid(error.detail, code=error.code, errors=errors) from error


class Unauthorized(StoreError):
    """No acceptable identity came with the request."""

    code = "unauthorized"


class Forbidden(StoreError):
    """The identity is known and may not."""

    code = "forbidden"


class NotFound(StoreError):
    """What was named does not exist here."""

    code = "not_found"


class Conflict(StoreError):
    """What exists already forbids it."""

    code = "already_exists"


class Unprocessable(StoreError):
    """The request is well-formed, but something it names does not hold."""

    code = "invalid_checksum"


class TooLarge(StoreError):
    """Beyond a limit on size."""

    code = "too_large"


class TooMany(StoreError):
    """Beyond a limit on rate."""

    code = "too_many_requests"


class NotAcceptable(StoreError):
    """Beyond a quota of its owner."""

    code = "not_acceptable"


class RangeNotSatisfiable(StoreError):
    """The byte range lies outside of the object."""

    code = "range_not_satisfiable"


class UnsupportedMediaType(StoreError):
    """The body is of a type that this operation does not read."""

    code = "unsupported_media_type"


class Unavailable(StoreError):
    """Cannot be done now, may be later."""

    code = "service_unavailable"


class Waits(Unavailable):
    """Waits for other work of ours, not for an engine: to be looked at again after
    `retry_after_s`, or as soon as the work on `until`, a to-do row's reference, wakes it."""

    def __init__(self, detail: str, *, retry_after_s: int, until: str | None = None) -> None:
        super().__init__(detail, retry_after_s=retry_after_s)
        self.until = until


class Damaged(StoreError):
    """Stored bytes are not what was written: waiting helps nobody, a human has to look."""


class CatalogDamaged(StoreError):
    """The catalog's file cannot be read as one: an operator has to restore it. It is no `Damaged`,
    which stands for one stored object and has it repaired."""


class TimedOut(StoreError):
    """Took longer than it may."""

    code = "timed_out"


class AlreadyExists(StoreError):
    """A conditional create found the key taken."""

    code = "already_exists"


class SourceChanged(StoreError):
    """A pinned object is no longer the one that was pinned."""

    code = "checksum_mismatch"


class Lost(StoreError):
    """The claim on a to-do row is no longer ours: roll back, somebody else has it."""

    code = "internal_error"
