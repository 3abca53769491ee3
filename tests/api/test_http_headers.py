"""Response headers on the wire, as clients follow them."""

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import httpx
import pytest

from api.app import create_app
from tests.api.builders import INGEST, VERSION, Depositor, uuid_of
from tests.api.conftest import verify
from tests.http_server import serving_app


@pytest.fixture
def base(settings, stores, job_queue) -> Iterator[str]:
    app = create_app(replace(settings, wait_s=0.0), stores, job_queue=job_queue, verify=verify)
    with serving_app(app) as url:
        yield url


@pytest.fixture
def http(base: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=base, trust_env=False) as made:
        yield made


def followed(http: httpx.Client, url: str, wait: Callable[[int], None]) -> list[httpx.Response]:
    """What a client sees that goes where it is sent, when it is told to."""
    seen = [http.get(url)]
    while "Location" in seen[-1].headers and len(seen) < 20:
        if "Retry-After" in seen[-1].headers:
            wait(int(seen[-1].headers["Retry-After"]))
        seen.append(http.get(seen[-1].headers["Location"]))
    return seen


@pytest.mark.spec("FIL-31", "FIL-33", "CON-01")
def test_a_client_that_follows_redirects_gets_a_pending_files_bytes(
    http, depositor: Depositor
) -> None:
    assert depositor.put_file(uuid_of(1), b"late bytes").status_code == 202
    waited: list[int] = []

    def wait(seconds: int) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            depositor.drain()

    asked = f"/v1/files/{uuid_of(1)}?replica=gcp&version={VERSION}&content_disposition=attachment%3Bfilename%3Da"
    seen = followed(http, asked, wait)
    assert [one.status_code for one in seen] == [301, 301, 302, 200]
    assert seen[-1].content == b"late bytes"
    for one in seen[:2]:
        assert one.headers["Cache-Control"] == "no-store"
        assert one.headers["Location"].endswith(asked)
        assert one.headers["X-STORE-SIZE"] == "10"
    assert min(waited) > 0
    assert seen[-1].headers["Content-Disposition"] == "attachment;filename=a"


@pytest.mark.spec("FIL-31", "CON-01")
def test_a_redirecting_client_of_the_shelf_arrives_too(http, depositor, base) -> None:
    depositor.put_file(uuid_of(1), b"late bytes")
    later = threading.Timer(0.2, depositor.drain)
    later.start()
    with httpx.Client(base_url=base, trust_env=False, max_redirects=10_000) as client:
        answer = client.get(f"/v1/files/{uuid_of(1)}?replica=aws", follow_redirects=True)
    later.join()
    assert answer.content == b"late bytes"


@pytest.mark.spec("FIL-31", "CON-14")
def test_a_request_that_waits_is_answered_when_the_file_is_there(http, depositor) -> None:
    depositor.put_file(uuid_of(1), b"late bytes")
    later = threading.Timer(0.2, depositor.drain)
    later.start()
    began = time.monotonic()
    answer = http.get(f"/v1/files/{uuid_of(1)}?replica=aws", headers={"Prefer": "wait=20"})
    later.join()
    assert answer.status_code == 302
    assert time.monotonic() - began < 15


@pytest.mark.spec("CON-17")
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_head_and_get_have_same_headers(http, depositor, encoding) -> None:
    uuid = depositor.bundle(1, files=6)
    url = f"/v1/bundles/{uuid}?replica=aws&version={VERSION}"
    sent = {"Accept-Encoding": encoding}
    got, headed = http.get(url, headers=sent), http.head(url, headers=sent)
    assert headed.content == b""
    different = {"date", "x-request-id"}
    assert {name: text for name, text in headed.headers.items() if name not in different} == {
        name: text for name, text in got.headers.items() if name not in different
    }
    assert int(got.headers["Content-Length"]) == got.num_bytes_downloaded
    assert ("Content-Encoding" in got.headers) == (encoding == "gzip")


@pytest.mark.spec("CON-19", "ERR-03")
def test_a_304_has_no_body_and_leaves_the_connection_usable(http, depositor) -> None:
    uuid = depositor.bundle(1)
    url = f"/v1/bundles/{uuid}?replica=aws&version={VERSION}"
    first = http.get(url)
    for _ in range(3):
        again = http.get(url, headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["ETag"] == first.headers["ETag"]
        assert again.headers["Cache-Control"] == "no-cache"
    assert http.get(url).json() == first.json()


@pytest.mark.spec("CON-02")
def test_pages_are_walked_by_their_links_compressed_or_not(http, depositor) -> None:
    uuid = depositor.bundle(1, files=7)
    url: str | None = f"/v1/bundles/{uuid}?replica=aws&per_page=3"
    names: list[str] = []
    while url:
        page = http.get(url)
        names += [file["name"] for file in page.json()["bundle"]["files"]]
        url = page.links.get("next", {}).get("url")
        assert page.status_code == (206 if url else 200)
    assert len(names) == len(set(names)) == 7


@pytest.mark.spec("CON-20")
def test_compressed_and_plain_responses_are_equal(base) -> None:
    with httpx.Client(base_url=base, trust_env=False) as client:
        plain = client.get("/v1/swagger.json", headers={"Accept-Encoding": "identity"})
        with client.stream("GET", "/v1/swagger.json", headers={"Accept-Encoding": "gzip"}) as sent:
            packed = b"".join(sent.iter_raw())
    assert gzip.decompress(packed) == plain.content
    assert len(packed) * 4 < len(plain.content)


@pytest.mark.spec("CON-18")
def test_options_and_refused_methods_name_what_is_allowed(http) -> None:
    url = f"/v1/files/{uuid_of(1)}"
    for answer in (http.options(url), http.post(url, headers=INGEST)):
        assert sorted(answer.headers["Allow"].split(", ")) == ["GET", "HEAD", "OPTIONS", "PUT"]
