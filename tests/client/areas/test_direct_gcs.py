"""Large files straight into Google Cloud Storage: the store, its areas in a simulated bucket. That
Google holds a token to its boundary no server here can show."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import google.auth
import pytest
from google.auth.transport.requests import Request

from config.settings import Settings
from store_client.areas.buckets import GcsAreaBucket, find_bucket
from store_client.areas.upload import AreaTransfer, send_direct
from store_client.checksums import MB, hash_bytes
from store_client.client import Client
from store_client.errors import NotAllowed
from store_client.identifiers import create_version
from store_client.local_files import OutgoingFile
from store_client.transfer import api
from store_client.transfer.engine import TransferContext
from store_client.transfer.gcs import open_bucket
from tests.client.areas.builders import Heard, noise, wrote
from tests.storage.blobs.backend_gcs import new_bucket, running
from tests.storage.blobs.gcs_server import Gcs

SIZE = 33 * MB + 17
"""More than one piece."""
NAME = "deep/er/a b+c.bin"


@pytest.fixture
def gcs(tmp_path: Path) -> Iterator[Gcs]:
    with running(tmp_path) as found:
        yield found


@pytest.fixture
def bucket(gcs: Gcs) -> str:
    return new_bucket(gcs).name


@pytest.fixture
def settings(settings: Settings, gcs: Gcs, bucket: str) -> Settings:
    """With areas on Google's."""
    return replace(settings, areas_url=f"gs://{bucket}?endpoint={gcs.endpoint}")


def said(gcs: Gcs, bucket: str, area: str, *, good: bool) -> dict[str, Any]:
    """What the store would say where it has a token to lend."""
    own, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/devstorage.read_write"])
    own.refresh(Request())
    return {
        "kind": "gs",
        "bucket": bucket,
        "prefix": f"areas/{area}/",
        "access_token": own.token if good else "withdrawn",
        "expires": create_version(datetime.now(UTC) + timedelta(hours=1)),
    }


@pytest.fixture
def outgoing(tmp_path: Path) -> OutgoingFile:
    path = wrote(tmp_path / "a", noise(MB) * (SIZE // MB) + bytes(17))
    return OutgoingFile(path, NAME, "text/plain", SIZE)


@pytest.mark.spec("ARC-13")
def test_a_large_file_goes_to_the_bucket_with_a_token_that_is_renewed_under_way(
    client: Client, area: str, gcs: Gcs, bucket: str, outgoing: OutgoingFile
) -> None:
    first, then = (said(gcs, bucket, area, good=good) for good in (False, True))
    opened = open_bucket(first, lambda: then, client_options={"api_endpoint": gcs.endpoint})
    heard = Heard()
    sending = AreaTransfer(client, area, TransferContext(2, heard))
    sent = send_direct(sending, outgoing, bucket=GcsAreaBucket(first, opened))
    assert sent.url == f"gs://{bucket}/areas/{area}/{NAME}"
    assert sent.checksums == hash_bytes(outgoing.path.read_bytes())
    (found,) = api.list_area_files(client, area)
    assert (found["url"], found["size"], found["status"]) == (sent.url, SIZE, "CHECKSUMMED")
    assert (found["content_type"], found["checksums"]) == ("text/plain", asdict(sent.checksums))
    assert heard.done == SIZE


@pytest.mark.spec("ARC-13")
def test_reports_token_refused_by_google(
    client: Client, area: str, gcs: Gcs, bucket: str, outgoing: OutgoingFile
) -> None:
    bad = said(gcs, bucket, area, good=False)
    opened = open_bucket(bad, lambda: bad, client_options={"api_endpoint": gcs.endpoint})
    with pytest.raises(NotAllowed, match="Google refuses"):
        send_direct(AreaTransfer(client, area), outgoing, bucket=GcsAreaBucket(bad, opened))
    assert list(api.list_area_files(client, area)) == []


@pytest.mark.spec("ARC-13")
def test_without_token_files_go_through_store(client: Client, area: str) -> None:
    assert find_bucket(client, area) is None
