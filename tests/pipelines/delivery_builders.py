"""Builders of deliveries and attempts."""

from dataclasses import replace
from typing import Any

from storage.catalog.deliveries import DueDelivery

NOW_US = 1_767_225_600_000_000


def a_due(**given: Any) -> DueDelivery:
    """A delivery that is due, to be sent as JSON."""
    plain = DueDelivery(
        id=1,
        uuid="22222222-2222-4222-8222-222222222222",
        endpoint_id=1,
        subscription_id=1,
        subscription_uuid="33333333-3333-4333-8333-333333333333",
        bundle_uuid="11111111-1111-4111-8111-111111111111",
        attempts=0,
        payload='{"transaction_id":"ä"}',
        callback_url="https://receiver.example/hook?x=1",
        method="POST",
        encoding="application/json",
        form_fields={},
        payload_form_field="payload",
        hmac_key_id=None,
        hmac_secret=None,
        deleted=False,
    )
    return replace(plain, **given)
