"""Which answers the fuzzer reports as faults."""

import pytest
from schemathesis.core.failures import ServerError
from schemathesis.openapi.checks import AllowHeaderMismatch, UnsupportedMethodResponse

from tests.drill.fuzz_report import Findings

DOCUMENT = {
    "paths": {
        "/collections": {
            "get": {"operationId": "get_collections", "responses": {"200": {}, "default": {}}}
        },
        "/things/{uuid}": {
            "put": {"operationId": "put_thing", "responses": {"201": {}, "400": {}, "503": {}}}
        },
    }
}
GET, PUT = "GET /collections", "PUT /things/{uuid}"


@pytest.fixture
def findings() -> Findings:
    found = Findings.of(DOCUMENT)
    found.answered(GET, 200, "")
    found.answered(PUT, 201, "")
    return found


def test_named_status_is_no_fault(findings) -> None:
    findings.answered(PUT, 400, "")
    findings.answered(PUT, 503, "", retry_after=True)
    assert findings.faults(4) == []


def test_a_status_that_is_not_named_is_a_fault_even_where_others_are_allowed(findings) -> None:
    findings.answered(GET, 409, "the request")
    assert findings.faults(0) == [f"{GET}: 409 is not named (1×)\nthe request"]


def test_other_method_may_have_other_statuses(findings) -> None:
    findings.answered(GET, 405, "", own=False)
    assert findings.faults(0) == []


def test_server_error_needs_retry_after(findings) -> None:
    findings.answered(PUT, 503, "")
    assert [fault.partition("\n")[0] for fault in findings.faults(0)] == [
        f"{PUT}: 503 without Retry-After (1×)"
    ]


def test_too_few_requests_are_a_fault(findings) -> None:
    assert findings.faults(3) == ["only 2 requests were answered"]


def test_an_operation_that_only_refused_was_not_reached() -> None:
    found = Findings.of(DOCUMENT)
    found.answered(PUT, 400, "")
    assert found.faults(0) == ["get_collections: never reached", "put_thing: never reached"]


def test_only_aliases_are_excused(findings) -> None:
    def wrong_method(method: str) -> UnsupportedMethodResponse:
        return UnsupportedMethodResponse(
            operation="", method=method, status_code=400, failure_reason="", message=""
        )

    def wrong_allow(*extra: str) -> AllowHeaderMismatch:
        return AllowHeaderMismatch(
            operation="",
            allow_header="",
            missing_methods=[],
            undocumented_methods=[*extra],
            message="",
        )

    findings.failed(GET, "unsupported_method", wrong_method("PATCH"), "")
    findings.failed(GET, "allow_header_conformance", wrong_allow("PATCH"), "")
    findings.failed(PUT, "not_a_server_error", ServerError(operation="", status_code=503), "")
    assert findings.faults(0) == []
    findings.failed(GET, "unsupported_method", wrong_method("DELETE"), "")
    findings.failed(PUT, "unsupported_method", wrong_method("PATCH"), "")
    findings.failed(GET, "allow_header_conformance", wrong_allow("DELETE", "PATCH"), "")
    assert len(findings.faults(0)) == 3


def test_the_table_counts_answers_by_their_class(findings) -> None:
    findings.answered(PUT, 400, "")
    head, gets, puts = findings.table().splitlines()
    assert head.split() == ["operation", "2xx", "3xx", "4xx", "5xx"]
    assert gets.split() == ["get_collections", "1", "-", "-", "-"]
    assert puts.split() == ["put_thing", "1", "-", "1", "-"]
