"""Collections over HTTP: private sets of links, and their versions."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from sqlalchemy import event

from pipelines import records
from pipelines.limits import COLLECTION_ITEMS_MAX
from storage import keys
from storage.model import FQID, REPLICAS
from storage.stores import Stores
from tests.api.builders import INGEST, READER, VERSION, Depositor, uuid_of

OTHER = {"Authorization": "Bearer other"}
UUID = uuid_of(77)
LATER = "2026-02-01T000000.000000Z"
METADATA = {"donor": {"a/b": [{"name": "x"}, {"m~n": None}]}, "": 1}


class Curator:
    """Somebody who collects, at one store."""

    def __init__(self, depositor: Depositor) -> None:
        self.client, self.depositor = depositor.client, depositor

    def put(self, contents: list[Any], **more: Any) -> Any:
        query = {
            "uuid": more.get("uuid", UUID),
            "version": more.get("version", VERSION),
            "replica": more.get("replica", "aws"),
        }
        body = {"name": "n", "description": "d", "details": {}, "contents": contents}
        return self.client.put(
            "/v1/collections",
            query_string=query,
            json=body | more.get("body", {}),
            headers=more.get("headers", INGEST),
        )

    def made(self, contents: list[Any], **more: Any) -> None:
        answer = self.put(contents, **more)
        assert answer.status_code == 201, answer.text
        self.depositor.drain()

    def get(self, *, uuid: str = UUID, headers: Any = INGEST, **query: str) -> Any:
        return self.client.get(
            f"/v1/collections/{uuid}", query_string={"replica": "aws"} | query, headers=headers
        )

    def contents(self, **query: str) -> Any:
        answer = self.get(**query)
        assert answer.status_code == 200, answer.text
        return answer.json["contents"]

    def patch(self, body: Any, *, version: str = VERSION, headers: Any = INGEST) -> Any:
        return self.client.patch(
            f"/v1/collections/{UUID}?version={version}&replica=aws", json=body, headers=headers
        )

    def patched(self, body: Any, **more: Any) -> str:
        answer = self.patch(body, **more)
        assert answer.status_code == 200, answer.text
        assert answer.json.keys() == {"uuid", "version"}
        self.depositor.drain()
        return str(answer.json["version"])

    def delete(self, *, replica: str = "aws", headers: Any = INGEST) -> Any:
        return self.client.delete(f"/v1/collections/{UUID}?replica={replica}", headers=headers)

    def listed(self, headers: Any = INGEST, **query: Any) -> Any:
        return self.client.get("/v1/collections", query_string=query, headers=headers)

    def file(self, number: int, data: bytes = b"content") -> dict[str, Any]:
        entry = self.depositor.file(number, data)
        return {"type": "file", "uuid": entry["uuid"], "version": VERSION}

    def fragment(self, number: int, path: str, data: Any = METADATA) -> dict[str, Any]:
        return self.file(number, json.dumps(data).encode()) | {"type": "metadata", "path": path}


@pytest.fixture
def curator(depositor: Depositor) -> Curator:
    return Curator(depositor)


def link(uuid: str, kind: str = "bundle", version: str = VERSION, **more: str) -> dict[str, str]:
    return {"type": kind, "uuid": uuid, "version": version, **more}


def refused(answer: Any, status: int, code: str) -> Any:
    assert (answer.status_code, answer.json["code"]) == (status, code), answer.text
    return answer.json


@pytest.mark.spec("SVC-04", "COL-02", "COL-03", "COL-11", "COL-12")
def test_a_collection_is_written_and_read_in_both_replicas(curator: Curator) -> None:
    bundle = curator.depositor.bundle(1)
    contents = [
        link(bundle, path="https://example.org/1"),
        curator.file(2),
        curator.fragment(3, "/donor"),
    ]
    about = {"name": "Kidney", "description": "*all*", "details": {"b": [1, None], "a": {}}}
    answer = curator.put(contents, body=about)
    assert (answer.status_code, answer.json) == (201, {"uuid": UUID, "version": VERSION})
    curator.depositor.drain()
    for replica in REPLICAS:
        expected = about | {"uuid": UUID, "version": VERSION, "contents": contents}
        assert curator.get(replica=replica).json == expected | {"owner": "ingest@example.org"}


@pytest.mark.spec("COL-07", "COL-12")
def test_details_are_any_json_object(curator: Curator) -> None:
    details = {"\0": "\0", "é": [1.5, -3, 2**63, True, None, {}], "": {"a": {"b": []}}, "𝄞": "𝄞"}
    curator.made([], body={"details": details, "name": "", "description": "a\nb"})
    for replica in REPLICAS:
        assert curator.get(replica=replica).json["details"] == details
    assert curator.put([], body={"details": details, "name": "", "description": "a\nb"}).json


LARGE = {
    "integers": [2**64, -(2**63) - 1, 10**30, 10**400, 10**4300 - 1],
    "others": [2**64 - 1, -(2**63), str(2**80), 1e30, 0.1234567890123456, -0.0],
}


@pytest.mark.spec("COL-07")
def test_numbers_of_details_are_exact_in_both_replicas_and_after_a_patch(
    curator: Curator, stores: Stores
) -> None:
    body = {"details": LARGE, "name": "", "description": ""}
    curator.made([], body=body)
    for replica in REPLICAS:
        assert repr(curator.get(replica=replica).json["details"]) == repr(LARGE)
    assert curator.put([], body=body).status_code == 200
    fqid = FQID(UUID, VERSION)
    record = b"".join(stores.replicas["aws"].read(keys.record_key("collection", fqid)))
    rebuilt = records.parse_collection_record(keys.RecordKey("collection", fqid), record)
    assert repr(dict(sorted(rebuilt.details.items()))) == repr(LARGE)
    other = {**LARGE, "integers": [2**64 + 1]}
    refused(curator.put([], body=body | {"details": other}), 409, "collection_already_exists")
    where = f"/v1/collections/{UUID}?version={VERSION}&replica=aws"
    patched = curator.client.patch(where, json={"name": "renamed"}, headers=INGEST)
    assert patched.status_code == 200, patched.text
    curator.depositor.drain()
    for replica in REPLICAS:
        found = curator.get(replica=replica, version=patched.json["version"]).json
        assert (found["name"], repr(found["details"])) == ("renamed", repr(LARGE))


@pytest.mark.spec("COL-07")
def test_an_integer_of_too_many_digits_is_refused(curator: Curator) -> None:
    body = f'{{"name": "", "description": "", "contents": [], "details": {{"n": {"1" * 4301}}}}}'
    where = f"/v1/collections?uuid={UUID}&version={VERSION}&replica=aws"
    answer = curator.client.put(where, data=body, headers=INGEST)
    refused(answer, 400, "illegal_arguments")
    assert "more than 4300 digits" in answer.json["detail"]


@pytest.mark.spec("SVC-06", "COL-14")
def test_collection_reaches_other_replica_after_its_links(curator: Curator) -> None:
    curator.depositor.bundle(1)
    assert curator.put([link(uuid_of(1))]).status_code == 201
    assert curator.get(replica="aws").status_code == 200
    refused(curator.get(replica="gcp"), 404, "not_found")
    curator.depositor.drain()
    assert curator.get(replica="gcp").status_code == 200


@pytest.mark.spec("COL-14")
def test_records_are_the_same_bytes_in_both_buckets(curator: Curator, stores: Stores) -> None:
    curator.made([curator.file(1)], body={"details": {"z": 1, "a": "é"}})
    key = keys.record_key("collection", FQID(UUID, VERSION))
    first, second = (b"".join(stores.replicas[replica].read(key)) for replica in REPLICAS)
    assert first == second
    told = json.loads(first)
    assert told["owner"] == told["author"] == "ingest@example.org"
    assert told["contents"] == curator.contents()


@pytest.mark.spec("COL-11", "VER-02")
def test_the_latest_version_is_read_when_none_is_named(curator: Curator) -> None:
    curator.made([], version=LATER, body={"name": "later"})
    curator.made([])
    assert curator.get().json["name"] == "later"
    assert curator.get(version=VERSION).json["name"] == "n"
    refused(curator.get(version="2026-03-01T000000.000000Z"), 404, "not_found")


@pytest.mark.spec("COL-02", "COL-08", "ERR-24")
def test_the_same_content_again_is_success_and_other_content_is_not(curator: Curator) -> None:
    one, two = curator.file(1), curator.file(2)
    curator.made([one, two], body={"details": {"a": 1, "b": 2}})
    again = curator.put([two, one, two], body={"details": {"b": 2, "a": 1}})
    assert (again.status_code, again.json) == (200, {"uuid": UUID, "version": VERSION})
    assert curator.contents() == [one, two]
    for body in ({"name": "x"}, {"description": "x"}, {"details": {"a": 2}}):
        refused(curator.put([one, two], body=body), 409, "collection_already_exists")
    refused(curator.put([one]), 409, "collection_already_exists")


@pytest.mark.spec("COL-02")
def test_repeated_put_succeeds_after_target_was_deleted(curator: Curator) -> None:
    bundle = curator.depositor.bundle(1)
    curator.made([link(bundle)])
    curator.client.delete(
        f"/v1/bundles/{bundle}?replica=aws", json={"reason": "wrong"}, headers=INGEST
    )
    assert curator.put([link(bundle)]).status_code == 200
    refused(curator.put([link(bundle)], version=LATER), 422, "invalid_link")
    # What was linked to before it went stays, also in the version that follows.
    version = curator.patched({"name": "new"})
    assert curator.contents(version=version, replica="gcp") == [link(bundle)]


@pytest.mark.spec("COL-06")
def test_identical_items_are_there_once(curator: Curator) -> None:
    one = curator.file(1)
    shouted = one | {"uuid": one["uuid"].upper()}
    named = one | {"path": ""}
    curator.made([one, shouted, named, one, one | {"fragment": ""}])
    assert curator.contents() == [one, named]


@pytest.mark.spec("COL-06", "COL-22", "LIM-04")
def test_accepts_at_most_1000_items(curator: Curator) -> None:
    one = curator.file(1)
    many = [one | {"path": str(place)} for place in range(COLLECTION_ITEMS_MAX)]
    more = refused(curator.put([*many, one]), 400, "illegal_arguments")
    assert "/contents" in more["errors"]
    # It is the number of items given that counts, not that of different ones.
    refused(curator.put([one] * 1001), 400, "illegal_arguments")
    curator.made(many)
    for member in ("add_contents", "remove_contents"):
        wrong = refused(curator.patch({member: [one] * 1001}), 400, "illegal_arguments")
        assert f"/{member}" in wrong["errors"]
    more = [one | {"path": f"more {place}"} for place in range(COLLECTION_ITEMS_MAX)]
    version = curator.patched({"add_contents": more, "remove_contents": many})
    assert curator.contents(version=version) == more


@pytest.mark.spec("COL-05", "COL-20", "ERR-38")
@pytest.mark.parametrize("kind", ["file", "bundle", "collection", "project"])
def test_a_target_that_is_not_in_the_replica_is_named_by_its_pointer(
    curator: Curator, kind: str
) -> None:
    good = curator.file(1)
    wrong = refused(curator.put([good, link(uuid_of(99), kind, path="/a")]), 422, "invalid_link")
    assert list(wrong["errors"]) == ["/contents/1"]
    refused(curator.get(), 404, "not_found")
    curator.made([good])
    wrong = refused(
        curator.patch({"add_contents": [good, good, link(uuid_of(99), kind, path="/a")]}),
        422,
        "invalid_link",
    )
    assert list(wrong["errors"]) == ["/add_contents/2"]


@pytest.mark.spec("COL-05")
def test_rejects_target_of_other_replica_only(curator: Curator, drain: Any) -> None:
    bundle = curator.depositor.bundle(1)
    entry = {"uuid": uuid_of(0x100), "version": VERSION, "name": "a", "indexed": False}
    # Written and not synced yet.
    assert curator.depositor.put_bundle(uuid_of(5), [entry]).status_code == 201
    refused(curator.put([link(uuid_of(5))], replica="gcp"), 422, "invalid_link")
    assert curator.put([link(bundle)], replica="gcp").status_code == 201
    assert curator.put([link(uuid_of(5))], uuid=uuid_of(78)).status_code == 201


@pytest.mark.spec("COL-05")
def test_versions_of_a_target_are_different_targets(curator: Curator) -> None:
    one = curator.file(1)
    refused(curator.put([one | {"version": LATER}]), 422, "invalid_link")


@pytest.mark.spec("COL-05")
def test_a_collection_may_link_to_its_own_earlier_version_and_not_to_itself(
    curator: Curator,
) -> None:
    refused(curator.put([link(UUID, "collection")]), 422, "invalid_link")
    curator.made([])
    curator.made([link(UUID, "collection")], version=LATER)
    assert curator.contents(replica="gcp") == [link(UUID, "collection")]


@pytest.mark.spec("COL-05")
def test_rejects_links_to_other_owners_collections(curator: Curator) -> None:
    curator.made([])
    absent = refused(
        curator.put([link(uuid_of(99), "collection")], uuid=uuid_of(2), headers=OTHER),
        422,
        "invalid_link",
    )
    theirs = refused(
        curator.put([link(UUID, "collection")], uuid=uuid_of(2), headers=OTHER),
        422,
        "invalid_link",
    )
    assert absent["detail"].replace(uuid_of(99), UUID) == theirs["detail"]


@pytest.mark.spec("COL-04")
@pytest.mark.parametrize(
    "path", ["", "/", "/donor", "/donor/a~1b/0/name", "/donor/a~1b/1/m~0n", "/donor/a~1b"]
)
@pytest.mark.parametrize("member", ["path", "fragment"])
def test_a_pointer_that_resolves_is_a_link(curator: Curator, path: str, member: str) -> None:
    item = curator.fragment(1, "")
    del item["path"]
    curator.made([item | {member: path}])
    assert curator.contents() == [item | {"path": path}]


@pytest.mark.spec("COL-04")
@pytest.mark.parametrize(
    "path",
    ["donor", "#/donor", "/nothing", "/donor/a~1b/2", "/donor/a~1b/-", "/donor/a~1b/01",
     "/donor/a~1b/1/m~n", "/donor/a~2b", "/donor~", "/donor/a~1b/0/name/0", "/donor/"],
)  # fmt: skip
def test_rejects_unresolvable_json_pointer(curator: Curator, path: str) -> None:
    wrong = refused(curator.put([curator.fragment(1, path)]), 422, "invalid_link")
    assert list(wrong["errors"]) == ["/contents/0"]


@pytest.mark.spec("COL-04")
def test_a_fragment_needs_a_path_and_a_file_of_json(curator: Curator) -> None:
    item = curator.fragment(1, "")
    del item["path"]
    refused(curator.put([item]), 422, "invalid_link")
    text = curator.file(2, b"no json") | {"type": "sample", "path": ""}
    wrong = refused(curator.put([text]), 422, "invalid_link")
    assert "not JSON" in wrong["errors"]["/contents/0"][0]


@pytest.mark.spec("COL-03")
def test_path_and_fragment_must_not_differ(curator: Curator) -> None:
    item = curator.fragment(1, "/donor") | {"fragment": "/"}
    wrong = refused(curator.put([item]), 400, "illegal_arguments")
    assert list(wrong["errors"]) == ["/contents/0/fragment"]


@pytest.mark.spec("COL-21")
def test_removal_needs_an_exact_match_and_ignores_what_is_absent(curator: Curator) -> None:
    one, two, part = curator.file(1), curator.file(2), curator.fragment(3, "/donor")
    curator.made([one, two, part])
    near = [
        one | {"version": LATER},
        two | {"path": ""},
        two | {"type": "bundle"},
        part | {"path": "/"},
        link(uuid_of(99)),
    ]
    version = curator.patched({"remove_contents": near})
    assert curator.contents(version=version) == [one, two, part]
    shouted = one | {"uuid": one["uuid"].upper()}
    again = {"type": part["type"], "uuid": part["uuid"], "version": VERSION, "fragment": "/donor"}
    version = curator.patched({"remove_contents": [shouted, again, shouted]}, version=version)
    assert curator.contents(version=version) == [two]


@pytest.mark.spec("COL-20")
def test_patch_removes_then_adds_without_duplicates(curator: Curator) -> None:
    one, two = curator.file(1), curator.file(2)
    curator.made([one, two])
    version = curator.patched({"add_contents": [one, two], "remove_contents": [one]})
    assert curator.contents(version=version) == [two, one]


@pytest.mark.spec("COL-19")
def test_patch_changes_only_given_members_and_keeps_old_version(
    curator: Curator,
) -> None:
    curator.made([curator.file(1)], body={"details": {"a": 1}})
    first = curator.patched({"name": "new"})
    second = curator.patched({"description": "new", "details": {}}, version=first)
    shown = curator.get(version=second).json
    assert (shown["name"], shown["description"], shown["details"]) == ("new", "new", {})
    assert curator.get(version=VERSION).json["details"] == {"a": 1}
    assert curator.contents(version=second, replica="gcp") == curator.contents(version=VERSION)
    for member in ("name", "description", "details"):
        refused(curator.patch({member: None}), 400, "illegal_arguments")


@pytest.mark.spec("COL-18", "COL-23")
def test_an_empty_patch_writes_a_version_and_any_live_one_may_be_patched(curator: Curator) -> None:
    future = "2999-01-01T000000.000000Z"
    curator.made([])
    curator.made([], version=future)
    assert curator.patched({}, version=future) == "2999-01-01T000000.000001Z"
    assert curator.patched({}, version=future) == "2999-01-01T000000.000002Z"
    assert VERSION < curator.patched({}) < future
    refused(curator.patch({}, version=LATER), 404, "not_found")


@pytest.mark.spec("COL-18", "CON-12")
def test_the_uuid_of_a_patch_may_be_in_the_query(curator: Curator) -> None:
    curator.made([])
    url = f"/v1/collections?version={VERSION}&replica=aws"
    answer = curator.client.patch(f"{url}&uuid={UUID.upper()}", json={}, headers=INGEST)
    assert (answer.status_code, answer.json["uuid"]) == (200, UUID)
    wrong = refused(curator.client.patch(url, json={}, headers=INGEST), 400, "illegal_arguments")
    assert wrong["detail"] == "Missing query parameter 'uuid'"
    wrong = curator.client.patch(f"{url}&uuid=x", json={}, headers=INGEST)
    assert list(refused(wrong, 400, "illegal_arguments")["errors"]) == ["uuid"]


@pytest.mark.spec("COL-24")
def test_a_repeated_patch_is_answered_like_the_first(curator: Curator) -> None:
    curator.made([])
    headers = INGEST | {"Idempotency-Key": "k"}
    body = {"add_contents": [curator.file(1)], "details": {"a": 1}}
    first = curator.patched(body, headers=headers)
    assert curator.patched(body, headers=headers) == first
    refused(curator.patch({}, headers=headers), 409, "already_exists")
    assert len(curator.listed().json["collections"]) == 2


@pytest.mark.spec("SVC-04", "COL-13", "COL-15", "WHO-05")
def test_other_owners_collection_is_403(curator: Curator) -> None:
    curator.made([])
    for answer in (
        curator.get(headers=OTHER),
        curator.put([], headers=OTHER),
        curator.put([], version=LATER, headers=OTHER),
        curator.patch({}, headers=OTHER),
        curator.delete(headers=OTHER),
    ):
        refused(answer, 403, "forbidden")
    assert curator.listed(OTHER).json == {"collections": []}
    assert curator.get().json["owner"] == "ingest@example.org"


@pytest.mark.spec("COL-13")
def test_user_without_ingest_role_has_no_collections(curator: Curator) -> None:
    for headers, status, code in (
        ({}, 401, "unauthorized"),
        (READER, 403, "forbidden"),
    ):
        for answer in (
            curator.listed(headers),
            curator.get(headers=headers),
            curator.put([], headers=headers),
            curator.patch({}, headers=headers),
            curator.delete(headers=headers),
        ):
            refused(answer, status, code)


@pytest.mark.spec("COL-09", "COL-25", "ERR-26")
@pytest.mark.parametrize("replica", REPLICAS)
def test_deleted_collection_is_gone_at_once(curator: Curator, stores: Stores, replica: str) -> None:
    curator.made([])
    version = curator.patched({})
    answer = curator.delete(replica=replica)
    assert (answer.status_code, answer.json) == (200, {})
    for named in REPLICAS:
        refused(curator.get(replica=named), 404, "not_found")
        refused(curator.get(replica=named, version=version), 404, "not_found")
    assert curator.listed().json == {"collections": []}
    refused(curator.delete(), 404, "not_found")
    refused(curator.patch({}), 404, "not_found")
    for again in (VERSION, LATER):
        buried = curator.put([], version=again)
        refused(buried, 409, "collection_tombstone_already_exists")
    refused(curator.put([], headers=OTHER), 403, "forbidden")
    refused(curator.put([link(UUID, "collection")], uuid=uuid_of(5)), 422, "invalid_link")
    curator.depositor.drain()
    key = keys.tombstone_key("collection", UUID)
    first, second = (b"".join(stores.replicas[name].read(key)) for name in REPLICAS)
    assert first == second
    assert json.loads(first)["of"] == "collection"


@pytest.mark.spec("COL-25")
def test_deleting_absent_collection_is_404(curator: Curator) -> None:
    refused(curator.delete(), 404, "not_found")
    curator.made([])


def pages(curator: Curator, **query: Any) -> Iterator[list[Any]]:
    """A walk by the links; after each page the caller may write."""
    answer = curator.listed(**query)
    while True:
        more = "Link" in answer.headers
        assert answer.status_code == (206 if more else 200), answer.text
        assert answer.headers["X-OpenAPI-Paginated-Content-Key"] == "collections"
        yield answer.json["collections"]
        if not more:
            return
        url = answer.headers["Link"].partition("<")[2].partition(">")[0]
        asked = dict(parse_qsl(urlsplit(url).query))
        assert asked.items() >= {key: str(value) for key, value in query.items()}.items()
        answer = curator.listed(**asked)


@pytest.mark.spec("COL-15", "COL-16", "CON-02", "CON-04")
@pytest.mark.parametrize("size", [1, 2, 3, 7, 500])
def test_the_list_has_each_live_version_of_the_caller_once(curator: Curator, size: int) -> None:
    for number in (3, 1, 2):
        curator.made([], uuid=uuid_of(number), replica="gcp" if number == 2 else "aws")
    curator.made([], uuid=uuid_of(2), version=LATER)
    curator.made([], uuid=uuid_of(9), headers=OTHER)
    expected = [(1, VERSION), (2, VERSION), (2, LATER), (3, VERSION)]
    found = list(pages(curator, per_page=size))
    assert all(found)
    assert [one for page in found for one in page] == [
        {"uuid": uuid_of(number), "version": version} for number, version in expected
    ]


@pytest.mark.spec("COL-17")
def test_a_walk_is_stable_while_the_list_is_written_to(curator: Curator) -> None:
    for number in (2, 4, 6, 8):
        curator.made([], uuid=uuid_of(number))
    walk = pages(curator, per_page=2)
    seen = next(walk)
    curator.made([], uuid=uuid_of(1))
    curator.made([], uuid=uuid_of(2), version=LATER)
    curator.client.delete(f"/v1/collections/{uuid_of(4)}?replica=gcp", headers=INGEST)
    for page in walk:
        seen += page
    assert [one["uuid"] for one in seen] == [uuid_of(number) for number in (2, 4, 6, 8)]


@pytest.mark.spec("COL-16", "CON-05")
def test_rejects_page_token_of_another_users_list(curator: Curator) -> None:
    for number in (1, 2):
        curator.made([], uuid=uuid_of(number))
    url = curator.listed(per_page=1).headers["Link"]
    pointer = dict(parse_qsl(urlsplit(url.partition("<")[2].partition(">")[0]).query))["start_at"]
    for headers, start_at in ((OTHER, pointer), (INGEST, pointer[:-2] + "AA"), (INGEST, "x")):
        wrong = refused(curator.listed(headers, start_at=start_at), 400, "illegal_token")
        assert list(wrong["errors"]) == ["start_at"]


@pytest.mark.spec("COL-03")
@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"name": "x" * 1025}, "/name"),
        ({"name": 1}, "/name"),
        ({"description": "x" * 65_537}, "/description"),
        ({"details": []}, "/details"),
        ({"details": {"x": "x" * 262_144}}, "/details"),
        ({"owner": "me"}, "/owner"),
        ({"contents": {}}, "/contents"),
        ({"contents": [{}]}, "/contents/0/type"),
        ({"contents": [link(UUID, "")]}, "/contents/0/type"),
        ({"contents": [link("x")]}, "/contents/0/uuid"),
        ({"contents": [link(UUID) | {"more": 1}]}, "/contents/0/more"),
        ({"contents": [link(UUID, path="x" * 4097)]}, "/contents/0/path"),
    ],
)
def test_rejects_invalid_bodies(curator: Curator, body: Any, pointer: str) -> None:
    wrong = refused(curator.put([], body=body), 400, "illegal_arguments")
    assert pointer in wrong["errors"]


@pytest.mark.spec("FMT-02")
def test_versions_must_be_spelled_as_such(curator: Curator) -> None:
    refused(curator.put([], version="2026"), 400, "illegal_version")
    wrong = refused(curator.put([link(UUID, version="1")]), 400, "illegal_version")
    assert list(wrong["errors"]) == ["/contents/0/version"]


@pytest.mark.spec("COL-01")
def test_every_member_of_a_new_collection_is_required(curator: Curator) -> None:
    answer = curator.client.put(
        f"/v1/collections?uuid={UUID}&version={VERSION}&replica=aws", json={}, headers=INGEST
    )
    wrong = refused(answer, 400, "illegal_arguments")
    assert wrong["errors"].keys() == {"/name", "/description", "/details", "/contents"}
    for name in ("uuid", "version", "replica"):
        query = {"uuid": UUID, "version": VERSION, "replica": "aws"}
        del query[name]
        answer = curator.client.put("/v1/collections", query_string=query, json={}, headers=INGEST)
        wrong = refused(answer, 400, "illegal_arguments")
        assert wrong["detail"] == f"Missing query parameter '{name}'"


@pytest.mark.spec("COL-10")
def test_many_links_take_few_queries(
    curator: Curator, stores: Stores, counted: Callable[[], int]
) -> None:
    one, part = curator.file(1), curator.fragment(2, "")
    curator.made([one, part], uuid=uuid_of(1))
    few = counted()
    many = [one | {"path": str(place)} for place in range(400)]
    many += [part | {"type": f"t{place}"} for place in range(400)]
    counted()
    assert curator.put(many, uuid=uuid_of(2)).status_code == 201
    assert counted() <= few + 5


@pytest.fixture
def counted(stores: Stores) -> Iterator[Callable[[], int]]:
    """Statements since it was asked last."""
    seen: list[str] = []

    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(statement)

    event.listen(stores.catalog.engine, "before_cursor_execute", note)

    def since() -> int:
        count = len(seen)
        seen.clear()
        return count

    yield since
    event.remove(stores.catalog.engine, "before_cursor_execute", note)
