"""What `status` says of uploads from browsers."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from unittest.mock import patch

import pytest

from config import Settings
from ops.status import check_browser_uploads
from tests.storage.blobs.backend_s3 import SIMULATED

SITE = "https://data.example.org"
RULE = {
    "Access-Control-Allow-Origin": SITE,
    "Access-Control-Allow-Methods": "GET, PUT",
    "Access-Control-Allow-Headers": "X-Amz-Checksum-Crc32c",
}


class Bucket(ThreadingHTTPServer):
    """Answers preflights with these headers."""

    def __init__(self) -> None:
        self.status, self.headers = 200, dict[str, str]()
        self.asked: list[tuple[str, Mapping[str, str]]] = []
        bucket = self

        class Handler(BaseHTTPRequestHandler):
            def do_OPTIONS(self) -> None:
                bucket.asked.append((self.path, dict(self.headers)))
                self.send_response(bucket.status)
                for name, value in bucket.headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Silent."""

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with patch.dict(os.environ, SIMULATED), Bucket() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def check(settings: Settings, bucket: Bucket) -> list[tuple[str, str, str]]:
    url = f"s3://areas?endpoint=http://127.0.0.1:{bucket.server_port}"
    return check_browser_uploads(replace(settings, areas_url=url, external_url=f"{SITE}/"))


def test_asks_the_bucket_as_a_browser_would(settings: Settings, bucket: Bucket) -> None:
    bucket.headers = RULE
    assert check(settings, bucket) == [("browser uploads", "ok", "go to the bucket")]
    [(path, headers)] = bucket.asked
    assert path.startswith("/areas/areas/")
    assert headers["Origin"] == SITE
    assert headers["Access-Control-Request-Method"] == "PUT"
    assert headers["Access-Control-Request-Headers"] == "x-amz-checksum-crc32c"


@pytest.mark.parametrize(
    "changed",
    [
        {"Access-Control-Allow-Origin": "https://other.example.org"},
        {"Access-Control-Allow-Methods": "GET"},
        {"Access-Control-Allow-Headers": "content-type"},
        {"Access-Control-Allow-Headers": ""},
    ],
)
def test_names_the_site_that_lacks_a_rule(
    settings: Settings, bucket: Bucket, changed: Mapping[str, str]
) -> None:
    bucket.headers = {**RULE, **changed}
    [(_, state, reason)] = check(settings, bucket)
    assert state == "warning"
    assert f"no CORS rule for {SITE}" in reason


def test_wildcards_let_the_site_in_and_errors_do_not(settings: Settings, bucket: Bucket) -> None:
    bucket.headers = dict.fromkeys(RULE, "*")
    assert check(settings, bucket)[0][1] == "ok"
    bucket.status = 403
    assert check(settings, bucket)[0][1] == "warning"


def test_bucket_that_is_away_is_a_warning(settings: Settings, bucket: Bucket) -> None:
    bucket.shutdown()
    bucket.server_close()
    [(_, state, reason)] = check(settings, bucket)
    assert state == "warning"
    assert reason.startswith("pass through the store: ")


def test_says_nothing_of_folders(settings: Settings) -> None:
    for url in ("", "file:///srv/areas"):
        assert check_browser_uploads(replace(settings, areas_url=url)) == []
