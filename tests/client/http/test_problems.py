"""Errors of answers: one line that says what happened, and what to do."""

import pytest

from store_client.errors import Conflict, NotAllowed, NotFound, Refused, StoreError, Unreachable
from store_client.http import HttpSession
from tests.client.scripted_server import Answer, Script, problem


def refused(script: Script, session: HttpSession, answer: Answer) -> StoreError:
    script.say(answer)
    with pytest.raises(StoreError) as told:
        session.request("GET", "/v1/x")
    text = str(told.value)
    assert "\n" not in text + told.value.hint
    assert text.isprintable()
    return told.value


@pytest.mark.spec("CLI-13")
@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, Refused, 3),
        (401, NotAllowed, 4),
        (403, NotAllowed, 4),
        (404, NotFound, 5),
        (406, Refused, 3),
        (409, Conflict, 6),
        (422, Refused, 3),
        (500, Unreachable, 7),
        (501, Unreachable, 7),
    ],
)
def test_a_status_has_its_error_and_its_exit_code(
    script: Script, session: HttpSession, status: int, kind: type[StoreError], code: int
) -> None:
    error = refused(script, session, problem(status, "some_code", "So it is."))
    assert type(error) is kind
    assert error.exit_code == code
    assert str(error) == "Title: So it is"
    if isinstance(error, Refused):
        assert (error.status, error.code) == (status, "some_code")


@pytest.mark.spec("CLI-13")
def test_the_arguments_that_are_wrong_are_named(script: Script, session: HttpSession) -> None:
    errors = {"/files/0/uuid": ["Not a valid UUID."], "replica": ["Must be one of: aws, gcp."]}
    answer = problem(400, "illegal_arguments", "Wrong arguments", errors=errors)
    error = refused(script, session, answer)
    assert str(error) == (
        "Title: Wrong arguments"
        " (/files/0/uuid: Not a valid UUID.; replica: Must be one of: aws, gcp.)"
    )


@pytest.mark.spec("CLI-13")
@pytest.mark.parametrize(
    ("status", "code", "hint"),
    [
        (401, "unauthorized", "store login"),
        (403, "forbidden", "store whoami"),
        (404, "not_found", "check"),
        (409, "file_pending", "verified"),
        (409, "bundle_already_exists", "create-version"),
        (409, "area_locked", "unlock"),
        (413, "quota_exceeded", "ask the operators"),
        (400, "illegal_version", "create-version"),
        (405, "method_not_allowed", "clear-cache"),
    ],
)
def test_refusal_has_hint(
    script: Script, session: HttpSession, status: int, code: str, hint: str
) -> None:
    assert hint in refused(script, session, problem(status, code, "No.")).hint


@pytest.mark.spec("CLI-13")
def test_reports_wait_and_request_id(script: Script, session: HttpSession) -> None:
    answer = problem(409, "file_pending", "Not yet.")
    later = Answer(answer.status, answer.body, {**answer.headers, "Retry-After": "2"})
    assert "not before 2 s" in refused(script, session, later).hint
    fault = Answer(501, b"", {"X-Request-Id": "abc"})
    assert "abc" in refused(script, session, fault).hint


@pytest.mark.spec("CLI-14")
def test_errors_of_the_token_end_point_are_understood(script: Script, session: HttpSession) -> None:
    body = b'{"error": "invalid_grant", "error_description": "The code is not valid any more."}'
    error = refused(script, session, Answer(400, body))
    assert str(error) == "invalid_grant: The code is not valid any more"
    assert isinstance(error, Refused)
    assert error.code == "invalid_grant"


@pytest.mark.spec("CLI-14")
def test_errors_of_object_storage_are_understood(script: Script, session: HttpSession) -> None:
    body = b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"
    error = refused(script, session, Answer(403, body, {"Content-Type": "application/xml"}))
    assert str(error) == "AccessDenied: Request has expired"


@pytest.mark.spec("CLI-14")
@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (502, b"<html><body>Bad Gateway</body></html>", "text/html; charset=utf-8"),
        (404, b"<html>\x1b[2Jgone</html>", "text/html"),
        (404, b"", "text/plain"),
        (418, b"[1, 2]", "application/json"),
        (400, b"\xff\xfe{", "application/json"),
        (799, b"x", "text/plain"),
    ],
)
def test_non_problem_body_is_one_line(
    script: Script, session: HttpSession, status: int, body: bytes, kind: str
) -> None:
    error = refused(script, session, Answer(status, body, {"Content-Type": kind}))
    assert str(status) in str(error)
    assert script.url in str(error)
    assert ("page" in str(error)) == ("html" in kind)


@pytest.mark.spec("CLI-14")
def test_texts_of_a_server_cannot_move_the_cursor_or_fill_the_screen(
    script: Script, session: HttpSession
) -> None:
    error = refused(script, session, problem(404, "x", "a\n\x1b[31mb" + "c" * 5000))
    assert "\x1b" not in str(error)
    assert len(str(error)) < 600
