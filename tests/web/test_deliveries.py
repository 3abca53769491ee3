"""Pages of the delivery log: list, one delivery with its attempts, resend and retry."""

import re

import pytest

from pipelines import formats
from storage.catalog import deliveries
from storage.catalog.deliveries import AttemptResult, DeliveryState
from storage.catalog.subscriptions import Subscription
from storage.stores import Stores
from tests.subscription_builders import backlog, happen, match, states, subscribe, tell, told
from tests.web.conftest import Visit, text_of

READER = "reader@example.org"


@pytest.fixture
def own(stores: Stores) -> Subscription:
    return subscribe(stores.catalog, "https://receiver.example/hook?x=1", owner=READER)


def log_of(own: Subscription) -> str:
    return f"/subscriptions/{own.uuid}/deliveries"


def attempt(
    stores: Stores,
    own: Subscription,
    *,
    state: DeliveryState = "failed",
    status: int | None = 500,
    body: str | None = "oops",
    error: str | None = None,
) -> str:
    """One attempt of the only delivery."""
    (one,) = told(stores.catalog, own)
    result = AttemptResult(
        one.id, 1_767_225_600_000_000, 0.25, status, error, body, state, 0, error or "given up"
    )
    with stores.catalog.write() as tx:
        deliveries.record_attempts(tx, [result])
    return one.uuid


def test_log_is_paged_and_filtered(visit: Visit, stores: Stores, own: Subscription) -> None:
    tell(stores.catalog, [own], times=52)
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE deliveries SET state = 'failed' WHERE id % 26 = 0")
    visitor, path, seen = visit("reader"), log_of(own), list[str]()
    url = path
    while url:
        page = visitor.get(url)
        assert page.status_code == 200
        seen += re.findall(rf'href="{path}/([0-9a-f-]{{36}})"', page.text)
        following = re.search(r'href="([^"]+)" rel="next"', page.text)
        url = following[1].replace("&amp;", "&") if following else ""
    assert seen == [one.uuid for one in told(stores.catalog, own)][::-1]
    failed = visitor.get(f"{path}?state=failed&event_type=&bundle_uuid=")
    assert len(re.findall(rf'href="{path}/[0-9a-f-]{{36}}"', failed.text)) == 2
    bundle = told(stores.catalog, own)[0].bundle_uuid
    about = visitor.get(f"{path}?bundle_uuid={bundle}")
    assert len(re.findall(rf'href="{path}/[0-9a-f-]{{36}}"', about.text)) == 1
    assert "No deliveries of this kind." in visitor.get(f"{path}?event_type=DELETE").text
    assert visitor.get(f"{path}?state=nonsense").status_code == 400


def test_delivery_shows_request_response_timing_and_next_attempt(
    visit: Visit, stores: Stores, own: Subscription
) -> None:
    tell(stores.catalog, [own])
    ident = attempt(stores, own, state="pending", body="<b>hostile</b>")
    page = visit("reader").get(f"{log_of(own)}/{ident}")
    shown = text_of(page)
    assert "Attempt 1: 500 · 2026-01-01 00:00:00 UTC · 0.250 s" in shown
    assert "&lt;b&gt;hostile&lt;/b&gt;" in page.text
    assert "<b>hostile" not in page.text
    assert "POST https://receiver.example/hook?x=1" in shown
    assert f"webhook-id: {ident}" in shown
    assert "X-STORE-NOTIFY-ATTEMPT: 1" in shown
    assert "Next attempt" in shown
    assert "Requests are not stored" in shown


def test_delivery_without_answer_shows_the_error(
    visit: Visit, stores: Stores, own: Subscription
) -> None:
    tell(stores.catalog, [own])
    ident = attempt(stores, own, status=None, body=None, error="The connection was refused.")
    shown = text_of(visit("reader").get(f"{log_of(own)}/{ident}"))
    assert "Attempt 1: no answer" in shown
    assert "The connection was refused." in shown


def test_delivery_of_failed_query_has_nothing_to_resend(
    visit: Visit, stores: Stores, own: Subscription
) -> None:
    match(stores.catalog, happen(stores.catalog), own, failure="abs() got a string")
    (one,) = told(stores.catalog, own)
    path = f"{log_of(own)}/{one.uuid}"
    page = visit("reader").get(path)
    assert "Nothing can be sent" in page.text
    assert "resend" not in page.text
    refused = visit("reader").post(f"{path}/resend")
    assert refused.status_code == 409
    assert "nothing to send" in refused.text


@pytest.mark.parametrize("state", ["active", "paused", "disabled"])
def test_resends_whatever_the_state_of_the_subscription(
    visit: Visit, stores: Stores, own: Subscription, job_queue, state: str
) -> None:
    tell(stores.catalog, [own])
    ident = attempt(stores, own)
    with stores.catalog.write() as tx:
        tx.exec_driver_sql(f"UPDATE subscriptions SET state = '{state}'")
    page = visit("reader").post(f"{log_of(own)}/{ident}/resend")
    assert page.headers["Location"] == f"{log_of(own)}/{ident}"
    (one,) = told(stores.catalog, own)
    assert (one.state, one.resent_from) == ("pending", "failed")
    assert one.next_us is not None
    assert job_queue.sent[-1][0].ref == str(own.endpoint_id)
    assert "data-pending" in visit("reader").get(f"{log_of(own)}/{ident}").text


def test_paused_deliveries_say_what_they_wait_for(
    visit: Visit, stores: Stores, own: Subscription
) -> None:
    tell(stores.catalog, [own])
    with stores.catalog.write() as tx:
        tx.exec_driver_sql("UPDATE subscriptions SET state = 'paused'")
    assert "when the subscription is resumed" in text_of(visit("reader").get(log_of(own)))


def test_retries_all_that_failed_since(visit: Visit, stores: Stores, own: Subscription) -> None:
    backlog(stores.catalog, own, 3)
    with stores.catalog.write() as tx:
        tx.exec_driver_sql(
            "UPDATE deliveries SET state = 'failed', finished_us = 1767225600000000 + id"
        )
    visitor, path = visit("reader"), f"{log_of(own)}/retry"
    assert visitor.post(path, since="2026-01-02T00:00").status_code == 303
    assert states(stores.catalog, own) == ["failed"] * 3
    assert visitor.post(path, since="2026-01-01T00:00").status_code == 303
    assert states(stores.catalog, own) == ["pending"] * 3
    assert "3 deliveries are due now." in visitor.get(log_of(own)).text
    assert visitor.post(path, since="yesterday").status_code == 400


@pytest.mark.parametrize("person", ["other", "ingest"])
def test_deliveries_of_others_are_not_found(
    visit: Visit, stores: Stores, own: Subscription, person: str
) -> None:
    tell(stores.catalog, [own])
    ident = attempt(stores, own)
    visitor = visit(person)
    assert visitor.get(log_of(own)).status_code == 404
    assert visitor.get(f"{log_of(own)}/{ident}").status_code == 404
    assert visitor.post(f"{log_of(own)}/{ident}/resend").status_code == 404
    assert visitor.post(f"{log_of(own)}/retry").status_code == 404
    assert states(stores.catalog, own) == ["failed"]


def test_unknown_delivery_is_not_found(visit: Visit, own: Subscription) -> None:
    assert visit("reader").get(f"{log_of(own)}/{formats.new_uuid()}").status_code == 404


def test_delivery_of_another_subscription_is_not_found(
    visit: Visit, stores: Stores, own: Subscription
) -> None:
    second = subscribe(stores.catalog, "https://receiver.example/", owner=READER)
    tell(stores.catalog, [own])
    (one,) = told(stores.catalog, own)
    assert visit("reader").get(f"{log_of(second)}/{one.uuid}").status_code == 404
