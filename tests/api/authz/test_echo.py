"""The echo operation shows a request without its secrets."""

import pytest
from flask.testing import FlaskClient

pytestmark = pytest.mark.spec("ACC-15")


def test_a_request_is_shown_with_its_query_and_without_its_secrets(client: FlaskClient) -> None:
    secrets = {
        "Authorization": "Bearer secret-token",
        "Cookie": "session=secret-cookie",
        "Proxy-Authorization": "Basic secret-proxy",
        "X-Colour": "green",
    }
    plain = client.application.test_client(use_cookies=False)
    answer = plain.get("/echo?a=1&a=2&b=", headers=secrets)
    assert answer.status_code == 200
    shown = answer.json or {}
    assert (shown["method"], shown["path"]) == ("GET", "/echo")
    assert shown["query"] == {"a": ["1", "2"], "b": [""]}
    assert shown["headers"]["X-Colour"] == "green"
    for name in ("Authorization", "Cookie", "Proxy-Authorization"):
        assert shown["headers"][name] == "***"
    assert "secret" not in answer.text


def test_a_page_that_is_echoed_does_not_run(client: FlaskClient) -> None:
    answer = client.get("/echo?a=<script>alert(1)</script>")
    assert answer.content_type == "application/json"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
