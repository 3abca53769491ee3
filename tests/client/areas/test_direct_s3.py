"""Large files straight into S3: the store, its areas in a simulated bucket, and its STS."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, get_ident
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from config import Settings
from store_client import Client, NotAllowed, create_version
from store_client.areas.buckets import S3AreaBucket
from store_client.areas.upload import LARGE
from store_client.checksums import MB, hash_bytes
from store_client.local_files import OutgoingFile
from store_client.transfer import api
from store_client.transfer.engine import Stopped, TransferContext
from store_client.transfer.journal import FileJournal
from store_client.transfer.s3 import address_options
from tests.client.areas.builders import Heard, noise, send_path
from tests.client.cli.people import Typist, showing
from tests.client.conftest import Served
from tests.storage.blobs import s3_server
from tests.storage.blobs.backend_s3 import SIMULATED, admin, new_bucket, remove_bucket
from tests.storage.blobs.s3_server import lasting_s3
from tests.waiting import until

SIZE = LARGE + 3 * MB + 17
NAME = "deep/er/a b+c.bin"
ROLE = "arn:aws:iam::123456789012:role/store-areas"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in SIMULATED.items():
        monkeypatch.setenv(name, value)
    made = new_bucket(admin(lasting_s3()), versioned=False)
    yield made
    remove_bucket(admin(lasting_s3()), made)


@pytest.fixture
def settings(settings: Settings, bucket: str) -> Settings:
    """With areas on S3, and a role that is lent."""
    url = f"s3://{bucket}?endpoint={lasting_s3()}"
    return replace(settings, areas_url=url, areas_role_arn=ROLE)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "a.bin"
    path.write_bytes((noise(MB) * (SIZE // MB + 1))[:SIZE])
    return path


def parts_sent(since: int) -> int:
    """How many parts were sent to S3; the store copies some, too."""
    return s3_server.ASKED[since:].count("PUT partNumber uploadId")


class StopsOnceAPartArrived(Heard):
    """Stops the transfer when the small last part is recorded, while the first is being sent."""

    def __init__(self, stop: Event, journals: Path) -> None:
        super().__init__()
        self._end, self._journals = stop, journals
        self._told: Counter[int] = Counter()

    def bytes(self, n: int) -> None:
        super().bytes(n)
        self._told[get_ident()] += n
        # More than the last part has: this thread sends the first.
        if self._told[get_ident()] > 4 * MB and not self._end.is_set():
            until(self._is_recorded)
            self._end.set()

    def _is_recorded(self) -> bool:
        texts = [path.read_text() for path in self._journals.glob("area-*.json")]
        return any('"parts": {"2"' in text for text in texts)


@pytest.mark.spec("ARC-12")
def test_a_large_file_goes_to_the_bucket_and_the_store_finds_it_whole(
    client: Client, area: str, bucket: str, large: Path, store: Served
) -> None:
    heard, since = Heard(), len(s3_server.ASKED)
    sent = send_path(client, area, large, NAME, "text/plain", size=SIZE, tell=heard)
    assert sent.url == f"s3://{bucket}/areas/{area}/{NAME}"
    assert sent.checksums == hash_bytes(large.read_bytes())
    (found,) = api.list_area_files(client, area)
    assert (found["url"], found["size"], found["status"]) == (sent.url, SIZE, "CHECKSUMMED")
    assert (found["content_type"], found["checksums"]) == ("text/plain", asdict(sent.checksums))
    assert heard.done == SIZE
    assert parts_sent(since) == 2
    assert list(client.config.uploads.iterdir()) == []


@pytest.mark.spec("ARC-12")
def test_next_run_sends_missing_parts_only(client: Client, area: str, large: Path) -> None:
    stop = Event()
    first = StopsOnceAPartArrived(stop, client.config.uploads)
    with pytest.raises(Stopped):
        send_path(client, area, large, NAME, "text/plain", size=SIZE, tell=first, stop=stop)
    assert len(list(client.config.uploads.iterdir())) == 1
    heard, since = Heard(), len(s3_server.ASKED)
    send_path(client, area, large, NAME, "text/plain", size=SIZE, tell=heard)
    assert parts_sent(since) == 1
    (found,) = api.list_area_files(client, area)
    assert found["checksums"]["sha256"] == hash_bytes(large.read_bytes()).sha256
    assert heard.done == SIZE
    assert list(client.config.uploads.iterdir()) == []


@pytest.mark.spec("ARC-12")
def test_sends_parts_again_that_bucket_lost(
    client: Client, area: str, bucket: str, large: Path
) -> None:
    stop = Event()
    first = StopsOnceAPartArrived(stop, client.config.uploads)
    with pytest.raises(Stopped):
        send_path(client, area, large, NAME, "text/plain", size=SIZE, tell=first, stop=stop)
    s3, key = admin(lasting_s3()), f"areas/{area}/{NAME}"
    (upload,) = s3.list_multipart_uploads(Bucket=bucket)["Uploads"]
    s3.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload["UploadId"])
    heard = Heard()
    send_path(client, area, large, NAME, "text/plain", size=SIZE, tell=heard)
    (found,) = api.list_area_files(client, area)
    assert (found["size"], found["status"], heard.done) == (SIZE, "CHECKSUMMED", SIZE)


@pytest.mark.spec("ARC-12")
def test_a_small_file_goes_through_the_store_and_needs_no_credentials(
    client: Client, area: str, bucket: str, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"small")
    sent = send_path(client, area, path, "a", "text/plain", size=5)
    assert sent.url == f"s3://{bucket}/areas/{area}/a"


@pytest.mark.spec("ARC-16")
def test_prints_s3_credentials_as_shell_variables(
    area: str, bucket: str, store: Served, tmp_path: Path
) -> None:
    typist = Typist(tmp_path / "user", showing("admin"), {"STORE_CLIENT_URL": store.url})
    done = typist.types("creds", area)
    assert done.exit_code == 0, done.output
    shown = dict(given.split("=", 1) for given in done.stdout.splitlines())
    assert shown["STORE_AREA_URI"] == f"s3://{bucket}/areas/{area}/"
    assert shown["AWS_ENDPOINT_URL_S3"] == lasting_s3()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        assert shown[name]
        assert shown[name] not in done.stderr


@pytest.mark.spec("ARC-09")
@pytest.mark.parametrize(
    ("said", "accelerate", "wanted"),
    [
        ({"bucket": "b", "endpoint": None}, True, {"use_accelerate_endpoint": True}),
        ({"bucket": "b", "endpoint": None}, False, {}),
        ({"bucket": "b.c", "endpoint": None}, True, {}),
        ({"bucket": "b", "endpoint": "http://s3"}, True, {"addressing_style": "path"}),
    ],
)
def test_acceleration_is_for_amazon_and_optional(
    said: dict[str, Any], accelerate: bool, wanted: dict[str, Any]
) -> None:
    assert address_options(said, accelerate=accelerate) == wanted


class Amazon:
    """A bucket that has no acceleration; remembers by which credentials it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []

    def connect(self, said: Mapping[str, Any], accelerate: bool) -> Any:
        def create(**given: Any) -> dict[str, str]:
            self.asked.append((said["session_token"], accelerate))
            if accelerate:
                message = "S3 Transfer Acceleration is not configured on this bucket"
                told = {"Error": {"Code": "InvalidRequest", "Message": message}}
                raise ClientError(told, "CreateMultipartUpload")
            raise ClientError({"Error": {"Code": "AccessDenied"}}, "CreateMultipartUpload")

        return SimpleNamespace(create_multipart_upload=create)


@pytest.mark.spec("ARC-09")
def test_bucket_without_acceleration_uses_usual_endpoint(
    client: Client, area: str, large: Path
) -> None:
    amazon = Amazon()
    said = {**api.get_credentials(client, area), "session_token": "first"}
    outgoing = OutgoingFile(large, NAME, "text/plain", SIZE)
    journal = FileJournal(client.config, area, outgoing=outgoing, way="cloud")
    bucket = S3AreaBucket(said, dict, connect=amazon.connect)
    with pytest.raises(NotAllowed, match="AccessDenied"):
        bucket.send(outgoing, journal, TransferContext(2))
    assert amazon.asked == [("first", True), ("first", False)]


@pytest.mark.spec("ARC-12")
def test_credentials_that_end_soon_are_renewed(client: Client, area: str) -> None:
    amazon = Amazon()
    soon = create_version(datetime.now(UTC) + timedelta(minutes=4))
    said = {**api.get_credentials(client, area), "session_token": "first", "expires": soon}
    found = S3AreaBucket(
        said,
        lambda: api.get_credentials(client, area),
        accelerate=False,
        connect=amazon.connect,
    ).object(NAME)
    for _ in range(2):
        with pytest.raises(NotAllowed):
            found.call("create_multipart_upload")
    (token, _), again = amazon.asked
    assert token != "first"
    assert again == (token, False)
