"""The functions of the library against a served store."""

import io
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest

import store_client
from store_client import Client, Damaged, Misused, NotFound, Unreachable
from store_client.configuration import Configuration
from store_client.references import parse_location
from store_client.remote.content import RemoteBufferedFile, RemoteRawFile, RemoteStore
from store_client.transfer.engine import Stopped
from tests.client.conftest import ADMIN_TOKEN, Served
from tests.client.download.deposits import VERSION, Depositor
from tests.client.remote.conftest import Deposit
from tests.drill.fault_proxy import Mode, Proxy, before

READS = Random(3).randbytes(1_200_000)
STRANGE = "50% done?#1 é::x*[1].txt"
CONTENTS = {
    "sample.json": b'{"organism": "Danio rerio"}',
    "reads/lane 1/R1.gz": READS,
    STRANGE: "größe\nä\n".encode(),
    "empty": b"",
}
LATER = "2026-02-01T000000.000000Z"


@pytest.fixture(scope="module")
def bundle(deposit: Deposit) -> str:
    return deposit(CONTENTS)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("name", CONTENTS)
def test_opens_file_of_bundle(client: Client, bundle: str, name: str) -> None:
    with store_client.open(f"store://bundle/{bundle}/{name}", client=client) as file:
        assert file.read() == CONTENTS[name]
        assert (file.file.name, file.file.size) == (name, len(CONTENTS[name]))
        assert file.file.version == VERSION


def test_opens_file_by_its_uuid(client: Client, depositor: Depositor) -> None:
    uuid = depositor.file("a", READS)["uuid"]
    for place in (f"store://file/{uuid}", f"store://file/{uuid}.{VERSION}"):
        with store_client.open(place, client=client) as file:
            file.seek(-10, io.SEEK_END)
            assert file.read() == READS[-10:]


def test_opens_text(client: Client, bundle: str) -> None:
    place = f"store://bundle/{bundle}.{VERSION}/{STRANGE}"
    with store_client.open(place, "r", client=client) as text:
        assert list(text) == ["größe\n", "ä\n"]
    with store_client.open(place, "rt", encoding="latin-1", client=client) as text:
        assert text.read(4) == "grÃ¶"
    with pytest.raises(Misused, match="no-such"):
        store_client.open(place, "r", encoding="no-such", client=client)


def test_version_is_fixed_when_file_is_opened(
    client: Client, deposit: Deposit, depositor: Depositor
) -> None:
    bundle = deposit(CONTENTS)
    place = f"store://bundle/{bundle}/reads/lane 1/R1.gz"
    with store_client.open(place, client=client) as file:
        start = file.read(1)
        other = depositor.file("reads/lane 1/R1.gz", b"other", soon=True)
        client.put_bundle(uuid=bundle, version=LATER, replica="aws", creator_uid=7, files=[other])
        assert start + file.read() == READS
    with store_client.open(place, client=client) as file:
        assert file.read() == b"other"


@pytest.mark.parametrize(
    ("location", "mode", "more", "error", "said"),
    [
        ("store://bundle/{0}", "rb", {}, Misused, "is a bundle"),
        ("store://bundle/{0}/Sample.json", "rb", {}, NotFound, "'Sample.json'"),
        ("store://bundle/{0}/reads", "rb", {}, NotFound, "'reads'"),
        ("store://bundle/{0}." + LATER + "/empty", "rb", {}, NotFound, LATER),
        ("store://file/{0}", "rb", {}, NotFound, "no file"),
        ("store://bundle/{0}/empty", "wb", {}, Misused, "mode"),
        ("store://bundle/{0}/empty", "a", {}, Misused, "mode"),
        ("store://bundle/{0}/empty", "rb", {"encoding": "ascii"}, Misused, "encoding"),
        ("store://bundle/{0}/empty", "rb", {"newline": ""}, Misused, "newline"),
        ("store://bundle/{0}/empty", "rb", {"replica": "azure"}, Misused, "azure"),
        ("store://bundle/../{0}", "rb", {}, Misused, "uuid"),
    ],
)
def test_opening_names_what_is_wrong(
    client: Client,
    bundle: str,
    location: str,
    mode: Any,
    more: dict[str, Any],
    error: type[Exception],
    said: str,
) -> None:
    with pytest.raises(error, match=said):
        store_client.open(location.format(bundle), mode, client=client, **more)


def test_without_client_uses_configured_store(
    store: Served, bundle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_CLIENT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STORE_CLIENT_URL", store.url)
    monkeypatch.chdir(tmp_path)
    with store_client.open(f"store://bundle/{bundle}/reads/lane 1/R1.gz") as file:
        assert file.read() == READS
    report = store_client.download(UUID(bundle))
    assert contents(Path(f"{bundle}.{VERSION}")) == CONTENTS
    assert report.counts.files == len(CONTENTS)


@pytest.mark.parametrize(
    "name",
    [
        *("{0}", "{0}.{1}", "store://bundle/{0}", "store://bundle/{0}.{1}/"),
        "https://store.example/bundles/{0}?version={1}&replica=aws",
    ],
)
def test_downloads_bundle_by_its_names(
    client: Client, bundle: str, tmp_path: Path, name: str
) -> None:
    report = store_client.download(
        name.format(bundle, VERSION),
        tmp_path / "here",
        client=client,
        cache=tmp_path / "cache",
        no_metadata=True,
        data_filter="reads/*",
    )
    assert report.directory == str(tmp_path / "here" / f"{bundle}.{VERSION}")
    assert contents(Path(report.directory)) == {"reads/lane 1/R1.gz": READS}


@pytest.mark.parametrize("name", ["", "sample", "store://file/{0}", "{0}/empty", "{0}.latest"])
def test_download_rejects_what_is_no_bundle(
    client: Client, bundle: str, tmp_path: Path, name: str
) -> None:
    with pytest.raises(Misused):
        store_client.download(name.format(bundle), tmp_path, client=client, cache=tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_uploads_directory_that_downloads_unchanged(client: Client, tmp_path: Path) -> None:
    folder = tmp_path / "sample"
    (folder / "reads").mkdir(parents=True)
    (folder / "sample.json").write_bytes(b"{}")
    (folder / "reads" / "R1.gz").write_bytes(READS)
    planned = store_client.upload(folder, client=client, dry_run=True)
    assert planned.state == "planned"
    made = store_client.upload(str(folder), client=client)
    assert (made.state, made.sent_files) == ("uploaded", 2)
    again = store_client.upload(folder, client=client, bundle_uuid=made.bundle_uuid)
    assert (again.state, again.version) == ("unchanged", made.version)
    report = store_client.download(
        made.bundle_uuid, tmp_path / "here", client=client, cache=tmp_path / "cache"
    )
    assert contents(Path(report.directory)) == contents(folder)


def test_replica_is_by_default_that_of_the_profile(config: Configuration, bundle: str) -> None:
    place = f"store://bundle/{bundle}/empty"
    with Client(config=replace(config, replica="azure"), token=ADMIN_TOKEN) as client:
        with pytest.raises(Misused, match="azure"):
            store_client.open(place, client=client)
        with store_client.open(place, client=client, replica="aws") as file:
            assert file.read() == b""


def test_upload_rejects_missing_directory(client: Client, tmp_path: Path) -> None:
    with pytest.raises(Misused, match="no directory"):
        store_client.upload(tmp_path / "nowhere", client=client)


def test_transfers_end_when_told_to(client: Client, bundle: str, tmp_path: Path) -> None:
    told = threading.Event()
    told.set()
    with pytest.raises(Stopped):
        store_client.download(
            bundle, tmp_path / "here", client=client, cache=tmp_path / "cache", stop=told
        )
    (tmp_path / "sample").mkdir()
    (tmp_path / "sample" / "a.txt").write_bytes(READS)
    with pytest.raises(Stopped):
        store_client.upload(tmp_path / "sample", client=client, stop=told)


@pytest.fixture
def proxy(store: Served) -> Iterator[Proxy]:
    """Between readers and the store; harms the content of files only, and nothing yet."""
    where = urlsplit(store.url)
    with before(str(where.hostname), int(where.port or 0), Random(1)) as found:
        found.only = b"GET /v1/objects/"
        yield found


@pytest.fixture
def reader(proxy: Proxy, config: Configuration) -> Iterator[Client]:
    """Who reaches the store through it."""
    with Client(
        config=replace(config, url=f"http://127.0.0.1:{proxy.port}"), token=ADMIN_TOKEN
    ) as made:
        yield made


@pytest.mark.parametrize("mode", [Mode.TRUNCATE, Mode.FLIP])
def test_reads_through_faults_are_right_or_errors(
    proxy: Proxy, reader: Client, bundle: str, mode: Mode
) -> None:
    place = parse_location(f"store://bundle/{bundle}/reads/lane 1/R1.gz")
    proxy.mode = mode
    with closing(RemoteStore(reader, "aws", min_delay_s=0.01)) as files:
        wanted = files.find(place)
        for _ in range(8):
            file = RemoteBufferedFile(RemoteRawFile(files.content(wanted), lambda: None))
            try:
                assert b"".join(iter(lambda: file.read(200_000), b"")) == READS  # noqa: B023
            except (Damaged, Unreachable):
                continue
    assert proxy.harmed[mode] > 0
    proxy.mode = Mode.PASS
    with store_client.open(str(place), client=reader) as again:
        assert again.read() == READS
