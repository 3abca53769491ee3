"""The commands of `store collection` and `store subscription`, from creation to deletion."""

import json
from pathlib import Path
from uuid import uuid4

import pytest

from tests.client.cli.people import Typist
from tests.client.download.deposits import VERSION
from tests.client.end_to_end.people import contents
from tests.client.nouns.conftest import LATER, READS, Shelf, rows

pytestmark = pytest.mark.spec("CLI-150")


def test_collection_of_a_search_is_created_listed_and_downloaded(
    shelf: Shelf, admin: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    listed = f"{shelf.liver}\tx\n{shelf.heart}.{VERSION}\n{shelf.heart}.{VERSION}\n"
    made = admin.reads(
        *("collection", "create", "--name", "Two organs", "--description", "*both*"),
        *("--details", '{"grant": 7}', "--bundles", "-", "--json"),
        given=listed,
    )
    assert made["count"] == 2
    assert made["page"] == f"{shelf.store.url}/collections/{made['uuid']}"
    found = rows(admin.types("collection", "list").stdout)
    assert {"uuid": made["uuid"], "version": made["version"]} in [
        {name: row[name] for name in ("uuid", "version")} for row in found
    ]
    for said in (made["uuid"], f"{made['uuid']}.{made['version']}", made["page"]):
        shown = admin.reads("collection", "show", said, "--json")
        assert (shown["name"], shown["count"]) == ("Two organs", 2)
        assert [one["version"] for one in shown["contents"]] == [LATER, VERSION]
        assert shown["details"] == {"grant": 7}
    table = admin.types("collection", "show", made["uuid"], "--format", "table").stdout
    assert "contents:" not in table
    came = admin.types("collection", "download", made["uuid"], "--no-progress")
    assert came.exit_code == 0, came.stderr
    (folder,) = tmp_path.glob(f"{made['uuid']}*")
    assert READS in contents(folder).values()


@pytest.mark.parametrize("given", [b"nonsense\n", b"\xff\n", b"[1", b"", b"\n", b"uuid,version\n"])
def test_wrong_bundles_make_no_collection(
    shelf: Shelf, admin: Typist, tmp_path: Path, given: bytes
) -> None:
    before = admin.types("collection", "list").stdout
    (tmp_path / "bundles").write_bytes(given)
    words = ["collection", "create", "--name", "x", "--bundles", str(tmp_path / "bundles")]
    done = admin.types(*words)
    assert (done.exit_code, done.stdout) == (2, ""), done.stderr
    assert admin.types("collection", "list").stdout == before
    missing = admin.types(*words[:-1], str(tmp_path / "none"))
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert "No such file" in missing.stderr


def test_subscription_is_created_paused_resumed_and_tried(
    shelf: Shelf, admin: Typist, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("a secret\n")
    made = admin.reads(
        *("subscription", "create", "https://receiver.example/notify"),
        *("--match", "event_type == 'CREATE'", "--secret-file", str(tmp_path / "secret")),
        *("--key-id", "k1", "--json"),
    )
    uuid = made["uuid"]
    assert made["page"] == f"{shelf.store.url}/subscriptions/{uuid}"
    listed = rows(admin.types("subscription", "list").stdout)
    assert uuid in [row["uuid"] for row in listed]
    for said in (uuid, made["page"], uuid.upper()):
        shown = admin.reads("subscription", "show", said, "--json")
        assert shown["jmespath_query"] == "event_type == 'CREATE'"
        assert "a secret" not in json.dumps(shown)
    for verb, state in (("pause", "paused"), ("resume", "active")):
        assert admin.types("subscription", verb, uuid).exit_code == 0, verb
        assert admin.reads("subscription", "show", uuid, "--json")["state"] == state
    sent = admin.types("subscription", "test", uuid)
    assert sent.exit_code == 0, sent.stderr
    deliveries = rows(admin.types("subscription", "deliveries", uuid).stdout)
    assert deliveries
    assert admin.types("subscription", "deliveries", uuid, "--limit", "1").exit_code == 0
    assert admin.types("subscription", "delete", uuid, "--yes").exit_code == 0
    assert admin.types("subscription", "show", uuid).exit_code == 5


@pytest.mark.parametrize(
    "more", [[], ["--match", "a", "--es-query", "{}"]], ids=["no query", "two queries"]
)
def test_subscription_needs_one_query(offline: Typist, more: list[str]) -> None:
    done = offline.types("subscription", "create", "https://receiver.example/notify", *more)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "give --match or --es-query" in done.stderr


def test_unknown_objects_are_not_found(admin: Typist) -> None:
    for words in (
        ["collection", "show"],
        ["collection", "download"],
        ["subscription", "show"],
        ["subscription", "deliveries"],
        ["subscription", "test"],
        ["subscription", "pause"],
    ):
        done = admin.types(*words, str(uuid4()))
        assert (done.exit_code, done.stdout) == (5, ""), words
        assert "Traceback" not in done.stderr
