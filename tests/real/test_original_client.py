"""The original client of the HCA DSS against a store, each outcome beside that of ours."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ops.local_store import LocalStore, running_store
from store_client import create_version
from tests.client.end_to_end.people import Person, a_person, a_sample, contents
from tests.engines.versions import HCA_VARIABLE
from tests.real import engines
from tests.test_docs import original_commands, original_table
from tests.waiting import until

HCA = os.environ.get(HCA_VARIABLE, "")
pytestmark = pytest.mark.skipif(
    not (HCA and engines.NAMED["S3"]), reason=f"{HCA_VARIABLE} and STORE_TEST_S3 name too little"
)

LATER = 4_000_000_000
LIST_COMMANDS = """
import argparse, json
from hca.cli import get_parser

def walk(parser, words):
    inner = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    found = [name for action in inner for name, below in action.choices.items()
             for name in walk(below, (*words, name))]
    return found or [" ".join(words)]

print(json.dumps(walk(get_parser(), ())))
"""
PATCH_BUNDLE = """
import json, sys
from hca.dss import DSSClient
print(json.dumps(DSSClient().patch_bundle(**json.loads(sys.argv[1]))))
"""


@dataclass(frozen=True)
class OriginalClient:
    """The installed original, configured as docs/hca-scripts.md says, in a home of its own."""

    home: Path
    folder: Path

    def run(self, *command: str | Path, **more: str) -> "subprocess.CompletedProcess[str]":
        """Run a program of its virtual environment to its end."""
        return subprocess.run(
            command,
            cwd=self.folder,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.home),
                "XDG_CONFIG_HOME": str(self.home),
                "OAUTHLIB_INSECURE_TRANSPORT": "1",
                "NO_PROXY": "127.0.0.1",
                "AWS_ENDPOINT_URL_S3": engines.endpoint("S3"),
                **{name: raw for name, raw in os.environ.items() if name.startswith("AWS_")},
                **more,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def types(self, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
        """A command to its end, whatever that is."""
        return self.run(HCA, *words, **more)

    def gets(self, *words: str) -> Any:
        """The JSON that a command prints that goes well; None if it prints nothing."""
        return self._read(self.types(*words))

    def runs_script(self, script: str, *arguments: str) -> Any:
        """The JSON that a Python script prints that imports the package."""
        python = Path(HCA).resolve().with_name("python")
        return self._read(self.run(python, "-c", script, *arguments))

    def _read(self, done: "subprocess.CompletedProcess[str]") -> Any:
        assert done.returncode == 0, f"{done.args}: {done.stdout[-500:]}\n{done.stderr[-3000:]}"
        return json.loads(done.stdout) if done.stdout.strip() else None


@dataclass(frozen=True)
class Ground:
    """A store, both clients, and a bundle that the original deposited."""

    store: LocalStore
    hca: OriginalClient
    ours: Person
    source: Path
    deposited: Mapping[str, Any]

    @property
    def bundle(self) -> tuple[str, ...]:
        """Options that name the deposited bundle."""
        uuid, version = self.deposited["bundle_uuid"], self.deposited["version"]
        return "--uuid", uuid, "--version", version, "--replica", "aws"

    def both_get(self, *words: str) -> Any:
        """What both clients print for the same words: it must be equal."""
        found = self.hca.gets("dss", *words)
        assert found == self.ours.gets(*words), words
        return found


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    folder = tmp_path_factory.mktemp("original")
    settings = {
        "STORE_CHECKSUM_PREFIXES": "store-,hca-dss-",
        "AWS_ENDPOINT_URL_S3": engines.endpoint("S3"),
    }
    (folder / "store").mkdir()
    with running_store(folder / "store", settings) as store:
        hca = _configured(folder / "hca", store)
        ours = a_person(folder / "ours", store.api)
        ours.types("login", "--access-token", "-", given=store.token)
        source = a_sample(folder / "source")
        where = ("--src-dir", str(source), "--replica", "aws")
        bucket = engines.name_of(engines.s3_bucket())
        deposited = hca.gets("dss", "upload", *where, "--staging-bucket", bucket)
        yield Ground(store, hca, ours, source, deposited)


def _configured(folder: Path, store: LocalStore) -> OriginalClient:
    (folder / "home" / "hca").mkdir(parents=True)
    (folder / "work").mkdir()
    token = {"access_token": store.token, "token_type": "Bearer", "expires_at": LATER}
    secrets = {
        "client_id": "store-cli",
        "client_secret": "",
        "token_uri": f"{store.auth}/oauth/token",
    }
    service = f"{store.api}/v1"
    config = {
        "log_level": "ERROR",
        "DSSClient": {"swagger_url": f"{service}/swagger.json"},
        "AuthClient": {"swagger_url": f"{store.auth}/swagger.json"},
        "application_secrets": {"installed": secrets},
        "oauth2_token": token,
        "upload": {"production_api_url": service, "preprod_api_url_template": service},
    }
    (folder / "home" / "hca" / "config.json").write_text(json.dumps(config))
    return OriginalClient(folder / "home", folder / "work")


def test_the_list_and_the_table_have_all_commands_of_the_original(ground: Ground) -> None:
    installed = set(ground.hca.runs_script(LIST_COMMANDS))
    listed = set(original_commands())
    offered = {words for words, ours in original_table().items() if ours != "none"}
    # The others come from the definition of this store, which has more operations.
    own = {"help", "clear-hca-cache", "upload", "login", "logout", "download", "create-version"}
    built_in = {words for words in installed if own & {*words.split()} or "download-" in words}
    assert built_in <= listed
    assert {words for words in listed if "resource" not in words} <= installed
    assert offered <= installed


def test_an_upload_of_the_original_is_a_bundle_of_ours(ground: Ground) -> None:
    names = {file["name"] for file in ground.deposited["files"]}
    assert names == set(contents(ground.source))
    manifest = ground.both_get("get-bundle", *ground.bundle)
    assert {file["name"] for file in manifest["bundle"]["files"]} == names
    (listed,) = [
        one
        for one in ground.both_get("get-bundles-all", "--replica", "aws")["bundles"]
        if one["uuid"] == ground.deposited["bundle_uuid"]
    ]
    assert listed["version"] == ground.deposited["version"]


def test_both_clients_download_the_same_files(ground: Ground, tmp_path: Path) -> None:
    uuid, version = ground.deposited["bundle_uuid"], ground.deposited["version"]
    words = ("download", "--bundle-uuid", uuid, "--replica", "aws", "--download-dir")
    assert ground.hca.gets("dss", *words, str(tmp_path / "hca")) is None
    ground.ours.gets(*words, str(tmp_path / "ours"))
    theirs = contents(tmp_path / "hca" / f"{uuid}.{version}")
    assert json.loads(theirs.pop("bundle.json"))["bundle"]["uuid"] == uuid
    assert theirs == contents(ground.source)
    assert theirs == contents(tmp_path / "ours" / f"{uuid}.{version}")


def test_both_clients_download_a_manifest_alike(ground: Ground, tmp_path: Path) -> None:
    bundle = ground.ours.gets("get-bundle", *ground.bundle)["bundle"]
    columns = ("uuid", "version", "sha256", "size", "name")
    head = ("bundle_uuid", "bundle_version", *(f"file_{name}" for name in columns))
    rows = [
        (bundle["uuid"], bundle["version"], *(str(file[name]) for name in columns))
        for file in bundle["files"]
        # The original asks for a range of an empty file, which no server can satisfy.
        if file["size"]
    ]
    for person in (ground.hca, ground.ours):
        table = "\n".join("\t".join(row) for row in (head, *rows))
        (person.folder / "cohort.tsv").write_text(f"{table}\n")
    words = ("download-manifest", "--manifest", "cohort.tsv", "--replica", "aws")
    ground.hca.gets("dss", *words)
    ground.ours.gets(*words)
    caches = [contents(ground.hca.folder / ".hca"), contents(ground.ours.folder / ".store")]
    expected = {content for content in contents(ground.source).values() if content}
    for cache in caches:
        assert expected <= {*cache.values()}
    written = [
        [line.rpartition("\t") for line in path.read_text().splitlines()]
        # The original writes over the manifest.
        for path in (ground.hca.folder / "cohort.tsv", ground.ours.folder / "cohort.paths.tsv")
    ]
    assert [row for row, *_ in written[0]] == [row for row, *_ in written[1]]
    for (_, _, theirs), (_, _, ours) in zip(written[0][1:], written[1][1:], strict=True):
        content = (ground.hca.folder / theirs).read_bytes()
        assert content == (ground.ours.folder / ours).read_bytes()


def test_both_clients_read_and_register_files(ground: Ground) -> None:
    entry = next(file for file in ground.deposited["files"] if file["name"] == "sample.json")
    named = ("--uuid", entry["uuid"], "--version", entry["version"], "--replica", "aws")
    content = json.loads((ground.source / "sample.json").read_bytes())
    assert ground.hca.gets("dss", "get-file", *named) == content
    printed = ground.ours.types("file", "cat", f"{entry['uuid']}.{entry['version']}")
    assert json.loads(printed.stdout) == content
    assert "200" in ground.hca.gets("dss", "head-file", *named)
    assert ground.ours.gets("head-file", *named)
    absent = ("head-file", "--uuid", ground.deposited["bundle_uuid"], "--replica", "aws")
    assert "404" in ground.hca.types("dss", *absent).stderr
    assert ground.ours.types(*absent).returncode == 5

    area = ground.ours.gets("select", "--new")["uuid"]
    ground.ours.gets("files", str(ground.source / "sample.json"))
    (listed,) = ground.hca.gets("dss", "get-area", "--uuid", area)["files"]
    assert listed == ground.ours.gets("get-area", "--uuid", area)["files"][0]
    version = create_version()
    put = ground.hca.gets(
        *("dss", "put-file", "--uuid", entry["uuid"], "--version", version),
        *("--creator-uid", "0", "--source-url", listed["url"]),
    )
    assert put["version"] == version
    again = ("--uuid", entry["uuid"], "--version", version, "--replica", "aws")
    until(lambda: ground.ours.types("head-file", *again).returncode == 0)
    assert ground.hca.gets("dss", "get-file", *again) == content


def test_a_bundle_is_put_patched_found_and_deleted(ground: Ground) -> None:
    first, second, *_ = ground.deposited["files"]
    uuid, version = ground.deposited["files"][0]["uuid"], create_version()
    entry = {name: first[name] for name in ("uuid", "version", "name")} | {"indexed": False}
    put = ground.hca.gets(
        *("dss", "put-bundle", "--uuid", uuid, "--version", version, "--replica", "aws"),
        *("--creator-uid", "0", "--files", json.dumps(entry)),
    )
    assert put["version"] == version
    added = {**entry, "uuid": second["uuid"], "version": second["version"], "name": "added"}
    patched = ground.hca.runs_script(
        PATCH_BUNDLE,
        json.dumps({"uuid": uuid, "version": version, "replica": "aws", "add_files": [added]}),
    )
    assert patched["version"] > version
    latest = ground.both_get("get-bundle", "--uuid", uuid, "--replica", "aws")["bundle"]
    assert {file["name"] for file in latest["files"]} == {first["name"], "added"}

    query = json.dumps({"query": {"match": {"files.sample_json.organism": "Danio rerio"}}})
    words = ("post-search", "--replica", "aws", "--es-query", query)
    until(lambda: ground.ours.gets(*words)["total_hits"])
    found = ground.both_get(*words)["results"]
    fqid = f"{ground.deposited['bundle_uuid']}.{ground.deposited['version']}"
    assert fqid in {one["bundle_fqid"] for one in found}

    words = ("delete-bundle", "--uuid", uuid, "--replica", "aws", "--reason", "a test")
    ground.hca.gets("dss", *words)
    absent = ("get-bundle", "--uuid", uuid, "--replica", "aws")
    assert "HTTP 404" in ground.hca.types("dss", *absent).stderr
    assert ground.ours.types(*absent).returncode == 5


def test_a_bundle_is_checked_out(ground: Ground) -> None:
    words = ("post-bundles-checkout", *ground.bundle)
    job = ground.hca.gets("dss", *words)["checkout_job_id"]
    status = ("get-bundles-checkout", "--checkout-job-id", job, "--replica", "aws")
    until(lambda: ground.ours.gets(*status)["status"] != "RUNNING")
    assert ground.both_get(*status)["status"] == "SUCCEEDED"


def test_subscriptions_of_one_client_are_those_of_the_other(ground: Ground) -> None:
    kind = ("--replica", "aws", "--subscription-type", "elasticsearch")
    put = ground.hca.gets(
        *("dss", "put-subscription", "--replica", "aws"),
        *("--callback-url", "http://127.0.0.1:9/callback"),
        *("--es-query", json.dumps({"query": {"match_all": {}}})),
    )
    (listed,) = ground.both_get("get-subscriptions", *kind)["subscriptions"]
    assert listed["uuid"] == put["uuid"]
    one = ground.both_get("get-subscription", "--uuid", put["uuid"], *kind)
    assert one["callback_url"] == "http://127.0.0.1:9/callback"
    deleted = ground.hca.gets("dss", "delete-subscription", "--uuid", put["uuid"], *kind)
    assert deleted["timeDeleted"]
    assert ground.ours.types("get-subscription", "--uuid", put["uuid"], *kind).returncode == 5


def test_a_collection_is_put_patched_downloaded_and_deleted(ground: Ground, tmp_path: Path) -> None:
    uuid, version = ground.deposited["bundle_uuid"], ground.deposited["version"]
    link = {"type": "bundle", "uuid": uuid, "version": version}
    made = create_version()
    put = ground.hca.gets(
        *("dss", "put-collection", "--uuid", uuid, "--version", made, "--replica", "aws"),
        *("--name", "n", "--description", "d", "--details", "{}", "--contents", json.dumps(link)),
    )
    assert put == {"uuid": uuid, "version": made}
    named = ("--uuid", uuid, "--version", made, "--replica", "aws")
    assert ground.both_get("get-collection", *named)["contents"] == [link]
    patched = ground.hca.gets("dss", "patch-collection", *named, "--name", "renamed")
    latest = ("--uuid", uuid, "--replica", "aws")
    assert ground.both_get("get-collection", *latest)["name"] == "renamed"
    listed = ground.both_get("get-collections")["collections"]
    assert {"uuid": uuid, "version": patched["version"]} in listed

    words = ("download-collection", *latest, "--download-dir")
    ground.hca.gets("dss", *words, str(tmp_path / "hca"))
    ground.ours.gets(*words, str(tmp_path / "ours"))
    theirs = contents(tmp_path / "hca" / f"{uuid}.{version}")
    assert theirs.pop("bundle.json")
    assert theirs == contents(ground.source)
    whole = tmp_path / "ours" / f"{uuid}.{patched['version']}"
    assert theirs == contents(whole / "bundles" / f"{uuid}.{version}")

    ground.hca.gets("dss", "delete-collection", *latest)
    assert ground.ours.types("get-collection", *latest).returncode == 5


def test_both_clients_read_events(ground: Ground) -> None:
    until(lambda: ground.ours.types("get-event", *ground.bundle).returncode == 0)
    event = ground.both_get("get-event", *ground.bundle)
    assert event["manifest"]["files"]
    # New journals may be written between two requests.
    words = ("get-events", "--replica", "aws")
    theirs = {one["journal_id"] for one in ground.hca.gets("dss", *words)["event_streams"]}
    ours = {one["journal_id"] for one in ground.ours.gets(*words)["event_streams"]}
    assert theirs
    assert theirs <= ours


def test_users_and_rights_are_managed_with_the_original(ground: Ground) -> None:
    hca = ground.hca
    hca.gets("auth", "post-v1-user", "--user-id", "lab@example.org")
    hca.gets("auth", "post-v1-group", "--group-id", "lab")
    assert hca.gets("auth", "get-v1-user", "--user-id", "lab@example.org")
    assert "lab" in json.dumps(hca.gets("auth", "get-v1-groups"))
    hca.gets("auth", "delete-v1-group", "--group-id", "lab")
    assert "lab" not in json.dumps(hca.gets("auth", "get-v1-groups"))
    assert hca.gets("auth", "get-oauth-userinfo")["email"] == "admin@local"


def test_areas_of_the_original_are_local_and_the_store_asks_for_a_token(ground: Ground) -> None:
    area = ground.ours.gets("select", "--new")["uuid"]
    chosen = ground.hca.types("upload", "select", f"s3://store-prod/{area}/")
    assert f"Upload area {area} selected." in chosen.stdout
    assert f"{area} <- selected" in ground.hca.types("upload", "areas").stdout
    sample = str(ground.source / "sample.json")
    for words in (("list",), ("files", sample), ("report",), ("creds", area)):
        # Otherwise it refuses the end point itself, before it asks the store.
        refused = ground.hca.types("upload", *words, AWS_IGNORE_CONFIGURED_ENDPOINT_URLS="true")
        assert refused.returncode != 0
        assert "401" in refused.stderr, words
    assert "RETRIEVAL_ERROR" in ground.hca.types("upload", "status", "sample.json").stdout
    assert f"area {area}" in ground.hca.types("upload", "forget", area).stdout
    assert ground.hca.types("upload", "areas").stdout == ""


def test_local_commands_of_both_clients_agree(ground: Ground) -> None:
    versions = [
        ground.ours.types("create-version").stdout,
        ground.hca.types("dss", "create-version").stdout,
        ground.ours.types("create-version").stdout,
    ]
    assert versions == sorted(versions)
    assert {len(version) for version in versions} == {len(versions[0])}
    assert ground.hca.types("clear-hca-cache").returncode == 0
    assert ground.ours.types("clear-cache").returncode == 0
