"""Which S3 calls use obstore, and when boto3 is used instead."""

import os
from pathlib import Path
from unittest.mock import patch

import pytest

from storage.blobs.clients import CloudLimits
from storage.blobs.s3 import S3Blobs, open_s3_blobs
from storage.blobs.s3_obstore import is_plain_key
from storage.errors import Unavailable
from storage.protocols import BlobInfo
from tests.http_server import serving
from tests.storage.blobs.backend_s3 import SIMULATED
from tests.storage.blobs.test_s3_failures import ETAG, LIMITS, OK, Say, Script, error

COPIED = b"<CopyObjectResult><ETag>&quot;e&quot;</ETag></CopyObjectResult>"


def copy(blobs: S3Blobs, target_key: str) -> BlobInfo | None:
    return blobs.copy(blobs, "blobs/a", target_key, pin=None, part_size=9, size=3)


@pytest.mark.parametrize(
    "key", ["/a", "a/", "a//b", ".", "../a", "a/./b", "a\tb", "", "a/..", "a\u2028b"]
)
def test_leaves_keys_that_obstore_changes_to_boto3(key: str) -> None:
    assert not is_plain_key("bucket", key)


@pytest.mark.parametrize("key", ["a", "areas/sp ace/\xfc?#%2f+&=~", "a/.hidden/...", "a\\b"])
def test_takes_keys_that_both_name_alike(key: str) -> None:
    assert is_plain_key("bucket", key)


@pytest.mark.parametrize(
    "bucket",
    ["arn:aws:s3:us-east-1:1:accesspoint/a", "n--use1-az4--x-s3", ".", "..", "a..", "-a", ""],
)
def test_leaves_buckets_of_other_kinds_to_boto3(bucket: str) -> None:
    assert not is_plain_key(bucket, "key")


def test_boto3_repeats_failed_calls() -> None:
    script = Script(error(500, "InternalError"), OK)
    with script.bucket() as blobs:
        assert blobs.put("files/k", b"bytes").etag == "0" * 32
    agents = [headers["user-agent"] for _, headers in script.asked]
    conditions = [headers["if-none-match"] for _, headers in script.asked]
    assert (len(agents), conditions) == (2, ["*", "*"])


def test_a_response_without_an_etag_is_not_believed() -> None:
    script = Script(Say())
    with script.bucket() as blobs, pytest.raises(Unavailable, match="truncated"):
        blobs.put("files/k", b"bytes")


def test_ambient_endpoints_are_not_preferred_to_the_buckets_own() -> None:
    script = Script(OK)
    elsewhere = {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9", "AWS_SKIP_SIGNATURE": "true"}
    with script.bucket() as blobs, patch.dict(os.environ, elsewhere):
        blobs.put("files/k", b"bytes")
    ((_, headers),) = script.asked
    assert headers["authorization"].startswith("AWS4-HMAC-SHA256")


def test_the_profile_signs_and_sends_its_token(tmp_path: Path) -> None:
    shared = tmp_path / "credentials"
    shared.write_text(
        "[p]\naws_access_key_id = of-p\naws_secret_access_key = s\naws_session_token = t\n"
    )
    ambient = {**SIMULATED, "AWS_SHARED_CREDENTIALS_FILE": str(shared)}
    script = Script(OK)
    with patch.dict(os.environ, ambient), serving(script.handler()) as endpoint:
        url = f"s3://bucket?endpoint={endpoint}&profile=p&region=eu-west-1"
        open_s3_blobs(url, LIMITS).put("files/k", b"bytes")
    ((_, headers),) = script.asked
    assert "Credential=of-p/" in headers["authorization"]
    assert "/eu-west-1/s3/" in headers["authorization"]
    assert headers["x-amz-security-token"] == "t"


def test_object_with_declared_checksums_takes_one_head() -> None:
    there = {"ETag": ETAG, "Last-Modified": "Mon, 23 Nov 2026 01:00:00 GMT"}
    sums = {f"x-amz-meta-store-{name}": name for name in ("sha1", "sha256", "crc32c", "s3_etag")}
    tag = b"<Tagging><TagSet><Tag><Key>store-sha1</Key><Value>t</Value></Tag></TagSet></Tagging>"
    few = Say(200, b"", {**there, "x-amz-meta-other-sha256": "o"})
    empty = Say(200, b"", {**there, **dict.fromkeys(sums, "")})
    tagged = [few, few, Say(200, tag), empty, empty, Say(200, tag)]
    script = Script(Say(200, b"", {**there, **sums}), *tagged)
    with patch.dict(os.environ, SIMULATED), serving(script.handler()) as endpoint:
        blobs = open_s3_blobs(f"s3://bucket?endpoint={endpoint}", LIMITS, tagged=True)
        whole = blobs.head("areas/a")
        assert [asked for asked, _ in script.asked] == ["HEAD /bucket/areas/a"]
        other = blobs.head("areas/b")
        blobs.head("areas/c")
    assert whole.metadata == {name.removeprefix("x-amz-meta-"): sums[name] for name in sums}
    assert other.metadata == {"other-sha256": "o", "store-sha1": "t"}
    assert [asked for asked, _ in script.asked if asked.startswith("GET")] == [
        "GET /bucket/areas/b?tagging",
        "GET /bucket/areas/c?tagging",
    ]


def test_a_copy_keeps_its_condition_and_is_read_back() -> None:
    # The first copy, made twice, tells that the server heeds the condition.
    script = Script(Say(404), Say(200, COPIED), error(412, "PreconditionFailed"), Say(200))
    with script.bucket() as blobs:
        copy(blobs, "blobs/b")
        script.asked.clear()
        script.says.clear()
        there = {"ETag": ETAG, "Last-Modified": "Mon, 23 Nov 2026 01:00:00 GMT"}
        script.says.extend([Say(200, COPIED), Say(200, b"abc", there)])
        info = copy(blobs, "blobs/c")
    assert info is not None
    assert (info.size, info.etag) == (3, "0" * 32)
    (copying, headers), (reading, _) = script.asked
    assert (copying, reading) == ("PUT /bucket/blobs/c", "HEAD /bucket/blobs/c")
    assert headers["x-amz-copy-source"] == "bucket/blobs/a"
    assert headers["if-none-match"] == "*"


def test_copies_under_a_key_of_kms_ask_for_their_checksum() -> None:
    encrypted = Say(200, COPIED, {"x-amz-server-side-encryption": "aws:kms"})
    script = Script(Say(404), encrypted, error(412, "PreconditionFailed"), Say(200), encrypted)
    with script.bucket() as blobs:
        copy(blobs, "blobs/b")
        script.asked.clear()
        copy(blobs, "blobs/c")
    ((_, headers),) = script.asked
    assert headers["x-amz-checksum-algorithm"] == "CRC32C"


def test_a_forked_child_of_a_process_that_used_it_calls_boto3() -> None:
    script = Script(OK)
    with script.bucket(CloudLimits(connect_s=5, read_s=5, attempts=1, connections=1)) as blobs:
        blobs.put("files/k", b"bytes")
        child = os.fork()
        if child == 0:
            # Nothing of the parent's may run in here, not even a failure.
            try:
                os._exit(0 if blobs.put("files/k", b"bytes").size == 5 else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(script.asked) == 2
