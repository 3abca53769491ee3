"""The file system of fsspec over a served store."""

import errno
import gzip
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import fsspec
import pandas
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.tests.abstract import AbstractFixtures, AbstractGetTests

from store_client import Client, Damaged, Misused, StoreError
from store_client.remote.filesystem import StoreFileSystem, build_folders
from store_client.transfer.streams import RemoteFile
from tests.client.conftest import ADMIN_TOKEN, Served
from tests.client.download.deposits import VERSION, Depositor, uuid_of
from tests.client.remote.conftest import Deposit
from tests.drill.fault_proxy import Mode, before

LATER = "2026-02-01T000000.000000Z"
READS = Random(3).randbytes(1_200_000)
TABLE = "sample,age\na,3\nb,4\n"
STRANGE = "50% done?#1 é x*[1].txt"
CONTENTS = {
    "sample.json": b'{"organism": "Danio rerio"}',
    "reads/lane 1/R1.bin": READS,
    "reads/lane 1/R2.bin": READS[::-1],
    "reads/tables/a.csv": TABLE.encode(),
    "reads/tables/a.csv.gz": gzip.compress(TABLE.encode(), mtime=0),
    STRANGE: b"strange",
    "empty": b"",
}


def read_tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Served) -> None:
    """A user's own folders, and that store as the usual one."""
    monkeypatch.setenv("STORE_CLIENT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STORE_CLIENT_URL", store.url)
    StoreFileSystem.clear_instance_cache()


@pytest.fixture
def fs() -> StoreFileSystem:
    return StoreFileSystem()


@pytest.fixture(scope="module")
def bundle(deposit: Deposit) -> str:
    return deposit(CONTENTS)


@pytest.fixture(scope="module")
def root(bundle: str) -> str:
    return f"bundle/{bundle}"


def test_lists_folders(fs: StoreFileSystem, root: str) -> None:
    names = [
        root + "/" + name for name in ("50% done?#1 é x*[1].txt", "empty", "reads", "sample.json")
    ]
    assert sorted(fs.ls(f"store://{root}/", detail=False)) == names
    assert sorted(fs.ls(f"{root}/reads", detail=False)) == [
        f"{root}/reads/lane 1",
        f"{root}/reads/tables",
    ]
    assert fs.ls(f"{root}/empty") == [fs.info(f"{root}/empty")]
    assert sorted(fs.find(f"store://{root}")) == sorted(f"{root}/{name}" for name in CONTENTS)
    assert fs.glob(f"store://{root}/**/*.csv*") == [
        f"{root}/reads/tables/a.csv",
        f"{root}/reads/tables/a.csv.gz",
    ]
    assert fs.du(root) == sum(map(len, CONTENTS.values()))
    assert [one["name"] for one in fs.ls("")] == ["bundle", "file"]


def test_version_names_the_same_bundle(fs: StoreFileSystem, bundle: str) -> None:
    root = f"bundle/{bundle.upper()}.{VERSION}"
    assert fs.isdir(root)
    assert fs.cat_file(f"{root}/sample.json") == CONTENTS["sample.json"]
    assert not fs.exists(f"bundle/{bundle}.{LATER}/sample.json")


def test_describes_files_and_folders(fs: StoreFileSystem, root: str) -> None:
    found = fs.info(f"store://{root}/reads/lane 1/R1.bin")
    assert (found["type"], found["size"], found["version"]) == ("file", len(READS), VERSION)
    assert fs.ukey(found["name"]) == found["sha256"]
    assert fs.checksum(found["name"]) == int(found["sha256"], 16)
    assert fs.created(found["name"]).isoformat() == "2026-01-31T23:59:59+00:00"
    for folder in ("", "bundle", root, f"{root}/reads", f"{root}/reads/tables/"):
        assert fs.isdir(folder), folder
    assert fs.isfile(f"{root}/{STRANGE}")
    assert fs.size(f"{root}/empty") == 0


def test_missing_names_do_not_exist(fs: StoreFileSystem, root: str, depositor: Depositor) -> None:
    for name in (
        f"{root}/Sample.json",
        f"{root}/sample.json/a",
        f"{root}/../{root}/empty",
        f"{root}/reads/lane",
        f"bundle/{uuid_of(77)}",
        f"file/{uuid_of(77)}",
        "bundle/sample",
        "bundel",
        "collection/1",
    ):
        assert not fs.exists(name), name
        with pytest.raises(FileNotFoundError):
            fs.ls(name)
        with pytest.raises(FileNotFoundError):
            fs.open(name)
    with pytest.raises(IsADirectoryError):
        fs.open(f"{root}/reads")


def test_all_bundles_are_not_listed(fs: StoreFileSystem, root: str) -> None:
    with pytest.raises(NotImplementedError, match="search"):
        fs.ls("store://bundle")
    with pytest.raises(NotImplementedError, match="search"):
        fs.glob("store://bundle/*/sample.json")


def test_reads_file_by_its_uuid(fs: StoreFileSystem, depositor: Depositor) -> None:
    uuid = depositor.file("a", READS)["uuid"]
    assert fs.cat_file(f"store://file/{uuid}") == READS
    assert fs.info(f"file/{uuid}.{VERSION}")["size"] == len(READS)


@pytest.mark.parametrize("name", CONTENTS)
def test_opens_files(fs: StoreFileSystem, root: str, name: str) -> None:
    with fs.open(f"store://{root}/{name}") as file:
        assert file.read() == CONTENTS[name]
        assert file.size == len(CONTENTS[name])
    with fs.open(f"store://{root}/{name}", block_size=1000) as file:
        file.seek(-3 if file.size > 3 else 0, 2)
        assert file.read() == CONTENTS[name][-3:]


def test_opens_text_and_compressed(root: str) -> None:
    with fsspec.open(f"store://{root}/reads/tables/a.csv", "r") as text:
        assert text.readlines()[1] == "a,3\n"
    with fsspec.open(f"store://{root}/reads/tables/a.csv.gz", "rt", compression="infer") as text:
        assert text.read() == TABLE


@pytest.mark.parametrize("cache_type", ["none", "bytes", "blockcache", "background", "all"])
def test_caches_of_fsspec_read_right_bytes(fs: StoreFileSystem, root: str, cache_type: str) -> None:
    with fs.open(f"{root}/reads/lane 1/R1.bin", block_size=65_536, cache_type=cache_type) as file:
        for place in (0, 1_000_000, 5, 700_000, 0):
            file.seek(place)
            assert file.read(100_000) == READS[place : place + 100_000]


def test_cat_gives_slices_and_many_files(fs: StoreFileSystem, root: str) -> None:
    name = f"{root}/reads/lane 1/R1.bin"
    for start, end in ((None, None), (10, 20), (-5, None), (None, -5), (20, 10), (0, 1 << 40)):
        assert fs.cat_file(name, start, end) == READS[start:end]
    assert fs.cat(f"{root}/sample.json") == CONTENTS["sample.json"]
    assert fs.cat(f"{root}/reads", recursive=True) == {
        f"{root}/{one}": data for one, data in CONTENTS.items() if one.startswith("reads/")
    }
    names = [f"{root}/empty", f"{root}/none", name]
    assert fs.cat([names[0], name], on_error="raise") == {names[0]: b"", name: READS}
    assert fs.cat(names, on_error="omit") == {names[0]: b"", name: READS}
    assert isinstance(fs.cat(names, on_error="return")[names[1]], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat(names)


def test_cat_ranges_reads_many_at_once(fs: StoreFileSystem, root: str) -> None:
    names = [f"{root}/reads/lane 1/R{1 + number % 2}.bin" for number in range(100)]
    starts = [number * 7_000 for number in range(100)]
    ends = [start + 10_000 for start in starts]
    found = fs.cat_ranges(names, starts, ends)
    data = {1: READS, 0: READS[::-1]}
    assert found == [
        data[1 - number % 2][start : start + 10_000] for number, start in enumerate(starts)
    ]
    assert fs.cat_ranges([names[0], names[1]], 0, 5) == [READS[:5], READS[::-1][:5]]
    some = fs.cat_ranges([names[0], f"{root}/none"], 0, 5)
    assert some[0] == READS[:5]
    assert isinstance(some[1], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges([f"{root}/none"], 0, 5, on_error="raise")
    with pytest.raises(ValueError, match="zip"):
        fs.cat_ranges(names, [1], [2])


def test_gets_files_and_trees(fs: StoreFileSystem, root: str, tmp_path: Path) -> None:
    reads = {
        name.removeprefix("reads/"): data
        for name, data in CONTENTS.items()
        if name.startswith("reads/")
    }
    for slash in ("", "/"):
        fs.get(f"{root}/reads{slash}", str(tmp_path / f"here{slash}"), recursive=True)
        assert read_tree(tmp_path / "here") == reads
    fs.get(f"{root}/reads", str(tmp_path / "here"), recursive=True)
    assert read_tree(tmp_path / "here" / "reads") == reads
    buffer = io.BytesIO()
    fs.get_file(f"{root}/sample.json", buffer)
    assert buffer.getvalue() == CONTENTS["sample.json"]


WRITES: dict[str, Callable[[StoreFileSystem, str], object]] = {
    "open": lambda fs, name: fs.open(name, "wb"),
    "append": lambda fs, name: fs.open(name, "ab"),
    "text": lambda fs, name: fs.write_text(name, "x"),
    "pipe": lambda fs, name: fs.pipe(name, b"x"),
    "put": lambda fs, name: fs.put(__file__, name),
    "touch": lambda fs, name: fs.touch(name),
    "rm": lambda fs, name: fs.rm(name),
    "delete": lambda fs, name: fs.delete(name),
    "mv": lambda fs, name: fs.mv(name, name + "2"),
    "cp": lambda fs, name: fs.cp(name, name + "2"),
    "mkdir": lambda fs, name: fs.mkdir(name + "2"),
    "makedirs": lambda fs, name: fs.makedirs(name + "2", exist_ok=True),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_refuses_to_write(
    fs: StoreFileSystem, root: str, write: Callable[[StoreFileSystem, str], object]
) -> None:
    with pytest.raises(OSError, match="never change") as caught:
        write(fs, f"{root}/sample.json")
    assert caught.value.errno == errno.EROFS


def test_version_is_fixed_while_listing_is_valid(
    fs: StoreFileSystem, deposit: Deposit, client: Client, depositor: Depositor
) -> None:
    bundle = deposit(CONTENTS)
    name = f"bundle/{bundle}/sample.json"
    before_it = fs.open(name)
    other = depositor.file("sample.json", b"{}", indexed=True, soon=True)
    client.put_bundle(uuid=bundle, version=LATER, replica="aws", creator_uid=7, files=[other])
    assert fs.cat_file(name) == before_it.read() == CONTENTS["sample.json"]
    assert fs.info(name, refresh=True)["size"] == 2
    assert fs.cat_file(name) == b"{}"
    fs.invalidate_cache()
    assert fs.cat_file(name) == b"{}"
    assert not fs.exists(f"bundle/{bundle}/empty")
    assert StoreFileSystem(listings_expiry_time=0).cat_file(name) == b"{}"
    fs.invalidate_cache(name)


def test_options_choose_store_and_replica(store: Served, root: str) -> None:
    with pytest.raises(Misused, match="azure"):
        StoreFileSystem(replica="azure")
    with pytest.raises(Misused, match="profile"):
        StoreFileSystem(profile="none")
    made = fsspec.filesystem("store", url=store.url + "/v1", token=ADMIN_TOKEN, replica="aws")
    assert made.exists(root)
    assert made.fsid == f"store-{store.url}-aws"
    assert made is fsspec.filesystem(
        "store", url=store.url + "/v1", token=ADMIN_TOKEN, replica="aws"
    )
    assert made is not fsspec.filesystem("store", url=store.url, token="other", replica="aws")


def test_pickles(fs: StoreFileSystem, root: str) -> None:
    again = pickle.loads(pickle.dumps(fs))
    assert again.cat_file(f"{root}/sample.json") == CONTENTS["sample.json"]
    with pickle.loads(pickle.dumps(fs.open(f"{root}/reads/tables/a.csv"))) as file:
        assert file.read() == TABLE.encode()


def test_threads_share_one(fs: StoreFileSystem, root: str) -> None:
    names = [f"{root}/{name}" for name in CONTENTS] * 4
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(fs.cat_file, names)) == [*CONTENTS.values()] * 4


def test_pandas_reads_tables(root: str) -> None:
    for name in ("a.csv", "a.csv.gz"):
        table = pandas.read_csv(f"store://{root}/reads/tables/{name}", index_col="sample")
        assert table["age"].to_dict() == {"a": 3, "b": 4}
    assert (
        pandas.read_json(f"store://{root}/sample.json", typ="series")["organism"] == "Danio rerio"
    )
    with pytest.raises(FileNotFoundError):
        pandas.read_csv(f"store://{root}/none.csv")
    with pytest.raises(OSError, match="never change"):
        pandas.DataFrame({"a": [1]}).to_csv(f"store://{root}/new.csv")


@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "a/../../x", "a\\b", "a//b", "", "."])
def test_names_that_lead_out_of_a_bundle_are_damage(name: str) -> None:
    file = RemoteFile(uuid_of(1), VERSION, name, sha256="0" * 64, size=1)
    with pytest.raises(Damaged, match="cannot be used"):
        build_folders("bundle/1", [file])


def test_client_works_without_fsspec() -> None:
    code = (
        "import sys; sys.modules['fsspec'] = sys.modules['pandas'] = None;"
        "import store_client; print(store_client.open, store_client.download)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("mode", [Mode.TRUNCATE, Mode.FLIP])
def test_reads_through_faults_are_right_or_errors(
    store: Served, root: str, tmp_path: Path, mode: Mode
) -> None:
    where = urlsplit(store.url)
    with before(str(where.hostname), int(where.port or 0), Random(1)) as proxy:
        proxy.only, proxy.mode = b"GET /v1/objects/", mode
        fs = StoreFileSystem(f"http://127.0.0.1:{proxy.port}", num_retries=3, min_delay_s=0.01)
        names = [f"{root}/reads/lane 1/R{number}.bin" for number in (1, 2)]
        for found in (fs.cat(names, on_error="return") for _ in range(3)):
            assert found[names[0]] == READS or isinstance(found[names[0]], StoreError)
            assert found[names[1]] == READS[::-1] or isinstance(found[names[1]], StoreError)
        target = tmp_path / "R1.bin"
        try:
            fs.get_file(names[0], str(target))
        except StoreError:
            assert not target.exists()
        else:
            assert target.read_bytes() == READS
        assert proxy.harmed[mode] > 0
        proxy.mode = Mode.PASS
        assert fs.cat_file(names[0]) == READS


class TestGet(AbstractFixtures, AbstractGetTests):  # type: ignore[misc]  # fsspec has no types
    """What fsspec's own tests ask of `get`; bundles stand for the directories that they make."""

    # It makes a directory itself; `test_gets_files_and_trees` does the same with a bundle.
    test_get_directory_recursive = None

    @pytest.fixture
    def fs(self) -> StoreFileSystem:
        return StoreFileSystem()

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        return lambda *parts: "/".join(parts)

    @pytest.fixture
    def deposit_scenario(
        self, deposit: Deposit, tmp_path: Path
    ) -> Callable[[Callable[..., Any]], str]:
        """Deposits what a scenario makes in a local directory."""

        def deposit_it(scenario: Callable[..., Any]) -> str:
            folder = tmp_path / "scenario"
            scenario(LocalFileSystem(auto_mkdir=True), os.path.join, str(folder))
            return f"bundle/{deposit(read_tree(folder))}/source"

        return deposit_it

    @pytest.fixture
    def fs_bulk_operations_scenario_0(self, deposit_scenario: Callable[..., str]) -> str:
        return deposit_scenario(self._bulk_operations_scenario_0)

    @pytest.fixture
    def fs_glob_edge_cases_files(self, deposit_scenario: Callable[..., str]) -> str:
        return deposit_scenario(self._glob_edge_cases_files)

    @pytest.fixture
    def fs_dir_and_file_with_same_name_prefix(self, deposit_scenario: Callable[..., str]) -> str:
        return deposit_scenario(self._dir_and_file_with_same_name_prefix)

    @pytest.fixture
    def fs_10_files_with_hashed_names(self, deposit_scenario: Callable[..., str]) -> str:
        return deposit_scenario(self._10_files_with_hashed_names)
