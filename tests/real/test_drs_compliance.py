"""The compliance suite of GA4GH's DRS against the store, on folders and on real buckets."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from ops.local_store import LocalStore, running_store
from tests.client.end_to_end.people import Person, a_person, a_sample
from tests.engines.versions import DRS_COMPLIANCE_SUITE_VARIABLE
from tests.real import engines
from tests.storage.blobs import backend_gcs
from tests.waiting import until

SUITE = os.environ.get(DRS_COMPLIANCE_SUITE_VARIABLE, "")
pytestmark = [
    pytest.mark.skipif(
        not (SUITE and engines.NAMED["S3"]),
        reason=f"{DRS_COMPLIANCE_SUITE_VARIABLE} and STORE_TEST_S3 name too little",
    ),
    pytest.mark.spec("DRS-05", "DRS-08", "DRS-11"),
]

BUCKETS: dict[str, Callable[[], str] | None] = {"folders": None, **engines.CLOUDS}
"""How to make the bucket of replica gcp, by where both lie; None for folders."""
MISSING_MODULE = 'SUPPORTED_DRS_VERSIONS = ["1.2.0"]\n'
"""The wheel lacks the module `supported_drs_versions`, which its command imports."""
NO_TOKEN = {"auth_type": "none", "auth_token": ""}


@dataclass(frozen=True)
class Deposit:
    """A store with a bundle, and who uploaded it from where."""

    store: LocalStore
    person: Person
    source: Path
    bundle: str
    files: Mapping[str, str]
    """Ids of its files by name."""


@pytest.fixture(scope="module", params=BUCKETS)
def deposit(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deposit]:
    gcp, tmp_path = BUCKETS[request.param], tmp_path_factory.mktemp("drs")
    (tmp_path / "store").mkdir()
    with ExitStack() as stack:
        settings = {}
        if gcp is not None:
            settings = {"STORE_REPLICA_AWS": engines.s3_bucket(), "STORE_REPLICA_GCP": gcp()}
        if engines.GCS:
            ambient = stack.enter_context(pytest.MonkeyPatch.context())
            ambient.setenv("STORAGE_EMULATOR_HOST", engines.endpoint("GCS"))
            # GCS's server believes anybody; only who signs URLs must be somebody.
            stack.enter_context(backend_gcs.running(tmp_path_factory.mktemp("account")))
        store = stack.enter_context(running_store(tmp_path / "store", settings))
        person = a_person(tmp_path / "person", store.api)
        assert person.types("login", "--access-token", "-", given=store.token).returncode == 0
        source = a_sample(tmp_path / "source")
        done = person.gets("upload", str(source))
        uuid, version = done["bundle_uuid"], done["version"]
        read = f"{store.api}/v1/bundles/{uuid}?version={version}&replica="
        until(lambda: all(_get(read + name).status_code == 200 for name in ("aws", "gcp")))
        files = {
            file["name"]: f"{file['uuid']}.{file['version']}"
            for file in _get(f"{read}aws").json()["bundle"]["files"]
        }
        yield Deposit(store, person, source, f"{uuid}.{version}", files)


def _get(url: str) -> httpx.Response:
    return httpx.get(url, trust_env=False, timeout=30.0)


def run_suite(deposit: Deposit, folder: Path, root: str) -> dict[str, Any]:
    """Return the report of the suite's command about one file and one bundle."""
    file = next(iter(deposit.files.values()))
    asked = [
        {"drs_id": file, "is_bundle": False, **NO_TOKEN},
        {"drs_id": deposit.bundle, "is_bundle": True, **NO_TOKEN},
    ]
    access = [{"drs_id": file, **NO_TOKEN}]
    config = {"service_info": NO_TOKEN, "drs_object_info": asked, "drs_object_access": access}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "supported_drs_versions.py").write_text(MISSING_MODULE)
    done = subprocess.run(
        (
            *(SUITE, "--server_base_url", f"{deposit.store.api}{root}/ga4gh/drs/v1"),
            *("--platform_name", "store", "--platform_description", "the data store"),
            *("--drs_version", "1.2.0", "--config_file", "config.json"),
            *("--report_path", "report.json"),
        ),
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(folder), "NO_PROXY": "127.0.0.1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


def test_the_compliance_suite_finds_no_failure(deposit: Deposit, tmp_path: Path) -> None:
    for number, root in enumerate(("", "/v1")):
        report = run_suite(deposit, tmp_path / f"suite{number}", root)
        counted = report["summary"]
        assert (counted["failed"], counted["unknown"]) == (0, 0), json.dumps(report, indent=1)
        # Three cases of the service, five of a file, six of a bundle, three of each access.
        assert counted["passed"] >= 3 + 5 + 5 + 2 * 3
        cases = [
            case["status"]
            for phase in report["phases"]
            for test in phase["tests"]
            for case in test["cases"]
        ]
        assert counted["passed"] == cases.count("PASS")


def test_every_access_method_gives_the_bytes(deposit: Deposit) -> None:
    objects = f"{deposit.store.api}/ga4gh/drs/v1/objects"
    buckets = {name: deposit.store.environ.get(f"STORE_REPLICA_{name}") for name in ("AWS", "GCP")}
    schemes = {bucket.partition(":")[0] for bucket in buckets.values() if bucket}
    for name, file in deposit.files.items():
        data = (deposit.source / name).read_bytes()
        methods = _get(f"{objects}/{file}").json()["access_methods"]
        assert {method["type"] for method in methods} == {"https", *schemes}
        for method in methods:
            assert _read_bytes(objects, file, method) == data


def _read_bytes(objects: str, file: str, method: Mapping[str, Any]) -> bytes:
    """The content by one access method, as a client of that kind reads it."""
    if method["type"] == "https":
        signed = _get(f"{objects}/{file}/access/{method['access_id']}").json()["url"]
        return _get(signed).content
    bucket, _, key = method["access_url"]["url"].partition("://")[2].partition("/")
    if method["type"] == "s3":
        content: bytes = engines.s3().get_object(Bucket=bucket, Key=key)["Body"].read()
        return content
    name = key.replace("/", "%2F")
    return _get(f"{engines.endpoint('GCS')}/storage/v1/b/{bucket}/o/{name}?alt=media").content


def test_the_client_reads_by_drs_uri(deposit: Deposit, tmp_path: Path) -> None:
    name, file = next(iter(deposit.files.items()))
    uri = _get(f"{deposit.store.api}/ga4gh/drs/v1/objects/{file}").json()["self_uri"]
    target = tmp_path / "copy"
    done = deposit.person.types("file", "cp", uri, str(target))
    assert done.returncode == 0, done.stderr
    assert target.read_bytes() == (deposit.source / name).read_bytes()
    bundle = _get(f"{deposit.store.api}/ga4gh/drs/v1/objects/{deposit.bundle}").json()["self_uri"]
    shown = deposit.person.gets("bundle", "files", bundle)
    assert {one["name"] for one in shown} == {*deposit.files}
