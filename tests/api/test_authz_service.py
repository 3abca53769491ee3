"""The store and the authorization service together."""

import gzip
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from openapi_spec_validator import validate

from api.app import build_verifier
from api.authz import create_auth_app
from auth.tokens.issuance import TokenSpec, issue_token
from auth.tokens.signing_keys import read_signing_keys, rotate_key_file
from config import Settings
from storage.catalog import Catalog
from storage.errors import Unavailable
from tests.api.conftest import verify

BASE = "https://auth.example"
NEW_ID = re.compile(r"[0-9a-f]{32}")
PATHS = (
    "/",
    "/.well-known/openid-configuration",
    "/.well-known/jwks.json",
    "/health",
    "/swagger.json",
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, auth_external_url=BASE, secret_key="a secret for tests only")


@pytest.fixture
def client(settings: Settings, catalog: Catalog) -> FlaskClient:
    return created(settings, catalog)


def created(settings: Settings, catalog: Catalog) -> FlaskClient:
    return create_auth_app(settings, catalog, verify=verify).test_client()


@pytest.mark.spec("AUT-01")
def test_token_verifies_with_discovered_keys(
    client: FlaskClient, tmp_path: Path, settings: Settings
) -> None:
    found = client.get("/.well-known/openid-configuration").json
    assert found is not None
    assert found["issuer"] == BASE
    trusting = Settings(home=tmp_path / "elsewhere", issuers={found["issuer"]: found["jwks_uri"]})
    grant = TokenSpec("ada@example.org", ("store_ingest",), 60)
    token = issue_token(
        read_signing_keys(settings.home, settings.secret_key),
        grant,
        issuer=BASE,
        audience=["store"],
        now=time.time(),
        token_id="1",
    )

    def fetch(url: str) -> dict[str, object]:
        return client.get(url.removeprefix(BASE)).json or {}

    assert build_verifier(trusting, time.time, fetch).verify(token).email == "ada@example.org"


@pytest.mark.spec("AUT-01")
def test_every_address_in_discovery_answers(client: FlaskClient) -> None:
    found = client.get("/.well-known/openid-configuration").json or {}
    addresses = [value for value in found.values() if isinstance(value, str) and value != BASE]
    assert addresses
    for address in addresses:
        assert address.startswith(BASE)
        # What wants more than a request without anything is there, and says so.
        assert client.get(address.removeprefix(BASE)).status_code in (200, 400, 401, 405)


@pytest.mark.spec("AUT-01")
def test_keys_and_algorithms_follow_a_rotation(client: FlaskClient, settings: Settings) -> None:
    before = client.get("/.well-known/jwks.json").json or {}
    new = rotate_key_file(settings.home, "ES256", now=0, life_s=60, given=settings.secret_key)
    after = client.get("/.well-known/jwks.json").json or {}
    assert [key["kid"] for key in after["keys"]] == [new.signing_key.kid, before["keys"][0]["kid"]]
    found = client.get("/.well-known/openid-configuration").json or {}
    assert found["id_token_signing_alg_values_supported"] == ["ES256", "RS256"]


@pytest.mark.spec("AUT-01")
def test_responses_have_no_private_members(client: FlaskClient) -> None:
    for key in (client.get("/.well-known/jwks.json").json or {})["keys"]:
        assert not {"d", "p", "q", "dp", "dq", "qi", "k"} & key.keys()


@pytest.mark.spec("AUT-02")
def test_the_definition_is_valid_and_describes_all_that_exists(client: FlaskClient) -> None:
    document = client.get("/swagger.json").json or {}
    validate(document)
    assert document["openapi"].startswith("3.0")
    assert document["servers"] == [{"url": BASE}]
    assert set(PATHS) - {"/"} <= set(document["paths"])
    verbs = [one for item in document["paths"].values() for one in item.values()]
    names = [one["operationId"] for one in verbs]
    assert {"get_openid_configuration", "get_jwks.json"} <= set(names)
    assert len(set(names)) == len(names)


@pytest.mark.spec("AUT-02")
def test_health_gives_reason_of_failure(client: FlaskClient, settings: Settings) -> None:
    body = client.get("/health").json or {}
    assert (body["status"], body["parts"]["keys"]["status"]) == ("ok", "ok")
    (settings.home / "secrets" / "signing-keys.json").write_text("broken")
    response = client.get("/health")
    assert response.status_code == 503
    assert int(response.headers["Retry-After"]) > 0
    body = response.json or {}
    assert (body["status"], body["parts"]["keys"]["status"]) == ("failed", "failed")
    assert "cannot be used" in body["parts"]["keys"]["reason"]
    keys = client.get("/.well-known/jwks.json")
    assert (keys.status_code, (keys.json or {})["code"]) == (503, "service_unavailable")
    assert int(keys.headers["Retry-After"]) > 0


@pytest.mark.spec("OPS-28")
def test_health_is_503_if_home_is_not_writable(
    client: FlaskClient, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.writability.FRESH_S", 0.0)
    away = settings.home.with_name("away")
    settings.home.rename(away)
    settings.home.touch()
    answer = client.get("/health")
    assert answer.status_code == 503
    assert "home: disk " in (answer.json or {})["parts"]["catalog"]["reason"]
    settings.home.unlink()
    away.rename(settings.home)
    assert client.get("/health").status_code == 200


@pytest.mark.spec("AUT-02")
def test_a_service_without_usable_keys_does_not_start(settings: Settings, catalog: Catalog) -> None:
    (settings.home / "secrets").mkdir()
    (settings.home / "secrets" / "signing-keys.json").write_text("broken")
    with pytest.raises(Unavailable):
        created(settings, catalog)


@pytest.mark.spec("AUT-03")
@pytest.mark.parametrize("path", [*PATHS, "/absent"])
def test_every_answer_has_a_request_id_and_a_type(path: str, client: FlaskClient) -> None:
    response = client.get(path)
    assert NEW_ID.fullmatch(response.headers["X-Request-Id"])
    assert response.headers["Content-Type"]
    own = client.get(path, headers={"X-Request-Id": "abc-1.2_3"})
    assert own.headers["X-Request-Id"] == "abc-1.2_3"
    for unsafe in ("a b", "x" * 129, "<script>", ""):
        response = client.get(path, headers={"X-Request-Id": unsafe})
        assert NEW_ID.fullmatch(response.headers["X-Request-Id"])


@pytest.mark.spec("AUT-03")
def test_errors_are_problems(client: FlaskClient) -> None:
    response = client.get("/absent")
    assert response.status_code == 404
    assert response.content_type == "application/problem+json"
    body = response.json or {}
    assert body.keys() == {"type", "title", "status", "code", "detail", "request_id"}
    assert (body["title"], body["code"]) == ("Not Found", "not_found")
    assert body["request_id"] == response.headers["X-Request-Id"]


@pytest.mark.spec("AUT-03")
def test_rejects_other_methods_with_allow_header(client: FlaskClient) -> None:
    response = client.post("/health")
    assert (response.status_code, (response.json or {})["code"]) == (405, "method_not_allowed")
    assert "GET" in response.headers["Allow"]


@pytest.mark.spec("AUT-01")
def test_the_host_header_decides_no_address(client: FlaskClient) -> None:
    for path in PATHS:
        assert b"evil" not in client.get(path, headers={"Host": "evil.example"}).data


@pytest.mark.spec("AUT-02")
def test_the_page_runs_no_script(client: FlaskClient) -> None:
    response = client.get("/")
    assert response.content_type.startswith("text/html")
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    assert f'href="{BASE}/login/account"' in response.text


@pytest.mark.spec("AUT-03")
def test_head_is_get_without_its_body(client: FlaskClient) -> None:
    for path in PATHS:
        got, headed = client.get(path), client.head(path)
        assert (headed.status_code, headed.data) == (200, b"")
        assert set(headed.headers.keys()) == set(got.headers.keys())
        assert headed.headers["Content-Length"] == str(len(got.data))


@pytest.mark.spec("AUT-03")
def test_matching_etag_is_304(client: FlaskClient, settings: Settings) -> None:
    for path in PATHS[1:]:
        first = client.get(path)
        tag = first.headers["ETag"]
        again = client.get(path, headers={"If-None-Match": tag})
        assert (again.status_code, again.data) == (304, b"")
        assert again.headers["Cache-Control"] == first.headers["Cache-Control"]
    tag = client.get("/.well-known/jwks.json").headers["ETag"]
    rotate_key_file(settings.home, "ES256", now=0, life_s=60, given=settings.secret_key)
    fresh = client.get("/.well-known/jwks.json", headers={"If-None-Match": tag})
    assert fresh.status_code == 200


@pytest.mark.spec("AUT-03")
def test_compresses_long_responses_on_request(client: FlaskClient) -> None:
    plain = client.get("/swagger.json")
    packed = client.get("/swagger.json", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.data) == plain.data
    assert "Accept-Encoding" in plain.headers["Vary"]


@pytest.mark.spec("AUT-03")
def test_allows_configured_origins(settings: Settings, catalog: Catalog) -> None:
    asked = {"Origin": "https://portal.example"}
    closed = created(settings, catalog)
    assert "Access-Control-Allow-Origin" not in closed.get("/health", headers=asked).headers
    client = created(replace(settings, cors_origins=("https://portal.example",)), catalog)
    for path in (*PATHS, "/absent"):
        answer = client.get(path, headers=asked)
        assert answer.headers["Access-Control-Allow-Origin"] == "https://portal.example"
        assert "X-Request-Id" in answer.headers["Access-Control-Expose-Headers"]
    preflight = client.options("/health", headers=asked | {"Access-Control-Request-Method": "GET"})
    assert preflight.status_code == 204


@pytest.mark.spec("AUT-03")
def test_forbids_content_sniffing(client: FlaskClient) -> None:
    for path in (*PATHS, "/absent"):
        assert client.get(path).headers["X-Content-Type-Options"] == "nosniff"
    asked = client.options("/health")
    assert (asked.status_code, "GET" in asked.headers["Allow"]) == (200, True)


@pytest.mark.spec("AUT-03")
def test_requests_are_logged_without_their_query(
    client: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="api.requests"):
        client.get("/echo?secret=x")
    (line,) = [one for one in caplog.records if one.name == "api.requests"]
    assert (vars(line)["path"], vars(line)["status"]) == ("/echo", 200)
    assert "secret" not in str(vars(line))
