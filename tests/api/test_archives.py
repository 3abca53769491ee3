"""Archives of bundles over HTTP: formats, limits, permissions, broken streams."""

import hashlib
import io
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from flask import Flask
from flask.testing import FlaskClient

from api.app import create_app
from auth import accounts
from auth.accounts import NewAccount
from auth.policies.grammar import parse_policy
from config import Settings
from ops import ports
from pipelines import archives
from pipelines.bundles import NewEntry
from pipelines.copies import INLINE_BYTES
from storage import keys
from storage.catalog.accounts import AccountKey
from storage.circuit_breaker import CircuitBreaker
from storage.connect import connect
from storage.model import FQID
from storage.pubsub import MemoryPubSub
from storage.stores import Stores
from tests.api.builders import INGEST, VERSION, Depositor, uuid_of
from tests.api.conftest import PEOPLE, verify
from tests.api.servers import asked, migrated, started
from tests.auth.accounts.builders import BY
from tests.auth.policies.builders import document, statement
from tests.builders import make_file
from tests.conftest import Outbox
from tests.damage import damage
from tests.http_server import serving_app
from tests.pipelines.test_bundle_versions import put_entries

READER = {"Authorization": "Bearer reader"}
Make = Callable[..., Flask]


@pytest.fixture
def make(settings: Settings, stores: Stores, job_queue: Outbox) -> Make:
    """Build the application with other settings or stores."""

    def build(*, on: Stores = stores, **more: Any) -> Flask:
        changed = replace(settings, **more)
        return create_app(changed, on, job_queue=job_queue, verify=verify)

    return build


def path_of(bundle: str, **query: str) -> str:
    named = "&".join(f"{name}={value}" for name, value in {"replica": "aws", **query}.items())
    return f"/v1/bundles/{bundle}/archive?{named}"


def names_in(data: bytes, form: str) -> list[str]:
    if form == "tar":
        with tarfile.open(fileobj=io.BytesIO(data)) as packed:
            return packed.getnames()
    with zipfile.ZipFile(io.BytesIO(data)) as zipped:
        assert zipped.testzip() is None
        return zipped.namelist()


@pytest.mark.spec("BUN-63", "BUN-64", "BUN-66")
@pytest.mark.parametrize(
    ("form", "kind", "suffix"),
    [
        ("", "application/zip", "zip"),
        ("zip", "application/zip", "zip"),
        ("tar", "application/x-tar", "tar"),
        ("bagit", "application/zip", "bagit.zip"),
        ("ro-crate", "application/zip", "ro-crate.zip"),
    ],
)
def test_a_bundle_is_one_file_to_save(
    client: FlaskClient, depositor: Depositor, form: str, kind: str, suffix: str
) -> None:
    bundle = depositor.bundle(1, files=2)
    path = path_of(bundle, version=VERSION, **({"format": form} if form else {}))
    answer = client.get(path, buffered=True)
    assert (answer.status_code, answer.content_type) == (200, kind)
    name = f'attachment; filename="{bundle}.{VERSION}.{suffix}"'
    assert answer.headers["Content-Disposition"] == name
    assert int(answer.headers["Content-Length"]) == len(answer.data)
    inside = "data/" if form == "bagit" else ""
    names = names_in(answer.data, form)
    assert [one for one in names if one.endswith(("f256.txt", "f257.txt"))] == [
        f"{bundle}.{VERSION}/{inside}{file}" for file in ("f256.txt", "f257.txt")
    ]
    head = client.head(path, buffered=True)
    assert (head.status_code, head.data) == (200, b"")
    assert head.headers["Content-Length"] == answer.headers["Content-Length"]


@pytest.mark.spec("BUN-63")
def test_the_latest_version_is_read_without_one(client: FlaskClient, depositor: Depositor) -> None:
    bundle = depositor.bundle(1)
    later = "2026-03-01T000000.000000Z"
    depositor.put_bundle(bundle, depositor.files([7]), version=later)
    assert names_in(client.get(path_of(bundle), buffered=True).data, "zip") == [
        f"{bundle}.{later}/f7.txt"
    ]
    deleted = client.delete(
        f"/v1/bundles/{bundle}?replica=aws&version={later}", json={"reason": "r"}, headers=INGEST
    )
    assert deleted.status_code == 200
    assert VERSION in names_in(client.get(path_of(bundle), buffered=True).data, "zip")[0]
    withdrawn = client.get(path_of(bundle, version=later), buffered=True)
    assert (withdrawn.status_code, withdrawn.json["code"]) == (404, "not_found")
    assert client.get(path_of(uuid_of(99)), buffered=True).status_code == 404
    assert client.get(f"/v1/bundles/{bundle}/archive").status_code == 400


@pytest.mark.spec("BUN-64")
def test_other_formats_are_400_and_the_formats_are_named(
    client: FlaskClient, depositor: Depositor
) -> None:
    answer = client.get(path_of(depositor.bundle(1), format="rar"), buffered=True)
    assert (answer.status_code, answer.json["code"]) == (400, "illegal_arguments")
    assert answer.json["errors"] == {"format": ["Must be one of: zip, tar, bagit, ro-crate."]}


@pytest.mark.spec("BUN-65")
def test_names_are_safe_and_the_bytes_the_same_each_time(
    client: FlaskClient, depositor: Depositor
) -> None:
    names = ["a.txt", "A.txt", "x:y", "aux.txt", "dots..", "sub/ä"]
    entries = [
        {**entry, "name": name}
        for entry, name in zip(depositor.files(range(6)), names, strict=True)
    ]
    assert depositor.put_bundle(uuid_of(9), entries).status_code == 201
    for form in ("zip", "tar"):
        first = client.get(path_of(uuid_of(9), format=form), buffered=True).data
        assert names_in(first, form) == [
            f"{uuid_of(9)}.{VERSION}/{name}"
            for name in ("a.txt", "A~2.txt", "x_y", "_aux.txt", "dots__", "sub/ä")
        ]
        assert client.get(path_of(uuid_of(9), format=form), buffered=True).data == first


# Damage ------------------------------------------------------------------------------------


def collect(answer: httpx.Response, got: bytearray) -> None:
    """Collect the bytes of a response, also those before an error."""
    for block in answer.iter_bytes():
        got += block


def large_bundle(depositor: Depositor) -> tuple[str, str]:
    """A bundle of a small file and one of several blocks, and the key of the latter."""
    data = bytes(range(256)) * (INLINE_BYTES // 256 + 4096)
    entries = [depositor.file(1), depositor.file(2, data)]
    depositor.put_bundle(uuid_of(9), entries)
    depositor.drain()
    return uuid_of(9), keys.blob_key(hashlib.sha256(data).hexdigest())


@pytest.mark.spec("BUN-67")
def test_a_damaged_file_comes_from_the_other_replica(
    client: FlaskClient, depositor: Depositor, stores: Stores
) -> None:
    bundle, key = large_bundle(depositor)
    whole = client.get(path_of(bundle), buffered=True).data
    damage(stores, "aws", key, "last byte")
    # Bytes of a large file are sent before they are verified; the next reader gets the others.
    with pytest.raises(ConnectionResetError):
        _ = client.get(path_of(bundle), buffered=True).data
    assert client.get(path_of(bundle), buffered=True).data == whole
    depositor.drain()
    damage(stores, "aws", key, "removed")
    assert client.get(path_of(bundle), buffered=True).data == whole


@pytest.mark.spec("BUN-67")
def test_a_file_damaged_everywhere_breaks_the_stream_visibly(
    make: Make, depositor: Depositor, stores: Stores
) -> None:
    bundle, key = large_bundle(depositor)
    for replica in ("aws", "gcp"):
        damage(stores, replica, key, "last byte")
    got = bytearray()
    with serving_app(make()) as base, httpx.Client(trust_env=False) as http:
        with http.stream("GET", base + path_of(bundle)) as answer:
            announced = int(answer.headers["Content-Length"])
            with pytest.raises(httpx.RemoteProtocolError):
                collect(answer, got)
        assert 0 < len(got) < announced
        # Its slot is free again.
        assert http.head(base + path_of(bundle)).status_code == 200


@pytest.mark.spec("BUN-67")
def test_an_archive_whose_first_file_is_damaged_is_an_error(
    client: FlaskClient, depositor: Depositor, stores: Stores
) -> None:
    bundle = depositor.bundle(1)
    depositor.drain()
    key = keys.blob_key(hashlib.sha256(b"content").hexdigest())
    for replica in ("aws", "gcp"):
        damage(stores, replica, key, "last byte")
    answer = client.get(path_of(bundle), buffered=True)
    assert (answer.status_code, answer.json["code"]) == (500, "internal_error")


@pytest.mark.spec("BUN-67")
def test_while_a_bucket_is_down_the_other_replica_serves(
    make: Make, depositor: Depositor, stores: Stores
) -> None:
    bundle = depositor.bundle(1)
    depositor.drain()

    def fail() -> None:
        raise OSError("no route to host")

    down = CircuitBreaker({"bucket.aws": fail}, start=lambda work: work())
    for _ in range(2):
        down.record_failure("bucket.aws")
    answer = make(on=replace(stores, circuit_breaker=down)).test_client().get(path_of(bundle))
    assert (answer.status_code, answer.headers["X-STORE-SERVED-BY"]) == (200, "gcp")


# Limits ------------------------------------------------------------------------------------


@pytest.mark.spec("BUN-68", "ERR-46")
def test_too_many_files_are_422(
    client: FlaskClient, depositor: Depositor, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = depositor.bundle(1, files=3)
    monkeypatch.setattr(archives, "ARCHIVE_FILES_MAX", 2)
    answer = client.get(path_of(bundle), buffered=True)
    assert (answer.status_code, answer.json["code"]) == (422, "archive_too_large")


@pytest.mark.spec("BUN-69")
def test_archives_at_once_are_limited(make: Make, depositor: Depositor) -> None:
    bundle = depositor.bundle(1)
    few = make(archive_streams=2, client_archives=1)

    def ask(place: str) -> Any:
        return few.test_client().get(path_of(bundle), environ_base={"REMOTE_ADDR": place})

    first = ask("192.0.2.1")
    again, other, third = ask("192.0.2.1"), ask("192.0.2.2"), ask("192.0.2.3")
    assert (again.status_code, again.json["code"]) == (429, "too_many_requests")
    assert int(again.headers["Retry-After"]) > 0
    assert other.status_code == 200
    assert (third.status_code, third.json["code"]) == (503, "service_unavailable")
    for one in (first, other):
        one.close()
    assert ask("192.0.2.1").status_code == 200


# Permissions -------------------------------------------------------------------------------


@pytest.mark.spec("BUN-70")
@pytest.mark.parametrize("closed", ["get_bundle", "get_file", "get_bundle_archive"])
def test_an_archive_is_as_closed_as_what_it_reads(
    make: Make, depositor: Depositor, closed: str
) -> None:
    bundle = depositor.bundle(1)
    app = make(closed_operations=(closed,)).test_client()
    assert app.get(path_of(bundle)).status_code == 401
    assert app.get(path_of(bundle), headers=READER).status_code == 200


@pytest.mark.spec("BUN-70")
@pytest.mark.parametrize("action", ["store:GetBundle", "store:GetBundleArchive"])
def test_who_may_not_read_the_bundle_gets_no_archive(
    make: Make, depositor: Depositor, stores: Stores, action: str
) -> None:
    bundle, other = depositor.bundle(1), depositor.bundle(2)
    denied = statement("Deny", Action=action, Resource=f"arn:store:*:*:bundles/{bundle}.*")
    user = AccountKey("user", PEOPLE["reader"].email)
    accounts.create_account(stores.catalog, NewAccount(user, parse_policy(document(denied))), BY)
    app = make(closed_operations=("*",)).test_client()
    assert app.get(path_of(bundle), headers=READER).status_code == 403
    assert app.get(path_of(other), headers=READER).status_code == 200


# The real server ---------------------------------------------------------------------------


@pytest.mark.spec("BUN-67")
def test_a_real_server_breaks_off_where_a_file_is_damaged(tmp_path: Path) -> None:
    home = migrated(tmp_path)
    stores = connect(Settings(home=home, secret_key="s" * 32), notices=MemoryPubSub())
    data = bytes(INLINE_BYTES + 4096)
    entries = [NewEntry("a", make_file(stores, b"small"), False)]
    entries.append(NewEntry("b", make_file(stores, data), False))
    fqid = put_entries(stores, FQID(uuid_of(9), VERSION), entries)
    path = path_of(fqid.uuid, format="tar")
    ask = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    port = ports.find_free_port_pair()
    with started("api", home, port):
        head, _, body = asked(port, ask).partition(b"\r\n\r\n")
        length = int(re.findall(rb"Content-Length: (\d+)", head)[0])
        assert len(body) == length
        assert [one.split("/")[1] for one in names_in(body, "tar")] == ["a", "b"]
        damage(stores, "aws", keys.blob_key(hashlib.sha256(data).hexdigest()), "last byte")
        head, _, body = asked(port, ask).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert 0 < len(body) < length
        assert asked(port, ask.replace(path.encode(), b"/health")).startswith(b"HTTP/1.1 ")
    stores.catalog.close()
    log = (home / "api.log").read_text()
    assert "broke off" in log
    assert "Traceback" not in log


@pytest.mark.spec("BUN-75")
def test_memory_of_a_server_does_not_grow_with_an_archive(tmp_path: Path) -> None:
    home = migrated(tmp_path)
    stores = connect(Settings(home=home, secret_key="s" * 32), notices=MemoryPubSub())
    large = make_file(stores, bytes(LARGE))
    entries = [NewEntry(name, large, False) for name in ("a", "b", "c")]
    fqid = put_entries(stores, FQID(uuid_of(9), VERSION), entries)
    small = put_entries(
        stores, FQID(uuid_of(8), VERSION), [NewEntry("a", make_file(stores, b"small"), False)]
    )
    stores.catalog.close()
    port = ports.find_free_port_pair()
    with started("api", home, port), httpx.Client(trust_env=False) as http:
        base = f"http://127.0.0.1:{port}"
        assert sum(map(len, stream(http, base + path_of(small.uuid)))) > 0
        before = peak_memory()
        for form in archives.ARCHIVE_FORMATS:
            assert sum(map(len, stream(http, base + path_of(fqid.uuid, format=form)))) > 3 * LARGE
        assert before > 0
        assert peak_memory() - before < 24 * 1024**2


LARGE = 64 * 1024**2


def stream(http: httpx.Client, url: str) -> Iterator[bytes]:
    """Yield the bytes of a response without keeping them."""
    with http.stream("GET", url, timeout=60) as answer:
        assert answer.status_code == 200
        yield from answer.iter_raw()


def peak_memory(pid: int | str = "self") -> int:
    """Return the greatest resident memory so far, in bytes, of a process below this one."""
    found = 0
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            # A process that ends meanwhile counts no longer.
            with suppress(FileNotFoundError, ProcessLookupError):
                status = Path(f"/proc/{child}/status").read_text()
                sizes = [int(size) * 1024 for size in re.findall(r"VmHWM:\s+(\d+) kB", status)]
                found = max(found, *sizes, peak_memory(child))
    return found
