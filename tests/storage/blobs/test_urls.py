"""Bucket URLs and cloud endpoints."""

from unittest.mock import patch

import pytest

from config import SettingsError
from storage.blobs.clients import CloudLimits, canonical_endpoint, parse_bucket_url
from storage.blobs.gcs_client import GcsClient, GcsServer
from storage.blobs.s3 import open_s3_blobs
from storage.blobs.s3_client import S3Server
from tests.storage.blobs.backend_s3 import SIMULATED

pytestmark = pytest.mark.spec("OPS-18")

LIMITS = CloudLimits(0.1, 0.1, 1, 1)


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:hush@bucket",
        "s3://key:hush/den@bucket",
        "s3://bucket?endpoint=http://[hush",
        "s3://bucket?endpoint=https://key:hush@s3.example",
        "s3://bucket?public=https://hush@s3.example",
        "s3://bucket?secret_key=hush",
        "s3://bucket?endpoint=hush",
    ],
)
def test_refuses_possible_secrets_without_repeating_them(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_bucket_url(url, "s3", S3Server)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("told", "called"),
    [
        ("https://s3.Example:443", "https://s3.example"),
        ("http://s3.example:80/Bucket", "http://s3.example/Bucket"),
        ("http://s3.example:443", "http://s3.example:443"),
        ("http://[::1]:80", "http://[::1]"),
        ("http://[fe80::80]", "http://[fe80::80]"),
    ],
)
def test_an_endpoint_is_called_as_all_clients_call_it(told: str, called: str) -> None:
    assert canonical_endpoint(told) == called


def test_signed_urls_omit_default_port() -> None:
    with patch.dict("os.environ", SIMULATED):
        near = open_s3_blobs("s3://b?endpoint=https://s3.Example:443", LIMITS)
        public = open_s3_blobs("s3://b?endpoint=http://x&public=https://s3.Example:443/", LIMITS)
        for bucket in (near, public):
            assert bucket.sign("k", expires_s=9).startswith("https://s3.example/b/k?")
    server = GcsServer("http://gcs.Example:80", "https://Gcs.Example:443")
    with patch.dict("os.environ", {"GOOGLE_APPLICATION_CREDENTIALS": ""}):
        assert GcsClient(server, LIMITS).public == "https://gcs.example"
