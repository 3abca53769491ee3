"""Idempotency keys replay the stored response until they expire."""

import pytest

from pipelines import idempotency
from pipelines.idempotency import IdempotentRequest
from storage.catalog import idempotency as catalog_idempotency
from storage.catalog import now_us
from storage.errors import ConflictError
from storage.stores import Stores

pytestmark = pytest.mark.spec("BUN-44")

ASKED = IdempotentRequest("somebody@example.org", "key", "digest")


def test_response_is_stored_until_expiry(stores: Stores) -> None:
    with stores.catalog.write() as tx:
        idempotency.store_response(tx, ASKED, "first")
        idempotency.store_response(tx, None, "not kept")
    with stores.catalog.read() as tx:
        assert idempotency.find_stored_response(tx, ASKED) == "first"
        assert idempotency.find_stored_response(tx, None) is None
        now = now_us(tx)
    idempotency.expire_responses(stores, now - 60_000_000)
    with stores.catalog.read() as tx:
        assert idempotency.find_stored_response(tx, ASKED) == "first"
    idempotency.expire_responses(stores, now + 60_000_000)
    with stores.catalog.read() as tx:
        assert idempotency.find_stored_response(tx, ASKED) is None


def test_expires_in_bounded_statements(stores: Stores) -> None:
    with stores.catalog.write() as tx:
        for number in range(catalog_idempotency.EXPIRE_BATCH + 5):
            idempotency.store_response(tx, IdempotentRequest("a", str(number), "d"), "x")
        now = now_us(tx)
    idempotency.expire_responses(stores, now + 60_000_000)
    with stores.catalog.read() as tx:
        assert all(
            catalog_idempotency.find(tx, "a", str(n)) is None
            for n in (0, catalog_idempotency.EXPIRE_BATCH + 4)
        )


def test_a_key_that_two_requests_used_at_once_is_the_first_one_s(stores: Stores) -> None:
    with stores.catalog.write() as tx:
        idempotency.store_response(tx, ASKED, "first")
    with pytest.raises(ConflictError), stores.catalog.write() as tx:
        idempotency.store_response(tx, ASKED, "second")
