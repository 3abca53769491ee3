"""Idempotency keys: store the response of a request and replay it when the request repeats."""

from dataclasses import dataclass

from storage.catalog import Tx, idempotency
from storage.catalog.idempotency import StoredResponse
from storage.errors import ConflictError
from storage.stores import Stores


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """The owner, idempotency key and digest of a request."""

    owner: str
    key: str
    digest: str


def find_stored_response(tx: Tx, request: IdempotentRequest | None) -> str | None:
    """Return the stored response; raise ConflictError if the key was used for another request."""
    response = None if request is None else idempotency.find(tx, request.owner, request.key)
    if response is None or request is None:
        return None
    if response.digest != request.digest:
        raise ConflictError(
            "This Idempotency-Key was used for another request.", code="already_exists"
        )
    return response.answer


def store_response(tx: Tx, request: IdempotentRequest | None, answer: str) -> None:
    """Store a response in the transaction of its effects.

    Raise ConflictError if a concurrent request used the key.
    """
    if request is None:
        return
    response = StoredResponse(request.digest, answer)
    if not idempotency.insert(tx, request.owner, request.key, response):
        raise ConflictError(
            "This Idempotency-Key is being used for another request.", code="already_exists"
        )


def expire_responses(stores: Stores, before_us: int) -> None:
    """Delete responses stored before a time, in batches."""
    while True:
        with stores.catalog.write() as tx:
            if idempotency.expire(tx, before_us) < idempotency.EXPIRE_BATCH:
                return
