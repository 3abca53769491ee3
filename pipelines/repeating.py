"""Requests that may come twice: the first answer is given again under the same Idempotency-Key."""

from dataclasses import dataclass

from storage.catalog import Tx, answers
from storage.catalog.answers import Given
from storage.errors import Conflict
from storage.stores import Stores


@dataclass(frozen=True, slots=True)
class Repeatable:
    """Whose request it is, under which key; `digest` is that of all that it asks for."""

    owner: str
    key: str
    digest: str


def answered(tx: Tx, asked: Repeatable | None) -> str | None:
    """The first answer; Conflict when the key was used for another request."""
    given = None if asked is None else answers.find(tx, asked.owner, asked.key)
    if given is None or asked is None:
        return None
    if given.digest != asked.digest:
        raise Conflict("This Idempotency-Key was used for another request.", code="already_exists")
    return given.answer


def remember(tx: Tx, asked: Repeatable | None, answer: str) -> None:
    """Keep the answer, in the transaction of what it tells of; Conflict when the key was taken by a
    request that ran beside it."""
    if asked is None:
        return
    if not answers.add(tx, asked.owner, asked.key, Given(asked.digest, answer)):
        raise Conflict(
            "This Idempotency-Key is being used for another request.", code="already_exists"
        )


def forget(stores: Stores, before_us: int) -> None:
    """Forget what was answered before a moment, a bounded number at a time."""
    while True:
        with stores.catalog.write() as tx:
            if answers.forget(tx, before_us) < answers.FORGOTTEN:
                return
