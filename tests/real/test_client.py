"""The installed client against a store on real engines."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest

from ops import local_store
from ops.local_store import LocalStore
from tests.client.end_to_end import trouble
from tests.client.end_to_end.people import Person, a_person, a_sample, contents
from tests.client.end_to_end.trouble import Bundle
from tests.drill.fault_proxy import Mode, Proxy, before
from tests.real import engines
from tests.storage.blobs import backend_gcs

pytestmark = [
    pytest.mark.skipif(not engines.ENOUGH, reason="STORE_TEST_* name too few engines"),
    pytest.mark.spec("CLI-91"),
]

CLOUD = "s3 and gcs" if engines.GCS else "s3 and s3"


@dataclass(frozen=True)
class Ground:
    """A store, and the proxy that everybody outside reaches its S3 by."""

    store: LocalStore
    s3: Proxy

    @property
    def outside(self) -> str:
        """The server of buckets as depositors see it."""
        return f"http://127.0.0.1:{self.s3.port}"

    def person(self, folder: Path) -> Person:
        """Who has logged in."""
        found = a_person(
            folder,
            self.store.api,
            AWS_ENDPOINT_URL_S3=self.outside,
            STORAGE_EMULATOR_HOST=engines.endpoint("GCS") if engines.GCS else "",
            **credentials(self.store),
        )
        found.types("login", "--access-token", "-", given=self.store.token)
        return found


def credentials(store: LocalStore) -> dict[str, str]:
    """Of a lab for its own buckets."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")
    return {name: store.environ[name] for name in names if name in store.environ}


@pytest.fixture(scope="module", params=[CLOUD])
def ground(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    with ExitStack() as stack:
        given = stack.enter_context(engines.settings(gcp=engines.CLOUDS[request.param]()))
        where = urlsplit(engines.endpoint("S3"))
        proxy = stack.enter_context(before(str(where.hostname), int(where.port or 0), Random(7)))
        given["STORE_REPLICA_AWS"] += f"&public=http://127.0.0.1:{proxy.port}"
        ambient = stack.enter_context(pytest.MonkeyPatch.context())
        ambient.setenv("AWS_ENDPOINT_URL_S3", engines.endpoint("S3"))
        if engines.GCS:
            ambient.setenv("STORAGE_EMULATOR_HOST", engines.endpoint("GCS"))
            stack.enter_context(backend_gcs.running(tmp_path_factory.mktemp("account")))
        store = stack.enter_context(
            local_store.running_store(tmp_path_factory.mktemp("home"), given)
        )
        yield Ground(store, proxy)


@pytest.fixture(autouse=True)
def calm(ground: Ground) -> None:
    """Every test begins without trouble."""
    ground.s3.mode, ground.s3.only = Mode.PASS, b""


@pytest.fixture(scope="module")
def bundle(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    source = trouble.a_source(tmp_path_factory.mktemp("source") / "sample", large=9_000_000)
    person = ground.person(tmp_path_factory.mktemp("depositor"))
    return trouble.deposited(person, ground.store.token, source)


def bucket_of_s3() -> str:
    return engines.name_of(engines.s3_bucket())


def bucket_of_gcs() -> str:
    return engines.name_of(engines.gcs_bucket())


@pytest.mark.parametrize(
    ("replica", "bucket"),
    [("aws", bucket_of_s3), ("aws", None), ("gcp", None)]
    + ([("gcp", bucket_of_gcs)] if engines.GCS else []),
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_uploads_by_every_way_and_downloads_from_both_replicas(
    ground: Ground, tmp_path: Path, replica: str, bucket: object
) -> None:
    person = ground.person(tmp_path / "person")
    source = a_sample(tmp_path / "sample", files=4, seed=len(str(bucket)))
    (source / "large.bam").write_bytes(Random(3).randbytes(70 * 1024 * 1024))
    staging = ("--staging-bucket", bucket()) if callable(bucket) else ()
    words = ("upload", "--src-dir", str(source), "--replica", replica, "--no-progress")
    made = person.gets(*words, *staging)
    assert person.gets(*words, *staging)["version"] == made["version"]
    uuid = str(made["bundle_uuid"])
    for number, where in enumerate(("aws", "gcp")):
        reader = a_person(tmp_path / f"reader {number}", ground.store.api)
        done = trouble.patiently(reader, uuid, where)
        assert done.returncode == 0, done.stderr
        assert trouble.arrived(reader, uuid) == contents(source)


@pytest.mark.parametrize("mode", [Mode.TRUNCATE, Mode.RESET, Mode.REFUSE, Mode.SLOW, Mode.FLIP])
def test_content_is_complete_or_reported_missing(
    ground: Ground, bundle: Bundle, tmp_path: Path, mode: Mode
) -> None:
    ground.s3.only = b"GET /"
    trouble.comes_whole_or_is_said_not_to_have(
        ground.s3, a_person(tmp_path / "reader", ground.store.api), bundle, mode
    )


def test_killed_download_resumes(ground: Ground, bundle: Bundle, tmp_path: Path) -> None:
    reader = a_person(tmp_path / "reader", ground.store.api)
    trouble.a_stopped_download_goes_on(ground.s3, reader, bundle, signal.SIGKILL)


def test_killed_upload_to_bucket_resumes(ground: Ground, tmp_path: Path) -> None:
    source = a_sample(tmp_path / "sample", files=8, seed=8)
    bucket = bucket_of_s3()

    def sent(since: int) -> list[bytes]:
        beginning = f"PUT /{bucket}/".encode()
        asked = [line for line in ground.s3.asked[since:] if line.startswith(beginning)]
        return [line.split()[1] for line in asked]

    trouble.a_stopped_upload_goes_on(
        *(ground.s3, ground.person(tmp_path / "person"), source, signal.SIGKILL, sent),
        *("--staging-bucket", bucket),
    )


@pytest.mark.parametrize("mode", [Mode.TRUNCATE, Mode.RESET, Mode.REFUSE, Mode.SLOW])
def test_upload_through_faults_is_complete_or_fails(
    ground: Ground, tmp_path: Path, mode: Mode
) -> None:
    source = a_sample(tmp_path / "sample", files=6, seed=len(mode))
    (source / "large.bam").write_bytes(Random(4).randbytes(70 * 1024 * 1024))
    bucket = bucket_of_s3()
    person = ground.person(tmp_path / "person")

    def begun() -> bool:
        return any(line.startswith(f"PUT /{bucket}/".encode()) for line in ground.s3.asked)

    trouble.an_upload_through_trouble_is_right(
        *(ground.s3, person, source, mode, begun),
        *("--staging-bucket", bucket),
    )
