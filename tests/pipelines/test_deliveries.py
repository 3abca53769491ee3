"""One delivery attempt: the exact request, and the result of each response."""

import email.policy
from collections.abc import Sequence
from dataclasses import replace
from email.parser import BytesParser
from random import Random

import pytest

from config import Settings
from pipelines import deliveries
from pipelines.deliveries import WebhookResponse, build_request, build_result
from storage.catalog.deliveries import AttemptResult
from storage.catalog.endpoints import Endpoint
from tests.pipelines.delivery_builders import NOW_US, a_due

DELAYS = (0.0, 60.0, 600.0)
CAP_S = 3600.0
STARTED_US = NOW_US - 1_000_000


def judged(
    answer: WebhookResponse,
    attempt: int = 1,
    *,
    seed: int = 0,
    delays: Sequence[float] = DELAYS,
    seconds: float = 1,
) -> AttemptResult:
    return build_result(
        replace(a_due(), attempts=attempt - 1),
        answer,
        at_us=STARTED_US,
        now_us=NOW_US,
        seconds=seconds,
        delays=delays,
        rng=Random(seed),
        retry_after_cap_s=CAP_S,
    )


def delay_s(result: AttemptResult) -> float:
    assert result.state == "pending"
    return (result.due_us - NOW_US) / 1e6


@pytest.mark.spec("NOT-01", "NOT-02")
def test_json_is_the_payload_as_it_was_fixed() -> None:
    request = build_request(a_due(method="PUT"), attempt=1, now_us=NOW_US)
    assert (request.method, request.url) == ("PUT", "https://receiver.example/hook?x=1")
    assert request.body == a_due().payload.encode()
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["Host"] == "receiver.example"


def form(**given: object) -> dict[str, str]:
    """The fields of a multipart request, as another parser reads them."""
    request = build_request(
        a_due(encoding="multipart/form-data", **given), attempt=1, now_us=NOW_US
    )
    head = f"Content-Type: {request.headers['Content-Type']}\r\n\r\n".encode()
    parsed = BytesParser(policy=email.policy.HTTP).parsebytes(head + request.body)
    assert parsed.is_multipart()
    return {
        str(part.get_param("name", header="content-disposition")): part.get_payload(
            decode=True
        ).decode()
        for part in parsed.iter_parts()
    }


@pytest.mark.spec("NOT-02")
def test_multipart_has_static_fields_and_payload() -> None:
    assert form(form_fields={"token": "t ö", "x": "1\r\n2"}, payload_form_field="event") == {
        "token": "t ö",
        "x": "1\r\n2",
        "event": a_due().payload,
    }


@pytest.mark.spec("NOT-02")
def test_multipart_is_built_exactly() -> None:
    due = a_due(encoding="multipart/form-data", form_fields={'a"b\r\n': "1"}, payload="{}")
    request = build_request(due, attempt=1, now_us=NOW_US)
    boundary = "store-22222222222242228222222222222222"
    assert request.headers["Content-Type"] == f"multipart/form-data; boundary={boundary}"
    assert (
        request.body
        == (
            f'--{boundary}\r\nContent-Disposition: form-data; name="a%22b%0D%0A"\r\n\r\n1\r\n'
            f'--{boundary}\r\nContent-Disposition: form-data; name="payload"\r\n\r\n{{}}\r\n'
            f"--{boundary}--\r\n"
        ).encode()
    )


@pytest.mark.spec("NOT-02")
def test_the_boundary_is_nowhere_in_what_it_separates() -> None:
    clash = "--store-22222222222242228222222222222222\r\n"
    assert form(form_fields={"a": clash})["a"] == clash


@pytest.mark.spec("NOT-16", "STA-03")
@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_any_2xx_is_delivered(status: int) -> None:
    result = judged(WebhookResponse(status=status))
    assert (result.state, result.due_us, result.reason) == ("delivered", STARTED_US, None)


@pytest.mark.spec("NOT-16", "NOT-17", "STA-04")
@pytest.mark.parametrize(
    "answer",
    [WebhookResponse(status=n) for n in (199, 300, 302, 400, 404, 410, 500, 503)]
    + [WebhookResponse(error="no")],
)
def test_anything_else_is_tried_again_while_attempts_remain(answer: WebhookResponse) -> None:
    assert 60 <= delay_s(judged(answer)) <= 66
    assert 600 <= delay_s(judged(answer, 2)) <= 660
    assert judged(answer, 3).state == judged(answer, 4).state == "failed"


@pytest.mark.spec("NOT-17")
def test_retry_times_are_jittered() -> None:
    assert len({delay_s(judged(WebhookResponse(status=500), seed=seed)) for seed in range(20)}) > 15


@pytest.mark.spec("NOT-18")
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120),
        (" 7 ", 7),
        ("0", 1),
        ("99999", CAP_S),
        ("Thu, 01 Jan 2026 00:05:00 GMT", 300),
        ("Thu, 01 Jan 2026 00:00:00 GMT", 1),
        ("Wed, 01 Jan 2025 00:00:00 GMT", 1),
        ("Fri, 01 Jan 2038 00:00:00 GMT", CAP_S),
    ],
)
def test_retry_after_is_honoured_within_bounds(status: int, header: str, seconds: float) -> None:
    assert delay_s(judged(WebhookResponse(status=status, retry_after=header))) == seconds


@pytest.mark.spec("NOT-18")
@pytest.mark.parametrize("header", ["", "soon", "-5", "1.5", "9" * 40, "Thu, 99 Foo", None])
def test_ignores_invalid_retry_after(header: str | None) -> None:
    assert 60 <= delay_s(judged(WebhookResponse(status=503, retry_after=header))) <= 66


@pytest.mark.spec("NOT-18")
def test_retry_after_of_other_answers_is_passed_over() -> None:
    assert 60 <= delay_s(judged(WebhookResponse(status=500, retry_after="5"))) <= 66


def test_a_result_is_fit_for_the_catalog() -> None:
    answer = WebhookResponse(status=500, body=b"\xff\x00ok")
    result = judged(answer, seconds=0.12345678)
    assert (result.state, result.status, result.body) == ("pending", 500, "\ufffd\ufffdok")
    assert result.seconds == 0.123457
    lost = WebhookResponse(error="half \ud800 \x00")
    given_up = judged(lost, 3)
    assert (given_up.state, given_up.body) == ("failed", None)
    assert given_up.error == given_up.reason == "half ? \ufffd"


FRESH = Endpoint(id=1, failures=0, width=4, resume_us=0)


def test_a_window_doubles_up_to_32_and_halves_on_failure() -> None:
    endpoint = FRESH
    for _ in range(4):
        endpoint = deliveries.record_success(endpoint)
    assert deliveries.concurrency_limit(endpoint) == 8
    for _ in range(100):
        endpoint = deliveries.record_success(endpoint)
    assert deliveries.concurrency_limit(endpoint) == 32
    assert deliveries.concurrency_limit(deliveries.record_failure(endpoint, now_us=NOW_US)) == 16


def test_after_five_failures_one_probe_at_a_time_with_growing_pauses() -> None:
    endpoint, pauses = FRESH, []
    for _ in range(4):
        endpoint = deliveries.record_failure(endpoint, now_us=NOW_US)
    assert not deliveries.is_probing(endpoint)
    for _ in range(20):
        endpoint = deliveries.record_failure(endpoint, now_us=NOW_US)
        pauses.append((endpoint.resume_us - NOW_US) / 1e6)
    assert deliveries.concurrency_limit(endpoint) == 1
    assert pauses[:6] == [0.5, 1, 2, 4, 8, 10]
    assert pauses[-1] == 10
    again = deliveries.record_success(endpoint)
    assert not deliveries.is_probing(again)
    assert (again.resume_us, deliveries.concurrency_limit(again)) == (0, 2)


@pytest.mark.spec("NOT-17", "NOT-19", "STA-04")
def test_the_schedule_is_that_of_the_contract() -> None:
    settings = Settings()
    assert settings.delivery_delays_s == (0, 60, 600, 3600, 21600, 60540, *[86400] * 6)
    assert settings.delivery_timeout_s == 10
    waited = []
    for attempt in range(1, 13):
        result = judged(WebhookResponse(status=500), attempt, delays=settings.delivery_delays_s)
        waited.append(result.due_us - NOW_US if result.state == "pending" else None)
    delays = [delay * 1_000_000 for delay in settings.delivery_delays_s[1:]]
    assert all(
        delay <= (seen or 0) <= delay * 1.1 for delay, seen in zip(delays, waited[:-1], strict=True)
    )
    assert waited[-1] is None
