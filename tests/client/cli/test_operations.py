"""Operations of a real store as commands."""

import hashlib
import io
import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import pytest

from store_client import Client, create_version
from store_client.cli.operations import operation_section, similar_names
from store_client.configuration import Configuration
from store_client.definition import ApiOperation
from store_client.definition.documents import read_cached, write_cached
from tests.client.cli.people import Typist, nowhere
from tests.client.conftest import Served
from tests.waiting import until

NAMED = [
    "get-bundles-all",
    "get-bundle",
    "put-bundle",
    "patch-bundle",
    "delete-bundle",
    "post-bundles-checkout",
    "get-bundles-checkout",
    "put-file",
    "get-file",
    "head-file",
    "get-collections",
    "put-collection",
    "get-collection",
    "patch-collection",
    "delete-collection",
    "post-search",
    "get-events",
    "get-event",
    "get-subscriptions",
    "put-subscription",
    "get-subscription",
    "delete-subscription",
    "get-login",
    "get-logout",
    "get-openid-configuration",
    "get-jwks.json",
    "get-oauth-authorize",
    "post-oauth-revoke",
    "post-oauth-token",
    "get-oauth-userinfo",
    "post-oauth-userinfo",
    "get-echo",
    "post-v1-policies-evaluate",
    "get-v1-users",
    "get-v1-user",
    "get-v1-user-owns",
    "get-v1-user-groups",
    "get-v1-user-roles",
    "get-v1-groups",
    "get-v1-group",
    "get-v1-group-roles",
    "get-v1-group-users",
    "get-v1-roles",
    "get-v1-role",
    "post-v1-user",
    "put-v1-user",
    "put-v1-user-group",
    "put-v1-user-role",
    "put-v1-user-policy",
    "post-v1-group",
    "delete-v1-group",
    "put-v1-group-role",
    "put-v1-group-user",
    "put-v1-group-policy",
    "post-v1-role",
    "delete-v1-role",
    "put-v1-role-policy",
]


def stored(person: Typist, data: bytes, folder: Path) -> dict[str, Any]:
    """A file that was put with commands alone, as a bundle's entry."""
    path, area, uuid, version = folder / "data", str(uuid4()), str(uuid4()), create_version()
    path.write_bytes(data)
    person.reads("post-area", "--uuid", area)
    words = ("put-area-file", "--uuid", area, "--filename", "deep/a b.txt")
    staged = person.reads(*words, "--content", str(path))
    name = ("--uuid", uuid, "--version", version)
    person.reads("put-file", *name, "--creator-uid", "7", "--source-url", staged["url"])
    return {"uuid": uuid, "version": version, "name": "a.txt", "indexed": False}


def bundled(person: Typist, files: list[dict[str, Any]]) -> str:
    """A bundle of files; its list is read from standard input."""
    uuid = str(uuid4())
    name = ("--uuid", uuid, "--version", create_version(), "--replica", "aws")
    words = ("put-bundle", *name, "--creator-uid", "7", "--files", "-")
    assert "manifest" in person.reads(*words, given=json.dumps(files))
    return uuid


@pytest.mark.spec("CLI-40")
def test_every_operation_of_the_specification_is_a_command(admin: Typist) -> None:
    for name in NAMED:
        done = admin.types(name, "--help")
        assert done.exit_code == 0, done.output
        assert done.output.startswith(f"Usage: store {name} "), name
        assert "--log-level [WARNING|INFO|DEBUG|CRITICAL|ERROR]" in done.output


@pytest.mark.spec("CLI-40")
def test_every_operation_that_is_served_is_listed(admin: Typist, client: Client) -> None:
    admin.reads("get-echo")
    shown = admin.types("api", "--help").output.split()
    assert {operation.command for operation in client.operations.values()} <= set(shown)


@pytest.mark.spec("CLI-41")
def test_help_shows_texts_of_definition(admin: Typist) -> None:
    shown = " ".join(admin.types("put-subscription", "--help").output.split())
    assert "--replica [aws|gcp] The replica to use. [required]" in shown
    assert "--method [POST|PUT] [default: POST]" in shown
    assert "With `es_query` the type is elasticsearch" in shown
    assert "--form-fields JSON|@FILE|-" in shown
    assert "--no-paginate" not in shown
    assert "--no-paginate" in admin.types("get-bundle", "--help").output
    assert "[repeat, or a JSON list" in admin.types("put-v1-group-user", "--help").output


@pytest.mark.spec("CLI-44", "CLI-146")
def test_writes_and_reads_files_and_bundles_by_commands(admin: Typist, tmp_path: Path) -> None:
    entry = stored(admin, b"some\x00bytes\xff", tmp_path)
    uuid = bundled(admin, [entry])
    found = admin.reads("get-bundle", "--uuid", uuid, "--replica", "aws")["bundle"]
    assert [file["uuid"] for file in found["files"]] == [entry["uuid"]]
    file = ("--uuid", entry["uuid"], "--replica", "aws")
    headers = admin.reads("head-file", *file)
    assert headers["x-store-sha256"] == hashlib.sha256(b"some\x00bytes\xff").hexdigest()
    assert "location" in admin.reads("get-file", *file)
    assert admin.types("get-file", *file, "--output", "raw").stdout_bytes == b"some\x00bytes\xff"
    archive = admin.types("get-bundle-archive", "--uuid", uuid, "--replica", "aws").stdout_bytes
    with zipfile.ZipFile(io.BytesIO(archive)) as zipped:
        assert [zipped.read(name) for name in zipped.namelist()] == [b"some\x00bytes\xff"]
    search = ("post-search", "--replica", "aws", "--es-query", "{}")
    until(lambda: admin.reads(*search)["total_hits"] == 1)


@pytest.mark.spec("CLI-132")
def test_a_header_that_a_description_speaks_of_can_be_sent(admin: Typist, tmp_path: Path) -> None:
    entry = stored(admin, b"x", tmp_path)
    name = ("--uuid", str(uuid4()), "--version", create_version(), "--replica", "aws")
    words = ("put-bundle", *name, "--creator-uid", "7", "--files", json.dumps([entry]))
    assert admin.reads(*words, "--header", "Prefer: wait=5")["version"] == name[3]
    there = ("get-event", "--uuid", "x", "--header", "Authorization: Bearer admin")
    assert admin.types(*there).exit_code == 2
    assert "--header NAME:VALUE" in admin.types("patch-bundle", "--help").output


@pytest.mark.spec("CLI-134")
def test_rejects_incomplete_entries_before_request(admin: Typist) -> None:
    name = ("--uuid", str(uuid4()), "--version", create_version(), "--replica", "aws")
    for option in ("--add-files", "--remove-files"):
        done = admin.types("patch-bundle", *name, option, '{"name": "a"}')
        assert done.exit_code == 2
        assert "[0]: 'uuid' is missing" in done.stderr


@pytest.mark.spec("CLI-44")
def test_reads_content_from_standard_input(admin: Typist) -> None:
    area = str(uuid4())
    admin.reads("post-area", "--uuid", area)
    words = ("put-area-file", "--uuid", area, "--filename", "x", "--content", "-")
    assert admin.reads(*words, given=b"12345")["size"] == 5


@pytest.mark.spec("CLI-45")
def test_merges_pages_unless_not_paginated(admin: Typist) -> None:
    for number in range(7):
        admin.reads("post-v1-group", "--group-id", f"group{number}")
    whole = admin.reads("get-v1-groups", "--per-page", "5")["groups"]
    assert len(whole) >= 7
    assert admin.reads("get-v1-groups", "--per-page", "5", "--no-paginate")["groups"] == whole[:5]
    lines = admin.types("get-v1-groups", "--per-page", "5", "--output", "lines").output
    assert [json.loads(one) for one in lines.splitlines()] == whole
    raw = admin.types("get-v1-groups", "--per-page", "5", "--output", "raw").output
    pages = [json.loads(one)["groups"] for one in raw.splitlines()]
    assert [group for page in pages for group in page] == whole
    table = admin.types("get-v1-groups", "--output", "table").output
    assert "group6" in table


@pytest.mark.spec("CLI-45")
def test_pages_of_a_list_inside_an_object_become_one_object(admin: Typist, tmp_path: Path) -> None:
    entry = stored(admin, b"x", tmp_path)
    files = [{**entry, "name": f"{number}.txt"} for number in range(5)]
    uuid = bundled(admin, files)
    words = ("get-bundle", "--uuid", uuid, "--replica", "aws", "--per-page", "2")
    bundle = admin.reads(*words)["bundle"]
    assert bundle["uuid"] == uuid
    assert [file["name"] for file in bundle["files"]] == [file["name"] for file in files]
    assert len(admin.reads(*words, "--no-paginate")["bundle"]["files"]) == 2
    done = admin.types(*words, "--output", "table")
    shown = done.stdout
    assert f"files: 5, uuid: {uuid}, version: " in done.stderr
    assert shown.splitlines()[0].split()[0] == "name"
    assert len(shown.splitlines()) == 6


@pytest.mark.spec("CLI-44")
def test_accepts_lists_by_repetition_or_json(admin: Typist) -> None:
    user = ("--user-id", "ada@example.org")
    admin.reads("post-v1-group", "--group-id", "one")
    admin.reads("post-v1-group", "--group-id", "two")
    admin.reads("post-v1-user", *user, "--groups", "one", "--groups", "two")
    assert admin.reads("get-v1-user-groups", *user)["groups"][:2] == ["one", "two"]
    admin.reads("put-v1-user-group", *user, "--action", "remove", "--groups", '["one"]')
    assert admin.reads("get-v1-user-groups", *user)["groups"][0] == "two"


@pytest.mark.spec("CLI-53")
def test_a_command_is_found_by_its_singular_and_with_underscores(admin: Typist) -> None:
    for typed, meant in (
        ("get-v1-user-group", "get-v1-user-groups"),
        ("get_bundles_all", "get-bundles-all"),
        ("get-jwks-json", "get-jwks.json"),
    ):
        assert admin.types(typed, "--help").output.startswith(f"Usage: store {meant} ")
    done = admin.types("get-bundle", "--per_page", "0", "--uuid", "x", "--replica", "aws")
    assert "--per-page" in done.output


@pytest.mark.spec("CLI-53")
def test_a_name_that_could_mean_two_commands_means_none() -> None:
    commands = ["get-user", "get-users", "get-groups"]
    assert similar_names("get-userss", commands) == ["get-user", "get-users"]
    assert similar_names("get-group", commands) == ["get-groups"]


@pytest.mark.spec("CLI-49")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["get-bundle", "--replica", "aws"], 2, "Missing option '--uuid'"),
        (["get-bundle", "--replica", "moon", "--uuid", "x"], 2, "'moon' is not one of"),
        (["get-bundle", "--replica", "aws", "--uuid", str(uuid4())], 5, "There is no bundle"),
        (["get-v1-user", "--user-id", "nobody@example.org"], 5, "nobody@example.org"),
        (["get-bundels-all"], 2, "did you mean: get-bundles-all"),
        (["post-area", "--uuid", "--json"], 2, "uuid"),
    ],
)
def test_refusal_is_one_line_with_hint_and_code(
    admin: Typist, words: list[str], code: int, said: str
) -> None:
    done = admin.types(*words)
    assert (done.exit_code, done.stdout) == (code, "")
    assert said in done.stderr
    assert done.stderr.startswith("store: ")
    assert len(done.stderr.splitlines()) <= 2
    assert "Traceback" not in done.stderr


@pytest.mark.spec("CLI-49")
def test_tells_anonymous_user_to_log_in(store: Served, tmp_path: Path) -> None:
    stranger = Typist(tmp_path, lambda config: Client(config=config))
    done = stranger.types("get-collections", "--url", store.url)
    assert done.exit_code == 4
    assert "store login" in done.stderr


@pytest.mark.spec("CLI-54")
def test_cached_definition_works_without_store(admin: Typist) -> None:
    admin.reads("get-echo")
    away = Typist(admin.home, nowhere, admin.environ)
    assert "get-bundles-all" in away.types("api", "--help").output
    assert "--uuid" in away.types("get-bundle", "--help").output
    assert away.types("get-replication").exit_code == 7
    assert "no command 'get-nothing'" in away.types("get-nothing").stderr


@pytest.mark.spec("CLI-54")
def test_stores_have_separate_commands(admin: Typist) -> None:
    admin.reads("get-echo")
    assert "get-bundle" in admin.types("api", "--help").output
    assert "not listed" in admin.types("--url", "http://127.0.0.1:9", "api", "--help").output


@pytest.mark.spec("CLI-54")
def test_command_list_fetches_definition_of_new_store(admin: Typist) -> None:
    assert "get-bundles-all" in admin.types("api", "--help").output


@pytest.mark.spec("CLI-41")
def test_text_of_a_definition_moves_no_cursor(admin: Typist, store: Served) -> None:
    admin.reads("get-echo")
    config = Configuration(admin.home, admin.home / "cache", store.url)
    copy, _ = read_cached(config) or pytest.fail("nothing is kept")
    text = json.dumps(copy.store.document).replace("Read a bundle.", "Read \\u001b[2Ja bundle.")
    write_cached(config, replace(copy, store=replace(copy.store, document=json.loads(text))))
    for words in (["api", "--help"], ["get-bundle", "--help"]):
        shown = admin.types(*words).output
        assert r"Read \x1b[2Ja bundle." in shown
        assert "\x1b" not in shown


@pytest.mark.spec("CLI-40")
@pytest.mark.parametrize(
    ("path", "service", "heading"),
    [
        ("/v1/area/{uuid}/files/{filename}", "store", "Upload areas, operation by operation"),
        ("/v1/bundles/checkout/{id}", "store", "Bundles"),
        ("/v1/new/things", "store", "The store itself"),
        ("/v1/users", "auth", "Users, groups, roles"),
        ("/oauth/token", "auth", "Logging in, operation by operation"),
    ],
)
def test_operations_are_listed_under_what_they_are_about(
    path: str, service: Literal["store", "auth"], heading: str
) -> None:
    assert (
        operation_section(ApiOperation("x", service, "GET", f"https://store.example{path}"))
        == heading
    )


@pytest.mark.spec("CLI-40")
def test_help_of_every_operation_has_an_example_that_parses(admin: Typist) -> None:
    shown = admin.types("api", "--help").output
    names = re.findall(r"^  ([a-z][a-z0-9.-]+) ", shown, re.MULTILINE)
    assert len(names) > 80
    for name in names:
        text = admin.types(name, "--help").output
        if (line := re.search(r"^ *store (.*)$", text, re.MULTILINE)) is None:
            pytest.fail(f"{name} has no example")
        assert line[1].split()[0] == name


@pytest.mark.spec("CLI-40")
def test_answers_of_operations_are_selected_and_written_as_tables(admin: Typist) -> None:
    words = ("put-subscription", "--replica", "aws", "--callback-url", "http://127.0.0.1:9/x")
    words = (*words, "--jmespath-query", "event_type == 'CREATE'")
    made = admin.types(*words, "--query", "uuid").stdout.strip()
    listed = ("get-subscriptions", "--replica", "aws")
    assert admin.types(*listed, "--query", "subscriptions[].uuid").stdout == f'["{made}"]\n'
    assert admin.types(*listed, "--jq", ".subscriptions[].uuid").stdout == f"{made}\n"
    head, row = admin.types(*listed, "--format", "csv").stdout.splitlines()
    assert dict(zip(head.split(","), row.split(","), strict=False))["uuid"] == made
    assert "\t" in admin.types(*listed, "--output", "tsv").stdout
    assert admin.types("get-collections", "--format", "csv").stdout == ""
    assert admin.types(*listed, "--query", "[").exit_code == 2
