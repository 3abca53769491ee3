"""Temporary upload credentials and presigned upload URLs of areas."""

import io
import json
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import pytest
from flask.testing import FlaskClient

from api.app import create_app
from auth import accounts
from auth.accounts import AuditContext, admit_at_login
from config import Settings, SettingsError
from config.logs import configure_logging
from pipelines.formats import version_to_us
from storage.blobs.gcs_credentials import GcsCredentialIssuer
from storage.blobs.s3_credentials import StsCredentialIssuer
from storage.catalog import areas, now_us
from storage.connect import connect
from storage.errors import Unavailable
from storage.protocols import Credentials
from storage.pubsub import MemoryPubSub
from storage.stores import Stores
from tests.api.builders import AREA, INGEST
from tests.api.conftest import verify
from tests.conftest import Outbox
from tests.storage.blobs import backend_gcs, backend_s3
from tests.storage.blobs.backend_gcs import running
from tests.storage.blobs.backend_s3 import SIMULATED
from tests.storage.blobs.s3_server import lasting_s3
from tests.storage.blobs.test_s3_credentials import ROLE, sts

OTHER = {"Authorization": "Bearer other"}
READER = {"Authorization": "Bearer reader"}
PATH = f"/v1/area/{AREA}/credentials"
KEY = f"areas/{AREA}/deep/er.bin"
HOUR_US = 3600 * 10**6


@dataclass
class Lending:
    """A cloud that lends, or not; remembers what it was asked."""

    loan: Credentials | None = None
    asked: list[tuple[str, str, int]] = field(default_factory=list)

    def issue_credentials(self, prefix: str, *, name: str, expires_s: int) -> Credentials:
        self.asked.append((prefix, name, expires_s))
        if self.loan is None:
            raise Unavailable("STS gives no credentials for upload areas: AccessDenied")
        return self.loan


LOAN = Credentials(
    "s3",
    {
        "bucket": "staging",
        "prefix": f"areas/{AREA}/",
        "region": "eu-west-1",
        "endpoint": None,
        "access_key_id": "ASIAEXAMPLE",
        "secret_access_key": "hush-hush",
        "session_token": "session-token",
    },
    1769903999.0,
)


@pytest.fixture(autouse=True)
def _area(client: FlaskClient) -> None:
    assert client.post(f"/v1/area/{AREA}", headers=INGEST).status_code == 201


def opened(settings: Settings, stores: Stores, job_queue: Outbox, **changed: Any) -> FlaskClient:
    """The API where somebody lends, or on other settings."""
    of_stores = {
        name: changed.pop(name) for name in ("credential_issuer", "areas") if name in changed
    }
    stores = replace(stores, **of_stores)
    app = create_app(replace(settings, **changed), stores, job_queue=job_queue, verify=verify)
    return app.test_client()


def granted(stores: Stores) -> int | None:
    """Until when the catalog says that somebody may write past the store, from now, microseconds."""
    with stores.catalog.read() as tx:
        area = areas.find(tx, AREA)
        assert area is not None
        return None if area.granted_us is None else area.granted_us - now_us(tx)


def url_of(client: FlaskClient, name: str = "deep/er.bin") -> str:
    answer = client.post(PATH, headers=INGEST, json={"filenames": [name]})
    assert answer.status_code == 201, answer.text
    url: str = answer.json["urls"][name]
    return url


# Whom, for how long, for what


@pytest.mark.spec("ARU-12")
def test_cloud_credentials_are_complete_and_not_cached(
    settings: Settings, stores: Stores, job_queue: Outbox
) -> None:
    lender = Lending(LOAN)
    answer = opened(settings, stores, job_queue, credential_issuer=lender).post(
        PATH, headers=INGEST
    )
    assert answer.status_code == 201
    assert answer.json == {**LOAN.parameters, "kind": "s3", "expires": "2026-01-31T235959.000000Z"}
    assert answer.headers["Cache-Control"] == "no-store"
    assert lender.asked == [(f"areas/{AREA}/", f"area-{AREA}", 3600)]


@pytest.mark.spec("ARU-15")
def test_area_stores_expiry_of_credentials(
    client: FlaskClient, settings: Settings, stores: Stores, job_queue: Outbox
) -> None:
    url_of(client)
    assert granted(stores) is None, "the API judges each use of its own URLs"
    opened(settings, stores, job_queue, credential_issuer=Lending(LOAN)).post(PATH, headers=INGEST)
    left = granted(stores)
    assert left is not None
    assert HOUR_US < left <= HOUR_US + 60 * 10**6


@pytest.mark.spec("ARU-14")
def test_presigns_urls_where_cloud_has_no_credentials(client: FlaskClient) -> None:
    names = ["a.csv", "deep/ü b.json", "a.csv"]
    answer = client.post(PATH, headers=INGEST, json={"filenames": names})
    given = answer.json
    assert (given["kind"], given["method"], given["headers"]) == ("urls", "PUT", {})
    assert list(given["urls"]) == ["a.csv", "deep/ü b.json"]
    assert given["urls"]["a.csv"].startswith(
        f"http://localhost/v1/objects/areas/areas/{AREA}/a.csv?"
    )
    assert given["max_bytes"] == 5 * 1024**4
    for body in ({}, {"json": {}}):
        none = client.post(PATH, headers=INGEST, **body)
        assert (none.status_code, none.json["urls"]) == (201, {})


@pytest.mark.spec("ARU-15")
def test_a_life_is_that_of_the_settings(
    settings: Settings, stores: Stores, job_queue: Outbox
) -> None:
    client = opened(settings, stores, job_queue, areas_credentials_s=900)
    with stores.catalog.read() as tx:
        now = now_us(tx)
    given = client.post(PATH, headers=INGEST, json={"filenames": ["a"]}).json
    life = version_to_us(given["expires"]) - now
    assert 900 * 10**6 <= life < 960 * 10**6
    signed = int(given["urls"]["a"].partition("expires=")[2].partition("&")[0])
    assert 0 <= signed - version_to_us(given["expires"]) // 10**6 <= 60


@pytest.mark.spec("ARU-15")
@pytest.mark.parametrize("life", [0, 899, 43_201])
def test_rejects_credential_lifetime_that_no_cloud_allows(settings: Settings, life: int) -> None:
    with pytest.raises(SettingsError, match="STORE_AREAS_CREDENTIALS_S"):
        connect(replace(settings, areas_credentials_s=life), notices=MemoryPubSub())


@pytest.mark.spec("ARU-15")
def test_only_owner_of_unlocked_area_gets_credentials(
    client: FlaskClient, settings: Settings, stores: Stores, job_queue: Outbox
) -> None:
    lender = Lending(LOAN)
    lending = opened(settings, stores, job_queue, credential_issuer=lender)
    for asked in (client, lending):
        assert asked.post(PATH).status_code == 401
        assert asked.post(PATH, headers=READER).status_code == 403
        assert asked.post(PATH, headers=OTHER).status_code == 403
        absent = PATH.replace(AREA, "00000000-0000-0000-0000-0000000000ff")
        assert asked.post(absent, headers=INGEST).status_code == 404
    for state in ("LOCKED", "DELETING"):
        with stores.catalog.write() as tx:
            areas.set_state(tx, AREA, state)
        for asked in (client, lending):
            refused = asked.post(PATH, headers=INGEST, json={"filenames": ["a"]})
            assert (refused.status_code, refused.json["code"]) == (409, "area_locked")
    assert lender.asked == []


@pytest.mark.spec("ARU-15")
def test_area_locked_during_request_gets_no_credentials(
    settings: Settings, stores: Stores, job_queue: Outbox
) -> None:
    class Slow(Lending):
        def issue_credentials(self, prefix: str, *, name: str, expires_s: int) -> Credentials:
            with stores.catalog.write() as tx:
                areas.set_state(tx, AREA, "LOCKED")
            return super().issue_credentials(prefix, name=name, expires_s=expires_s)

    refused = opened(settings, stores, job_queue, credential_issuer=Slow(LOAN)).post(
        PATH, headers=INGEST
    )
    assert refused.status_code == 409
    assert "hush" not in refused.text


@pytest.mark.spec("ARU-16")
def test_cloud_without_credentials_is_503(
    settings: Settings, stores: Stores, job_queue: Outbox
) -> None:
    answer = opened(settings, stores, job_queue, credential_issuer=Lending()).post(
        PATH, headers=INGEST
    )
    assert (answer.status_code, answer.json["code"]) == (503, "service_unavailable")
    assert granted(stores) is None


@pytest.mark.spec("ARU-14")
def test_rejects_unsafe_and_too_many_names(client: FlaskClient) -> None:
    refused = client.post(PATH, headers=INGEST, json={"filenames": ["a", "../b", "", "/c"]})
    assert refused.status_code == 400
    assert list(refused.json["errors"]) == ["/filenames/1", "/filenames/2", "/filenames/3"]
    many = [f"{number}" for number in range(1001)]
    assert client.post(PATH, headers=INGEST, json={"filenames": many}).status_code == 400
    assert client.post(PATH, headers=INGEST, json={"filenames": many[:1000]}).status_code == 201


@pytest.mark.spec("ARU-16")
def test_logs_no_credentials(
    settings: Settings, stores: Stores, job_queue: Outbox, capsys: pytest.CaptureFixture[str]
) -> None:
    before = logging.getLogger().handlers[:], logging.getLogger().level
    with sts() as (endpoint, _):
        told = replace(
            settings,
            areas_url=f"s3://staging?endpoint={endpoint}",
            areas_role_arn=ROLE,
        )
        with_sts = connect(told, notices=MemoryPubSub())
        with_sts.catalog.close()
        client = opened(settings, stores, job_queue, credential_issuer=with_sts.credential_issuer)
        try:
            configure_logging("DEBUG", "test", "json", {})
            given = client.post(PATH, headers=INGEST)
            url = url_of(opened(settings, stores, job_queue))
            kept = client.put(url, data=b"x")
        finally:
            logging.getLogger().handlers[:] = before[0]
            logging.getLogger().setLevel(before[1])
            logging.getLogger("botocore.parsers").setLevel(logging.NOTSET)
    assert (given.status_code, kept.status_code) == (201, 200)
    logged = capsys.readouterr().out
    assert '"path": "' + PATH in logged
    secrets = (given.json["secret_access_key"], given.json["session_token"], url[-64:])
    assert [secret for secret in secrets if secret in logged] == []


# Who lends


@pytest.mark.spec("ARU-12")
def test_s3_uses_role_or_presigned_urls(settings: Settings) -> None:
    with patch.dict(os.environ, SIMULATED):
        for role, kind in ((ROLE, StsCredentialIssuer), ("", type(None))):
            told = replace(settings, areas_url="s3://staging", areas_role_arn=role)
            found = connect(told, notices=MemoryPubSub())
            found.catalog.close()
            assert isinstance(found.credential_issuer, kind)
    with pytest.raises(SettingsError, match="STORE_AREAS_ROLE_ARN"):
        connect(replace(settings, areas_role_arn=ROLE), notices=MemoryPubSub())


@pytest.mark.spec("ARU-13")
@pytest.mark.parametrize(
    ("changed", "lends"),
    [
        ({}, True),
        ({"areas_downscoped": False}, False),
        ({"areas_credentials_s": 1800}, False),
    ],
)
def test_gcs_uses_downscoped_tokens_unless_lifetime_is_too_long(
    settings: Settings, changed: dict[str, Any], lends: bool
) -> None:
    found = connect(replace(settings, areas_url="gs://staging", **changed), notices=MemoryPubSub())
    found.catalog.close()
    assert isinstance(found.credential_issuer, GcsCredentialIssuer) == lends


@pytest.mark.spec("ARU-14")
def test_cloud_urls_name_required_headers(
    settings: Settings, stores: Stores, job_queue: Outbox, tmp_path: Any
) -> None:
    with patch.dict(os.environ, SIMULATED):
        s3 = backend_s3.opened(lasting_s3(), "staging")
        client = opened(settings, stores, job_queue, areas=s3)
        given = client.post(PATH, headers=INGEST, json={"filenames": ["a"]}).json
        assert given["urls"]["a"].startswith(f"{lasting_s3()}/staging/areas/{AREA}/a?")
        assert (given["headers"], given["max_bytes"]) == ({}, 5 * 1024**3)
    assert granted(stores) is not None
    with running(tmp_path) as gcs:
        google = backend_gcs.opened(gcs.endpoint, "staging")
        client = opened(settings, stores, job_queue, areas=google)
        given = client.post(PATH, headers=INGEST, json={"filenames": ["a"]}).json
    assert given["headers"] == {"x-goog-content-length-range": f"0,{5 * 1024**4}"}


# URLs that the API serves


@pytest.mark.spec("ARU-18")
def test_upload_to_presigned_url_counts_as_owners(
    client: FlaskClient, stores: Stores, drain: Callable[[], int]
) -> None:
    for body in (b"first", b'{"a": 1}'):
        kept = client.put(url_of(client), data=body, content_type="application/json")
        assert (kept.status_code, kept.data) == (200, b"")
        assert b"".join(stores.areas.read(KEY)) == body
    drain()
    status = client.post(f"/v1/area/{AREA}/files/deep/er.bin", headers=INGEST)
    assert status.status_code == 202
    drain()
    shown = client.get(f"/v1/area/{AREA}", headers=INGEST).json["files"]
    assert [(one["name"], one["size"], one["validation"]) for one in shown] == [
        ("deep/er.bin", 8, "VALIDATED")
    ]


@pytest.mark.spec("ARU-18")
def test_a_url_is_for_one_file_one_way_and_a_while(client: FlaskClient, stores: Stores) -> None:
    url = url_of(client)
    assert client.put(url.replace("er.bin", "other"), data=b"x").status_code == 403
    assert client.put(url.replace("size=", "size=9"), data=b"x").status_code == 403
    assert client.put(url.partition("?")[0], data=b"x").status_code == 403
    assert client.put(url, data=b"kept").status_code == 200
    assert client.get(url).status_code == 403
    reading = stores.areas.sign(KEY, expires_s=60)
    assert client.put(reading, data=b"x").status_code == 403
    ended = stores.areas.sign_upload(KEY, expires_s=0, max_bytes=10).url
    assert client.put(ended, data=b"x").status_code == 403
    for method in ("POST", "PATCH", "DELETE"):
        assert client.open(url, method=method, data=b"x").status_code == 405
    assert b"".join(stores.areas.read(KEY)) == b"kept"


@pytest.mark.spec("ARU-18")
def test_rejects_more_bytes_than_signed(
    settings: Settings, stores: Stores, job_queue: Outbox
) -> None:
    client = opened(settings, stores, job_queue, max_upload_bytes=1000)
    url = url_of(client)
    chunked = {"Transfer-Encoding": "chunked"}
    for size, more, status in ((1000, {}, 200), (1001, {}, 413), (1001, chunked, 413)):
        answer = client.put(
            url,
            input_stream=io.BytesIO(b"x" * size),
            headers=more or {"Content-Length": str(size)},
            environ_overrides={"wsgi.input_terminated": True},
        )
        assert answer.status_code == status, (size, more)
    short = client.put(
        url, input_stream=io.BytesIO(b"x"), environ_overrides={"CONTENT_LENGTH": "5"}
    )
    assert short.status_code == 400


@pytest.mark.spec("ARU-18")
def test_rejects_presigned_url_after_lock_or_deletion(
    client: FlaskClient, stores: Stores, drain: Callable[[], int]
) -> None:
    url = url_of(client)
    client.patch(f"/v1/area/{AREA}", headers=INGEST, json={"state": "LOCKED"})
    refused = client.put(url, data=b"x")
    assert (refused.status_code, refused.json["code"]) == (409, "area_locked")
    client.patch(f"/v1/area/{AREA}", headers=INGEST, json={"state": "UNLOCKED"})
    assert client.put(url, data=b"x").status_code == 200
    client.delete(f"/v1/area/{AREA}", headers=INGEST)
    assert client.put(url, data=b"x").status_code == 409
    drain()
    assert client.put(url, data=b"x").status_code == 404
    assert list(stores.areas.list("")) == []


@pytest.mark.spec("ARU-18")
def test_presigned_urls_accept_only_files_of_areas(client: FlaskClient, stores: Stores) -> None:
    for key in ("blobs/aa/k", f"areas/{AREA}/", "areas/other/k"):
        url = stores.areas.sign_upload(key, expires_s=60, max_bytes=10).url
        assert client.put(url, data=b"x").status_code == 403
    up = stores.areas.sign_upload(f"areas/{AREA}/../x", expires_s=60, max_bytes=10).url
    assert client.put(up, data=b"x").status_code in (400, 403)
    replica = stores.replicas["aws"].sign_upload(KEY, expires_s=60, max_bytes=10).url
    assert client.put(replica, data=b"x").status_code == 403


@pytest.mark.spec("ARU-18")
def test_read_only_store_rejects_presigned_uploads(
    client: FlaskClient, settings: Settings, stores: Stores, job_queue: Outbox
) -> None:
    url = url_of(client)
    refused = opened(settings, stores, job_queue, read_only=True).put(url, data=b"x")
    assert (refused.status_code, refused.json["code"]) == (503, "read_only")
    assert json.loads(refused.data)["status"] == 503
    mirror = opened(settings, stores, job_queue, mirror_of="https://source.example.org")
    refused = mirror.put(url, data=b"x")
    assert (refused.status_code, refused.json["code"]) == (403, "read_only_mirror")


@pytest.mark.spec("ARU-40")
def test_rejects_presigned_url_of_disabled_user(client: FlaskClient, stores: Stores) -> None:
    url, owner, by = (
        url_of(client),
        "ingest@example.org",
        AuditContext("admin@example.org", "test", ""),
    )
    with stores.catalog.write() as tx:
        admit_at_login(tx, owner)
    for status, answer in (("disabled", 403), ("enabled", 200)):
        accounts.set_account_status(stores.catalog, owner, status, by)
        assert client.put(url, data=b"x").status_code == answer, status


@pytest.mark.spec("CLI-139")
def test_deleted_area_is_404(client: FlaskClient, stores: Stores) -> None:
    client.post(f"/v1/area/{AREA}", headers=INGEST)
    with stores.catalog.write() as tx:
        areas.set_state(tx, AREA, "DELETED")
    for who in (INGEST, OTHER):
        assert client.post(PATH, headers=who).status_code == 404
        begun = client.post(f"/v1/area/{AREA}/uploads/x", json={"size": 1}, headers=who)
        assert begun.status_code == 404
