"""Calls that are made without the client: how they are signed, and when they are left to it."""

from collections import deque
from typing import Any

import pytest

from storage.blobs.s3_direct import Call, Direct, _signed
from storage.blobs.s3_signing import Credentials, Place
from storage.errors import AlreadyExists, NotFound, SourceChanged, Unavailable

WHO = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
PLACE = Place("http://examplebucket.s3.amazonaws.com", "us-east-1")
ETAG = '"900150983cd24fb0d6963f7d28e17f72"'


class Answer:
    """What the client's session answers with."""

    def __init__(self, status: int, headers: dict[str, str] | None = None, body: str = "") -> None:
        self.status_code, self.headers, self.content = status, headers or {}, body.encode()


class Session:
    """Answers in turn, the last one for ever; keeps what it was asked."""

    def __init__(self, *answers: Answer) -> None:
        self.answers, self.asked = deque(answers), []  # type: ignore[var-annotated]

    def send(self, request: Any) -> Answer:
        self.asked.append(request)
        return self.answers.popleft() if len(self.answers) > 1 else self.answers[0]


def direct(session: Session) -> Direct:
    return Direct(session, lambda _bucket: PLACE, lambda: WHO)


def test_the_signature_is_that_of_the_services_own_example() -> None:
    call = Call("GET", f"{PLACE.base}/test.txt", "", {"range": "bytes=0-9"}, b"")
    headers = _signed(call, PLACE.region, WHO, now=1369353600.0)
    assert headers["x-amz-date"] == "20130524T000000Z"
    assert headers["authorization"].endswith(
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )


def test_a_key_is_spelled_in_the_url_and_a_version_in_the_query() -> None:
    session = Session(Answer(200, {"ETag": ETAG, "content-length": "3", "x-amz-meta-A": "b"}))
    reply = direct(session).ask("head_object", "examplebucket", "a b/ü~", {"VersionId": "v+1"})
    assert session.asked[0].url == f"{PLACE.base}/a%20b/%C3%BC~?versionId=v%2B1"
    assert reply == {"Metadata": {"a": "b"}, "ETag": ETAG, "ContentLength": 3}


def test_a_copy_that_began_well_and_failed_is_left_to_the_client() -> None:
    failed = Answer(200, body="<Error><Code>InternalError</Code></Error>")
    source = {"CopySource": {"Bucket": "b", "Key": "k"}}
    assert direct(Session(failed)).ask("copy_object", "examplebucket", "k", source) is None
    broken = Answer(200, body="")
    broken.content = b"<CopyObjectResult><ETag>\xff"
    assert direct(Session(broken)).ask("copy_object", "examplebucket", "k", source) is None
    done = Answer(200, body="<CopyObjectResult><ETag>&quot;e&quot;</ETag></CopyObjectResult>")
    reply = direct(Session(done)).ask("copy_object", "examplebucket", "k", source)
    assert reply is not None
    assert reply["CopyObjectResult"] == {"ETag": '"e"'}


def test_what_has_one_meaning_is_said_at_once() -> None:
    with pytest.raises(NotFound):
        direct(Session(Answer(404))).ask("head_object", "examplebucket", "k", {})
    with pytest.raises(AlreadyExists):
        direct(Session(Answer(412))).ask("put_object", "examplebucket", "k", {"IfNoneMatch": "*"})
    with pytest.raises(SourceChanged):
        direct(Session(Answer(412))).ask("head_object", "examplebucket", "k", {"IfMatch": ETAG})


@pytest.mark.parametrize(
    ("verb", "bucket", "wanted"),
    [
        ("delete_object", "examplebucket", {}),
        ("put_object", "examplebucket", {"Tagging": "a=b"}),
        ("put_object", "arn:aws:s3:us-east-1:1:accesspoint/a", {}),
        ("put_object", "name--use1-az4--x-s3", {}),
    ],
)
def test_what_it_does_not_know_is_the_clients(
    verb: str, bucket: str, wanted: dict[str, str]
) -> None:
    session = Session(Answer(200))
    assert direct(session).ask(verb, bucket, "k", wanted) is None
    assert session.asked == []


def test_after_failures_in_a_row_the_client_is_asked_alone() -> None:
    session = Session(Answer(503))
    one = direct(session)
    assert [one.ask("head_object", "examplebucket", "k", {}) for _ in range(5)] == [None] * 5
    assert len(session.asked) == 3


def test_without_credentials_the_client_says_so() -> None:
    def nobody() -> Credentials:
        raise Unavailable("there are none")

    one = Direct(Session(Answer(200)), lambda _bucket: PLACE, nobody)
    assert one.ask("head_object", "examplebucket", "k", {}) is None


def test_who_signs_tells_no_secrets() -> None:
    assert WHO.secret_key not in repr(WHO)
    assert "token" not in repr(Credentials("a", "b", "token of a session"))
