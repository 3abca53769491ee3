"""Downscoped GCS tokens for one upload area."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, unquote

import pytest
from google.auth.credentials import Credentials
from google.auth.exceptions import RefreshError

from storage.blobs.clients import CloudLimits
from storage.blobs.gcs_credentials import GcsCredentialIssuer, make_access_boundary, open_gcs_issuer
from storage.errors import Unavailable

AREA = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
PREFIX = f"areas/{AREA}/"
OWN_ENDS = datetime(2026, 1, 31, 23, 59, 59)
BOUNDARY = {
    "accessBoundary": {
        "accessBoundaryRules": [
            {
                "availableResource": "//storage.googleapis.com/projects/_/buckets/staging",
                "availablePermissions": ["inRole:roles/storage.objectUser"],
                "availabilityCondition": {
                    "title": "one upload area",
                    "expression": "resource.name.startsWith("
                    f"'projects/_/buckets/staging/objects/areas/{AREA}/')",
                },
            }
        ]
    }
}


class Ours(Credentials):
    """The store's own, a token of which is fresh once it was asked for."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fails = fails

    def refresh(self, _: object) -> None:
        if self.fails:
            raise RefreshError("the whole answer, with a secret")  # type: ignore[no-untyped-call]
        self.token, self.expiry = "broad", OWN_ENDS


def google(asked: list[Any], status: int = 200, **told: object) -> Callable[..., Any]:
    """Takes what Google's library sends; answers so."""

    def send(url: str, method: str, body: bytes, **_: object) -> SimpleNamespace:
        asked.append((method, url, {k: v[0] for k, v in parse_qs(body.decode()).items()}))
        return SimpleNamespace(status=status, data=json.dumps(told).encode())

    return send


@pytest.mark.spec("ARU-13")
def test_a_token_may_change_objects_of_one_area_and_nothing_else() -> None:
    assert make_access_boundary("staging", PREFIX).to_json() == BOUNDARY  # type: ignore[no-untyped-call]


@pytest.mark.spec("ARU-13")
def test_exchanges_token_within_access_boundary() -> None:
    asked: list[Any] = []
    lender = GcsCredentialIssuer("staging", Ours, google(asked, access_token="narrow"))
    loan = lender.issue_credentials(PREFIX, name="area-1", expires_s=3600)
    ((method, url, body),) = asked
    assert (method, url) == ("POST", "https://sts.googleapis.com/v1/token")
    assert json.loads(unquote(body.pop("options"))) == BOUNDARY
    assert body == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "subject_token": "broad",
    }
    assert loan.kind == "gs"
    assert loan.parameters == {"bucket": "staging", "prefix": PREFIX, "access_token": "narrow"}
    assert loan.expires == OWN_ENDS.replace(tzinfo=UTC).timestamp()


@pytest.mark.spec("ARU-16")
def test_reports_refusal_without_secrets() -> None:
    refusing = google([], 400, error="invalid_grant", error_description="secret")
    for lender in (
        GcsCredentialIssuer("staging", Ours, refusing),
        GcsCredentialIssuer("staging", lambda: Ours(fails=True), google([])),
        GcsCredentialIssuer("staging", Ours, google([])),
    ):
        with pytest.raises(Unavailable) as refused:
            lender.issue_credentials(PREFIX, name="area-1", expires_s=3600)
        assert "secret" not in str(refused.value)


@pytest.mark.spec("ARU-16")
def test_repr_hides_credentials() -> None:
    lender = GcsCredentialIssuer("staging", Ours, google([], access_token="narrow"))
    assert "narrow" not in repr(lender.issue_credentials(PREFIX, name="area-1", expires_s=3600))


@pytest.mark.spec("ARU-13")
@pytest.mark.parametrize(
    ("url", "lends"),
    [
        ("gs://staging", True),
        ("gs://staging?endpoint=https://storage.googleapis.com", True),
        ("gs://staging?endpoint=http://127.0.0.1:4443", False),
        ("gs://staging?endpoint=https://storage.example", False),
        ("gs://staging?endpoint=http://storage.googleapis.com", False),
        ("gs://staging?endpoint=https://evilgoogleapis.com", False),
    ],
)
def test_tokens_are_exchanged_for_googles_own_buckets_only(url: str, lends: bool) -> None:
    assert (open_gcs_issuer(url, CloudLimits()) is not None) == lends
