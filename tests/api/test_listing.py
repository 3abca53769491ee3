"""The listing of bundles: every live version once, whatever the page and whoever writes."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

from storage.model import REPLICAS
from tests.api.builders import INGEST, VERSION, Depositor, uuid_of

LATER = "2026-02-01T000000.000000Z"


@pytest.fixture
def several(client, depositor: Depositor) -> list[tuple[str, str]]:
    """Bundles of one and two versions, and two tombstones; what is live, in order."""
    entry = depositor.file(0x500)
    for number in range(1, 8):
        for version in (VERSION, LATER) if number % 2 else (VERSION,):
            depositor.put_bundle(uuid_of(number), [entry], version=version)
    depositor.drain()
    for query in (f"{uuid_of(2)}?replica=gcp", f"{uuid_of(5)}?replica=aws&version={VERSION}"):
        client.delete(f"/v1/bundles/{query}", json={"reason": "x"}, headers=INGEST)
    return [
        (uuid_of(number), version)
        for number in (1, 3, 4, 5, 6, 7)
        for version in ((VERSION, LATER) if number % 2 else (VERSION,))
        if (number, version) != (5, VERSION)
    ]


def walk(
    client, replica: str, size: int, between: Callable[[], Any] = lambda: None
) -> Iterator[tuple[str, str]]:
    path = f"/v1/bundles/all?replica={replica}&per_page={size}"
    while path:
        page = client.get(path)
        link = page.headers.get("Link", "")
        assert page.status_code == (206 if link else 200)
        assert page.headers["X-OpenAPI-Paginated-Content-Key"] == "bundles"
        assert page.headers["X-OpenAPI-Pagination"] == ("true" if link else "false")
        assert page.json["has_more"] is bool(link)
        assert 0 < page.json["page_count"] == len(page.json["bundles"]) <= size
        yield from ((bundle["uuid"], bundle["version"]) for bundle in page.json["bundles"])
        between()
        path = link.partition(">")[0].removeprefix("<http://localhost")


def test_each_live_version_is_listed_once_in_order_by_pages_of_any_size(client, several) -> None:
    for replica, size in product(REPLICAS, (1, 2, 3, 9, 10, 500)):
        assert list(walk(client, replica, size)) == several, (replica, size)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_what_was_there_and_stayed_is_seen_once_while_others_write(
    client, depositor, several, size
) -> None:
    entry = depositor.file(0x500)
    fresh = iter([0, 8, 2, 9, 0x7FF])

    def write() -> None:
        if number := next(fresh, 0):
            depositor.put_bundle(uuid_of(number), [entry], version="2026-04-01T000000.000000Z")

    def remove() -> None:
        write()
        client.delete(
            f"/v1/bundles/{uuid_of(7)}?replica=aws&version={LATER}",
            json={"reason": "x"},
            headers=INGEST,
        )

    seen = list(walk(client, "aws", size, remove))
    assert len(seen) == len(set(seen))
    stayed = set(several) - {(uuid_of(7), LATER)}
    assert [one for one in seen if one in stayed] == sorted(stayed)


def test_the_beginning_of_a_uuid_narrows_the_walk_and_its_pages(client, several) -> None:
    beginning = uuid_of(1)[:-1]
    for prefix in (beginning, beginning.upper(), uuid_of(1)[:1], ""):
        path = f"/v1/bundles/all?replica=aws&prefix={prefix}"
        listed = [(one["uuid"], one["version"]) for one in client.get(path).json["bundles"]]
        assert listed == [each for each in several if each[0].startswith(prefix.lower())]
    page = client.get(f"/v1/bundles/all?replica=aws&prefix={beginning}&per_page=2")
    assert f"prefix={beginning}" in page.headers["Link"]
    for prefix in ("ffff", "xyz", "-", "G7"):
        assert client.get(f"/v1/bundles/all?replica=aws&prefix={prefix}").json["bundles"] == []
    for prefix in ("a_b", "a b", "*", "é", "a%00", "a."):
        refused = client.get(f"/v1/bundles/all?replica=aws&prefix={prefix}")
        assert (refused.status_code, refused.json["code"]) == (400, "illegal_arguments")


def test_a_pointer_belongs_to_its_replica_and_prefix(client, several) -> None:
    link = client.get("/v1/bundles/all?replica=aws&per_page=1").headers["Link"]
    path = link.partition(">")[0].removeprefix("<http://localhost")
    for other in (path.replace("aws", "gcp"), path + "&prefix=0"):
        answer = client.get(other)
        assert (answer.status_code, answer.json["code"]) == (400, "illegal_token")


def test_what_is_in_one_replica_only_is_in_that_one_only(client, depositor, drain) -> None:
    depositor.put_bundle(uuid_of(9), [depositor.file(1)])

    def seen(replica: str) -> tuple[int, int, int, int]:
        listed = client.get(f"/v1/bundles/all?replica={replica}").json["bundles"]
        found = client.post(f"/v1/search?replica={replica}", json={"es_query": {}}).json
        return (
            len(listed),
            client.get(f"/v1/bundles/{uuid_of(9)}?replica={replica}").status_code,
            client.post(f"/v1/bundles/{uuid_of(9)}/checkout?replica={replica}").status_code,
            found["total_hits"],
        )

    assert seen("gcp") == (0, 404, 404, 0)
    drain()
    assert seen("aws") == seen("gcp") == (1, 200, 200, 1)
