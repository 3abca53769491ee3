"""A store as Python methods, against a whole store."""

import hashlib
import inspect
import io
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

import store_client
from store_client import (
    Client,
    Conflict,
    Misused,
    NotAllowed,
    NotFound,
    Refused,
    StoreError,
    Unreachable,
    create_version,
)
from store_client.configuration import Configuration
from store_client.definition import load_definition
from store_client.definition.documents import read_cached, write_cached
from store_client.http import HttpSession
from tests.client.conftest import ADMIN_TOKEN, Served, served
from tests.conftest import Outbox
from tests.waiting import until


def area_of(client: Client) -> str:
    area = str(uuid4())
    client.post_area(uuid=area)
    return area


def deposited(client: Client, data: bytes = b"content") -> tuple[str, str]:
    uuid, version = str(uuid4()), create_version()
    put = client.put_area_file(uuid=area_of(client), filename="a/b c.txt", content=data)
    client.put_file(uuid=uuid, version=version, creator_uid=7, source_url=put["url"])
    return uuid, version


def bundled(client: Client, files: int = 1) -> str:
    uuid, file = str(uuid4()), deposited(client)
    entries = [
        {"uuid": file[0], "version": file[1], "name": f"{n}.txt", "indexed": False}
        for n in range(files)
    ]
    client.put_bundle(
        uuid=uuid, version=create_version(), replica="aws", creator_uid=7, files=entries
    )
    return uuid


@pytest.mark.spec("CLI-26")
def test_deposits_file_and_returns_headers_and_location(client: Client) -> None:
    uuid, version = deposited(client)
    headers = client.head_file(uuid=uuid, replica="aws")
    assert headers["x-store-sha256"] == hashlib.sha256(b"content").hexdigest()
    found = client.get_file(uuid=uuid, replica="aws", version=version)
    assert found["headers"]["x-store-size"] == "7"
    assert client.session.request("GET", found["location"], authorize=False).content == b"content"


@pytest.mark.spec("CLI-27")
def test_iterates_items_of_all_pages(client: Client) -> None:
    uuid = bundled(client, files=7)
    entries = list(client.get_bundle.iterate(uuid=uuid, replica="aws", per_page=3))
    assert [one["name"] for one in entries] == [f"{n}.txt" for n in range(7)]
    pages = list(client.get_bundle.pages(uuid=uuid, replica="aws", per_page=3))
    assert [len(one["bundle"]["files"]) for one in pages] == [3, 3, 1]
    assert len(client.get_bundle(uuid=uuid, replica="aws", per_page=3)["bundle"]["files"]) == 3
    assert len(list(client.items("get-bundle", uuid=uuid, replica="aws", per_page="2"))) == 7


@pytest.mark.spec("CLI-27")
def test_a_search_goes_through_its_pages_with_its_query(client: Client) -> None:
    uuids = {bundled(client) for _ in range(3)}

    def found() -> set[str]:
        results = client.post_search.iterate(replica="aws", es_query={}, per_page=1)
        return {one["bundle_fqid"].partition(".")[0] for one in results}

    until(lambda: found() == uuids)


@pytest.mark.spec("CLI-27")
def test_iterators_are_lazy(client: Client) -> None:
    uuid = bundled(client, files=3)
    entries = client.get_bundle.iterate(uuid=uuid, replica="aws", per_page=1)
    assert next(entries)["name"] == "0.txt"


@pytest.mark.spec("CLI-27")
def test_rejects_iteration_of_unpaged_operation(client: Client) -> None:
    with pytest.raises(Misused, match="has no pages"):
        client.get_file.iterate(uuid=str(uuid4()), replica="aws")


@pytest.mark.spec("CLI-28")
@pytest.mark.parametrize("how", ["bytes", "path", "file", "pipe", "pieces", "empty"])
def test_accepts_content_of_any_source(client: Client, tmp_path: Path, how: str) -> None:
    data = b"" if how == "empty" else b"0123456789" * 200_000
    path = tmp_path / "data"
    path.write_bytes(data)
    with path.open("rb") as file:
        given: Any = {
            "bytes": data,
            "empty": b"",
            "path": path,
            "file": file,
            "pipe": io.BufferedReader(OneWay(data)),
            "pieces": lambda: iter([data[:5], data[5:]]),
        }[how]
        put = client.put_area_file(uuid=area_of(client), filename="x", content=given)
    assert put["size"] == len(data)
    assert put["checksums"]["sha256"] == hashlib.sha256(data).hexdigest()


class OneWay(io.RawIOBase):
    """A file that cannot go back."""

    def __init__(self, data: bytes) -> None:
        self._rest = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._rest.readinto(buffer)


@pytest.mark.spec("CLI-28")
@pytest.mark.parametrize("content", ["text", 7, io.StringIO("text")])
def test_rejects_content_that_is_not_bytes(client: Client, content: Any) -> None:
    area = area_of(client)
    with pytest.raises(Misused, match="content"):
        client.put_area_file(uuid=area, filename="x", content=content)


@pytest.mark.spec("CLI-26")
def test_operations_of_the_authorization_service_are_called_alike(client: Client) -> None:
    for n in range(7):
        client.post_v1_user(user_id=f"u{n}@example.org")
    users = set(client.get_v1_users.iterate(per_page=5))
    assert {f"u{n}@example.org" for n in range(7)} <= users
    assert client.get_v1_user(user_id="u1@example.org")["user_id"] == "u1@example.org"
    assert "keys" in client.get_jwks_json()
    assert client.call("get_jwks.json") == client.call("get-jwks.json")
    with pytest.raises(Refused, match="invalid_client"):
        client.post_oauth_token(grant_type="nothing")


@pytest.mark.spec("CLI-26")
def test_operations_can_be_inspected(client: Client) -> None:
    taken = inspect.signature(client.get_bundle).parameters
    assert list(taken)[:2] == ["uuid", "replica"]
    assert taken["uuid"].default is inspect.Parameter.empty
    assert taken["per_page"].annotation == int | None
    told = inspect.getdoc(client.get_bundle) or ""
    assert "Read a bundle." in told
    assert "replica (aws | gcp)" in told
    assert client.get_bundle.__name__ == "get_bundle"
    assert "get_bundle" in dir(client)
    assert "uuid: str" in repr(client.get_bundle)


@pytest.mark.spec("CLI-26")
def test_unknown_operation_suggests_similar_one(client: Client) -> None:
    with pytest.raises(AttributeError, match="get_bundle"):
        client.get_bundel  # noqa: B018
    with pytest.raises(Misused, match="get-bundle"):
        client.call("get-bundel")
    assert not hasattr(client, "_nothing")


@pytest.mark.spec("CLI-29")
def test_invalid_arguments_reach_no_server(client: Client) -> None:
    with pytest.raises(Misused, match="needs replica"):
        client.get_bundle(uuid=str(uuid4()))
    with pytest.raises(Misused, match="replica: must be one of aws, gcp"):
        client.get_bundle(uuid=str(uuid4()), replica="azure")
    with pytest.raises(Misused, match="did you mean version"):
        client.get_bundle(uuid=str(uuid4()), replica="aws", versoin="x")
    with pytest.raises(Misused, match="cannot be part of a URL"):
        client.put_area_file(uuid=str(uuid4()), filename="a/../b", content=b"")


@pytest.mark.spec("CLI-29")
def test_refusals_of_the_server_are_errors_of_their_kind(client: Client) -> None:
    uuid, version = deposited(client)
    with pytest.raises(NotFound, match="Not Found"):
        client.get_bundle(uuid=str(uuid4()), replica="aws")
    other = client.put_area_file(uuid=area_of(client), filename="x", content=b"other")
    with pytest.raises(Conflict) as told:
        client.put_file(uuid=uuid, version=version, creator_uid=7, source_url=other["url"])
    assert told.value.code == "file_already_exists"
    assert "create-version" in told.value.hint


@pytest.mark.spec("CLI-29")
def test_no_token_is_anonymous(config: Configuration) -> None:
    with Client(config=config) as anonymous:
        assert list(anonymous.get_bundles_all.iterate(replica="aws")) == []
        with pytest.raises(NotAllowed) as told:
            anonymous.get_collections()
    assert "store login" in told.value.hint


@pytest.mark.spec("CLI-26")
def test_a_patch_has_a_key_so_that_it_may_be_repeated(client: Client) -> None:
    uuid = bundled(client, files=2)
    version = client.get_bundle(uuid=uuid, replica="aws")["bundle"]["version"]
    asked = {"uuid": uuid, "version": version, "replica": "aws"}
    first = client.patch_bundle(**asked, headers={"Idempotency-Key": "mine"})
    assert client.patch_bundle(**asked, headers={"Idempotency-Key": "mine"}) == first
    assert client.patch_bundle(**asked) != first


@pytest.mark.spec("CLI-26")
def test_accepts_request_headers(client: Client) -> None:
    put = client.put_area_file(uuid=area_of(client), filename="x", content=b"x")
    told = client.put_file(
        uuid=str(uuid4()),
        version=create_version(),
        creator_uid=7,
        source_url=put["url"],
        headers={"Prefer": "respond-async"},
    )
    assert "task_id" in told


@pytest.mark.spec("CLI-31")
def test_threads_share_a_client(client: Client) -> None:
    uuid = bundled(client, files=5)
    with ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(
                lambda _: len(
                    list(client.get_bundle.iterate(uuid=uuid, replica="aws", per_page=2))
                ),
                range(24),
            )
        )
    assert found == [5] * 24


@pytest.mark.spec("CLI-31")
def test_clients_of_two_stores_are_independent(
    client: Client, config: Configuration, store: Served
) -> None:
    settings = replace(store.settings, auth_external_url="", wait_s=0.0)
    with (
        served(settings, store.stores, Outbox(), lambda: 0) as other,
        Client(config=replace(config, url=other.url), token="reader") as second,
    ):
        bundled(client)
        assert second.definition.auth_url == other.auth_url
        assert second.operations["get_bundle"].url.startswith(other.url)
        with pytest.raises(NotAllowed):
            second.post_area(uuid=str(uuid4()))
        assert client.definition.auth_url == store.auth_url
        assert client.operations["get_bundle"].url.startswith(store.url)
        area_of(client)
        assert len(list(config.definitions.glob("*.json"))) == 2


def make_old(config: Configuration, now: str, then: str) -> None:
    """As if the definition had said so when it was fetched."""
    found = read_cached(config)
    assert found is not None
    copy = found[0]
    document = json.loads(json.dumps(copy.store.document).replace(now, then))
    write_cached(config, replace(copy, store=replace(copy.store, document=document)))


@pytest.mark.spec("CLI-30")
def test_refreshes_definition_for_unknown_operation(client: Client, config: Configuration) -> None:
    load_definition(client.session, config)
    make_old(config, '"get_replication"', '"get_replication_of_old"')
    for asked in (
        lambda one: one.get_replication(),
        lambda one: one.call("get-replication"),
    ):
        with Client(config=config, token=ADMIN_TOKEN) as late:
            assert asked(late) is not None


@pytest.mark.spec("CLI-30")
def test_refreshes_definition_for_missing_route(client: Client, config: Configuration) -> None:
    load_definition(client.session, config)
    make_old(config, '"/replication"', '"/replication/of/old"')
    with Client(config=config, token=ADMIN_TOKEN) as late:
        assert late.get_replication() is not None


@pytest.mark.spec("CLI-30")
def test_refreshes_definition_for_unknown_argument(client: Client, config: Configuration) -> None:
    load_definition(client.session, config)
    make_old(config, '"gcp"', '"azure"')
    with Client(config=config, token=ADMIN_TOKEN) as late:
        assert list(late.get_bundles_all.iterate(replica="gcp")) == []


@pytest.mark.spec("CLI-30")
def test_a_definition_that_is_unchanged_is_not_sent_again(
    client: Client, config: Configuration, caplog: pytest.LogCaptureFixture
) -> None:
    before = load_definition(client.session, config)
    with caplog.at_level(logging.DEBUG, "store_client"):
        later = load_definition(client.session, config, now=lambda: before.fetched + 3600)
    assert later == before
    assert later.fetched == before.fetched + 3600
    told = [one.getMessage() for one in caplog.records if one.name.startswith("store_client")]
    assert len([text for text in told if ": 304 after" in text]) == 2


@pytest.mark.spec("CLI-30")
def test_a_store_that_was_there_before_is_worth_patience(
    client: Client, config: Configuration
) -> None:
    load_definition(client.session, config)
    waited: list[float] = []
    with HttpSession(config.url, sleep=waited.append, transport=Gone()) as session:
        late = Client(config=config, session=session)
        with pytest.raises(Unreachable):
            late.get_replication()
    assert waited == [1, 2, 4, 8, 16]


class Gone(httpx.BaseTransport):
    """A store that is being started anew."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)


@pytest.mark.spec("CLI-29")
def test_reports_base_url_that_is_no_store(config: Configuration, store: Served) -> None:
    with (
        Client(config=replace(config, url=store.auth_url)) as client,
        pytest.raises(StoreError, match="is not a data store"),
    ):
        client.get_bundles_all(replica="aws")


@pytest.mark.spec("CLI-26")
def test_exported_names_exist() -> None:
    assert {getattr(store_client, name).__name__ for name in store_client.__all__} == set(
        store_client.__all__
    )
    assert "Client" in dir(store_client)
    with pytest.raises(AttributeError):
        store_client.nothing  # noqa: B018
