"""PATCH of a bundle: additions, removals and the new version."""

from typing import Any

import pytest

from pipelines.formats import version_from_us
from storage.catalog import now_us
from storage.stores import Stores
from tests.api.builders import INGEST, READER, VERSION, Depositor, uuid_of

UUID = uuid_of(9)
KEY = "Idempotency-Key"


class Patching:
    """A bundle of three files, one of them metadata, and requests to patch it."""

    def __init__(self, depositor: Depositor) -> None:
        self.client, self.depositor = depositor.client, depositor
        self.entries = depositor.files((1, 2, 3))
        self.entries[2]["indexed"] = True
        assert depositor.put_bundle(UUID, self.entries).status_code == 201
        depositor.drain()

    def patch(self, body: Any, *, version: str = VERSION, **headers: str) -> Any:
        return self.client.patch(
            f"/v1/bundles/{UUID}?version={version}&replica=aws", json=body, headers=INGEST | headers
        )

    def patched(self, body: Any, **more: Any) -> str:
        answer = self.patch(body, **more)
        assert answer.status_code == 200, answer.text
        assert answer.json.keys() == {"uuid", "version"}
        return str(answer.json["version"])

    def names(self, version: str, replica: str = "aws") -> list[str]:
        answer = self.client.get(f"/v1/bundles/{UUID}?version={version}&replica={replica}")
        assert answer.status_code == 200, answer.text
        return [file["name"] for file in answer.json["bundle"]["files"]]


@pytest.fixture
def patching(depositor: Depositor) -> Patching:
    return Patching(depositor)


@pytest.mark.spec("SVC-06", "BUN-36")
def test_patch_adds_and_removes_and_keeps_old_version(patching: Patching) -> None:
    new = patching.depositor.file(4)
    version = patching.patched({"add_files": [new], "remove_files": [patching.entries[0]]})
    assert version > VERSION
    patching.depositor.drain()
    for replica in ("aws", "gcp"):
        assert patching.names(version, replica) == ["f2.txt", "f3.txt", "f4.txt"]
        assert patching.names(VERSION, replica) == ["f1.txt", "f2.txt", "f3.txt"]


@pytest.mark.spec("BUN-42")
def test_an_empty_patch_still_writes_a_version(patching: Patching) -> None:
    first = patching.patched({})
    second = patching.patched({})
    assert VERSION < first < second
    assert patching.names(second) == patching.names(VERSION)


@pytest.mark.spec("FMT-03", "BUN-36", "BUN-37")
def test_any_live_version_may_be_patched_and_what_follows_is_later_than_it(
    patching: Patching, stores: Stores
) -> None:
    future = "2999-01-01T000000.000000Z"
    assert patching.depositor.put_bundle(UUID, patching.entries, version=future).status_code == 201
    assert patching.patched({}, version=future) == "2999-01-01T000000.000001Z"
    assert patching.patched({}, version=future) == "2999-01-01T000000.000002Z"
    with stores.catalog.read() as tx:
        before = version_from_us(now_us(tx))
    made = patching.patched({})
    with stores.catalog.read() as tx:
        assert before <= made <= version_from_us(now_us(tx))


@pytest.mark.spec("BUN-38", "BUN-39")
def test_accepts_member_names_of_specification(patching: Patching) -> None:
    new = patching.depositor.file(4)
    told = {"uuid": new["uuid"], "version": new["version"], "path": "m.json", "type": "metadata"}
    version = patching.patched({"add_files": [told]})
    answer = patching.client.get(f"/v1/bundles/{UUID}?version={version}&replica=aws")
    added = answer.json["bundle"]["files"][-1]
    assert (added["name"], added["indexed"]) == ("m.json", True)
    gone = {name: told[name] for name in ("uuid", "version", "path")}
    assert patching.names(patching.patched({"remove_files": [gone]}, version=version)) == [
        "f1.txt",
        "f2.txt",
        "f3.txt",
    ]


@pytest.mark.spec("BUN-38")
def test_indexed_defaults_to_false(patching: Patching) -> None:
    new = {**patching.depositor.file(4)}
    del new["indexed"]
    version = patching.patched({"add_files": [new]})
    answer = patching.client.get(f"/v1/bundles/{UUID}?version={version}&replica=aws")
    assert answer.json["bundle"]["files"][-1]["indexed"] is False


@pytest.mark.spec("BUN-39")
@pytest.mark.parametrize(
    "other",
    [
        {"uuid": uuid_of(77)},
        {"version": "2026-02-01T000000.000000Z"},
        {"name": "x"},
        {"indexed": True},
    ],
    ids=["uuid", "version", "name", "indexed"],
)
def test_ignores_removals_without_exact_match(patching: Patching, other: dict[str, Any]) -> None:
    version = patching.patched({"remove_files": [{**patching.entries[0], **other}]})
    assert patching.names(version) == ["f1.txt", "f2.txt", "f3.txt"]


@pytest.mark.spec("BUN-41")
def test_added_file_may_reuse_removed_name(patching: Patching) -> None:
    new = {**patching.depositor.file(4), "name": "f1.txt"}
    body = {"add_files": [new], "remove_files": [patching.entries[0]]}
    assert patching.names(patching.patched(body)) == ["f2.txt", "f3.txt", "f1.txt"]


@pytest.mark.spec("BUN-41")
@pytest.mark.parametrize("name", ["f1.txt", "f1.txt/inside"])
def test_rejects_used_name(patching: Patching, name: str) -> None:
    new = {**patching.depositor.file(4), "name": name}
    answer = patching.patch({"add_files": [new]})
    assert (answer.status_code, answer.json["code"]) == (400, "duplicate_filename")
    assert any(where.startswith("/add_files") for where in answer.json["errors"])


@pytest.mark.spec("BUN-41", "ERR-09")
def test_names_must_be_unique_among_what_is_added(patching: Patching) -> None:
    new = patching.depositor.file(4)
    answer = patching.patch({"add_files": [new, new]})
    assert (answer.status_code, answer.json["code"]) == (400, "duplicate_filename")
    assert list(answer.json["errors"]) == ["/add_files/1/name"]


@pytest.mark.spec("BUN-42")
def test_a_patch_that_leaves_no_file_is_refused(patching: Patching) -> None:
    answer = patching.patch({"remove_files": patching.entries})
    assert (answer.status_code, answer.json["code"]) == (400, "illegal_arguments")
    assert list(answer.json["errors"]) == ["/remove_files"]


@pytest.mark.spec("BUN-43", "ERR-10")
def test_absent_files_are_named(patching: Patching) -> None:
    absent = {"uuid": uuid_of(77), "version": VERSION, "name": "a", "indexed": False}
    answer = patching.patch({"add_files": [patching.depositor.file(4), absent]})
    assert (answer.status_code, answer.json["code"]) == (400, "file_missing")
    assert list(answer.json["errors"]) == ["/add_files/1"]


@pytest.mark.spec("BUN-43", "ERR-04")
def test_a_file_that_is_still_being_verified_is_409(patching: Patching) -> None:
    patching.depositor.put_file(uuid_of(4))
    new = {"uuid": uuid_of(4), "version": VERSION, "name": "a"}
    answer = patching.patch({"add_files": [new]}, Prefer="respond-async")
    assert (answer.status_code, answer.json["code"]) == (409, "file_pending")
    assert int(answer.headers["Retry-After"]) > 0


@pytest.mark.spec("BUN-38")
@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"add_files": {}}, "/add_files"),
        ({"add_files": [1]}, "/add_files/0"),
        ({"add_files": [{"uuid": uuid_of(1), "version": VERSION}]}, "/add_files/0/name"),
        (
            {"add_files": [{"uuid": uuid_of(1), "version": VERSION, "name": "a", "path": "b"}]},
            "/add_files/0/path",
        ),
        (
            {
                "add_files": [
                    {"uuid": uuid_of(1), "version": VERSION, "name": "a", "type": "picture"}
                ]
            },
            "/add_files/0/type",
        ),
        (
            {"remove_files": [{"uuid": "x", "version": VERSION, "name": "a"}]},
            "/remove_files/0/uuid",
        ),
        (
            {"remove_files": [{"uuid": uuid_of(1), "version": VERSION, "name": "a", "b": 1}]},
            "/remove_files/0/b",
        ),
        ({"add": []}, "/add"),
    ],
)
def test_bad_bodies_name_the_member(patching: Patching, body: Any, where: str) -> None:
    answer = patching.patch(body)
    assert answer.status_code == 400
    assert list(answer.json["errors"]) == [where]


@pytest.mark.spec("BUN-40")
@pytest.mark.parametrize("member", ["add_files", "remove_files"])
def test_a_thousand_entries_are_the_most(patching: Patching, member: str) -> None:
    one = {"uuid": uuid_of(1), "version": VERSION, "name": "nowhere"}
    assert patching.patch({"remove_files": [one] * 1000}).status_code == 200
    answer = patching.patch({member: [one] * 1001})
    assert (answer.status_code, list(answer.json["errors"])) == (400, [f"/{member}"])


@pytest.mark.spec("BUN-36", "VER-02")
def test_a_version_must_be_named_and_be_there(patching: Patching) -> None:
    url = f"/v1/bundles/{UUID}?replica=aws"
    answer = patching.client.patch(url, json={}, headers=INGEST)
    assert answer.json["detail"] == "Missing query parameter 'version'"
    assert patching.patch({}, version="2026-02-01T000000.000000Z").status_code == 404
    assert patching.patch({}, version="2026-02-01T00:00:00Z").json["code"] == "illegal_version"


@pytest.mark.spec("BUN-46")
def test_rejects_patch_of_deleted_bundle(patching: Patching) -> None:
    patching.client.delete(
        f"/v1/bundles/{UUID}?replica=aws&version={VERSION}", json={"reason": "x"}, headers=INGEST
    )
    assert patching.patch({}).status_code == 404


@pytest.mark.spec("BUN-48")
def test_patch_requires_ingest_role(patching: Patching) -> None:
    url = f"/v1/bundles/{UUID}?replica=aws&version={VERSION}"
    assert patching.client.patch(url, json={}).status_code == 401
    assert patching.client.patch(url, json={}, headers=READER).status_code == 403


@pytest.mark.spec("BUN-44")
def test_the_same_key_is_answered_the_same_once_more(patching: Patching) -> None:
    body = {"remove_files": [patching.entries[0]]}
    first = patching.patched(body, **{KEY: "one"})
    assert patching.patched(body, **{KEY: "one"}) == first
    assert patching.patched(body, **{KEY: "two"}) > first
    listed = patching.client.get("/v1/bundles/all?replica=aws").json["bundles"]
    assert len(listed) == 3


@pytest.mark.spec("BUN-44", "ERR-28")
def test_a_key_that_was_used_for_another_request_is_refused(patching: Patching) -> None:
    patching.patched({}, **{KEY: "one"})
    answer = patching.patch({"remove_files": [patching.entries[0]]}, **{KEY: "one"})
    assert (answer.status_code, answer.json["code"]) == (409, "already_exists")


@pytest.mark.spec("BUN-44")
def test_a_key_is_its_owner_s(patching: Patching) -> None:
    first = patching.patched({}, **{KEY: "one"})
    other = {"Authorization": "Bearer other"}
    assert patching.patched({}, **{KEY: "one"}, **other) != first


@pytest.mark.spec("BUN-44")
@pytest.mark.parametrize("key", ["", "k" * 256, "caf\xe9"])
def test_a_key_is_short_and_printable(patching: Patching, key: str) -> None:
    answer = patching.patch({}, **{KEY: key})
    assert (answer.status_code, list(answer.json["errors"])) == (400, [KEY])
