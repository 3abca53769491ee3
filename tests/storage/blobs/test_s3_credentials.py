"""STS credentials for one upload area."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest.mock import patch
from urllib.parse import parse_qsl

import pytest

from storage.blobs.clients import CloudLimits
from storage.blobs.s3_credentials import make_session_policy, open_s3_issuer
from storage.errors import Unavailable
from tests.storage.blobs.backend_s3 import SIMULATED

AREA = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
PREFIX = f"areas/{AREA}/"
ROLE = "arn:aws:iam::123456789012:role/store-areas"
LIMITS = CloudLimits(connect_s=2, read_s=5, attempts=1)
GIVEN = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>
<Credentials><AccessKeyId>ASIAEXAMPLE</AccessKeyId><SecretAccessKey>hush</SecretAccessKey>
<SessionToken>hush-session</SessionToken><Expiration>2026-01-31T23:59:59Z</Expiration></Credentials>
</AssumeRoleResult></AssumeRoleResponse>"""
REFUSED = """<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>
<Message>User arn:aws:iam::1:user/store may not assume it</Message></Error></ErrorResponse>"""


@contextmanager
def sts(status: int = 200, answer: str = GIVEN) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server that plays STS: its URL, and what it was asked."""
    asked: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.append(dict(parse_qsl(body)))
            self.send_response(status)
            self.send_header("Content-Type", "text/xml")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, *_: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        with patch.dict(os.environ, SIMULATED):
            yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.spec("ARU-12")
def test_a_session_may_put_and_see_objects_of_one_area_and_nothing_else() -> None:
    assert make_session_policy("staging", PREFIX) == {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "OneArea",
                "Effect": "Allow",
                "Action": [
                    "s3:PutObject",
                    "s3:AbortMultipartUpload",
                    "s3:ListMultipartUploadParts",
                    "s3:GetObject",
                ],
                "Resource": f"arn:aws:s3:::staging/areas/{AREA}/*",
            }
        ],
    }


@pytest.mark.spec("ARU-12")
def test_requests_role_with_policy_and_lifetime() -> None:
    with sts() as (endpoint, asked):
        lender = open_s3_issuer(f"s3://staging?endpoint={endpoint}&region=eu-west-1", LIMITS, ROLE)
        loan = lender.issue_credentials(PREFIX, name=f"area-{AREA}", expires_s=900)
    (request,) = asked
    assert json.loads(request.pop("Policy")) == make_session_policy("staging", PREFIX)
    assert request == {
        "Action": "AssumeRole",
        "Version": "2011-06-15",
        "RoleArn": ROLE,
        "RoleSessionName": f"area-{AREA}",
        "DurationSeconds": "900",
    }
    assert loan.kind == "s3"
    assert loan.expires == 1769903999.0
    assert loan.parameters == {
        "bucket": "staging",
        "prefix": PREFIX,
        "region": "eu-west-1",
        "endpoint": endpoint,
        "access_key_id": "ASIAEXAMPLE",
        "secret_access_key": "hush",
        "session_token": "hush-session",
    }


@pytest.mark.spec("ARU-12")
def test_request_fits_limits_of_sts() -> None:
    longest = json.dumps(make_session_policy("b" * 63, PREFIX), separators=(",", ":"))
    assert len(longest) <= 2048
    assert 2 <= len(f"area-{AREA}") <= 64


@pytest.mark.spec("ARU-12")
def test_custom_server_gets_public_name() -> None:
    with sts() as (endpoint, _):
        url = f"s3://staging?endpoint={endpoint}&public=https://S3.example:443"
        loan = open_s3_issuer(url, LIMITS, ROLE).issue_credentials(
            PREFIX, name="area-1", expires_s=900
        )
        assert loan.parameters["endpoint"] == "https://s3.example"
        with patch.dict(os.environ, AWS_ENDPOINT_URL_STS=endpoint):
            loan = open_s3_issuer("s3://staging", LIMITS, ROLE).issue_credentials(
                PREFIX, name="area-1", expires_s=900
            )
    assert (loan.parameters["endpoint"], loan.parameters["region"]) == (None, "us-east-1")


@pytest.mark.spec("ARU-12")
def test_supports_roles_of_other_partitions() -> None:
    with sts() as (endpoint, asked):
        role = "arn:aws-cn:iam::123456789012:role/store-areas"
        lender = open_s3_issuer(f"s3://staging?endpoint={endpoint}", LIMITS, role)
        lender.issue_credentials(PREFIX, name="area-1", expires_s=900)
    resource = json.loads(asked[0]["Policy"])["Statement"][0]["Resource"]
    assert resource == f"arn:aws-cn:s3:::staging/{PREFIX}*"


@pytest.mark.spec("ARU-16")
def test_reports_refusal_without_secrets() -> None:
    with sts(403, REFUSED) as (endpoint, _):
        lender = open_s3_issuer(f"s3://staging?endpoint={endpoint}", LIMITS, ROLE)
        with pytest.raises(Unavailable, match="AccessDenied") as refused:
            lender.issue_credentials(PREFIX, name="area-1", expires_s=900)
    assert "user/store" not in str(refused.value)
    with pytest.raises(Unavailable, match="cannot be reached"):
        lender.issue_credentials(PREFIX, name="area-1", expires_s=900)


@pytest.mark.spec("ARU-16")
def test_repr_hides_credentials() -> None:
    with sts() as (endpoint, _):
        lender = open_s3_issuer(f"s3://staging?endpoint={endpoint}", LIMITS, ROLE)
        loan = lender.issue_credentials(PREFIX, name="area-1", expires_s=900)
    assert "hush" not in f"{loan!r} {lender!r}"
    assert "ASIA" not in repr(loan)
