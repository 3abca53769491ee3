"""Paged S3 listings, and copies above 5 GB."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest.mock import patch

from storage.blobs.s3 import S3Blobs
from tests.http_server import serving
from tests.storage.blobs.backend_s3 import SIMULATED, opened
from tests.storage.blobs.test_s3_failures import ETAG, OK, Say, Script

MIB = 1024**2


def xml(text: str) -> Say:
    return Say(200, f"<R>{text}</R>".encode(), {"ETag": ETAG})


def entry(kind: str, **words: object) -> str:
    return f"<{kind}>{''.join(f'<{name}>{said}</{name}>' for name, said in words.items())}</{kind}>"


def cut_short(**following: str) -> str:
    return "<IsTruncated>true</IsTruncated>" + "".join(
        f"<{name}>{said}</{name}>" for name, said in following.items()
    )


def test_listing_continues_after_first_page() -> None:
    one, two = (entry("Contents", Key=key, Size=1, ETag="e") for key in "ab")
    script = Script(xml(one + cut_short(NextContinuationToken="more")), xml(two))
    with script.bucket() as blobs:
        assert [info.key for info in blobs.list("", after="0")] == ["a", "b"]
    assert "continuation-token=more" in script.asked[1][0]


def test_parts_beyond_the_first_page_are_parts() -> None:
    one, two = (entry("Part", PartNumber=n, Size=5, ETag="e") for n in (1, 2))
    first, rest = xml(one + cut_short(NextPartNumberMarker="1")), xml(two)
    script = Script(xml("<UploadId>u</UploadId>"), first, rest, first, rest, xml("<ETag>e</ETag>"))
    with script.bucket() as blobs:
        upload = blobs.upload("k", part_size=5, content_type="x/y")
        assert upload.parts() == {1: 5, 2: 5}
        assert upload.complete().size == 10
    assert "part-number-marker=1" in script.asked[2][0]


def test_every_page_of_versions_is_removed() -> None:
    marker = Say(204, b"", {"x-amz-delete-marker": "true", "x-amz-version-id": "v3"})
    at = "2026-01-01T00:00:00.000Z"
    hiding = entry("DeleteMarker", Key="k", VersionId="v3", IsLatest="true", LastModified=at)
    older = [
        entry("Version", Key="k", VersionId=v, IsLatest="false", LastModified=at)
        for v in ("v2", "v1")
    ]
    page = cut_short(NextKeyMarker="k", NextVersionIdMarker="v2")
    script = Script(marker, xml(hiding + older[0] + page), xml(older[1]), Say(204))
    with script.bucket() as blobs:
        blobs.delete("k")
    removed = re.findall(
        r"DELETE /bucket/k\?versionId=(\w+)", "\n".join(a for a, _ in script.asked)
    )
    assert sorted(removed) == ["v1", "v2", "v3"]
    assert removed[-1] == "v3", "nothing old may come to light"


def test_a_sweep_sees_every_page_of_uploads() -> None:
    one, two = (
        entry("Upload", Key=key, UploadId=key, Initiated="2026-01-01T00:00:00.000Z") for key in "ab"
    )
    pages = xml(one + cut_short(NextKeyMarker="a", NextUploadIdMarker="a")), xml(two)
    script = Script(*pages, xml(""), Say(204), xml(""), Say(204))
    with script.bucket() as blobs:
        assert blobs.sweep_temporaries(3600, now=4e9) == 2
    aborted = [asked.split()[1] for asked, _ in script.asked if asked.startswith("DELETE")]
    assert aborted == ["/bucket/a?uploadId=a", "/bucket/b?uploadId=b"]


def test_recent_part_keeps_upload() -> None:
    upload = entry("Upload", Key="a", UploadId="a", Initiated="2026-01-01T00:00:00.000Z")
    parts = (
        entry("Part", PartNumber=n, Size=5, ETag="e", LastModified=f"{year}-01-01T00:00:00.000Z")
        for n, year in ((1, 2026), (2, 2096))
    )
    first, second = parts
    pages = xml(first + cut_short(NextPartNumberMarker="1")), xml(second)
    with Script(xml(upload), *pages).bucket() as blobs:
        assert blobs.sweep_temporaries(3600, now=3e9) == 0


class Large:
    """A server that says it has an object of `size` bytes, and is asked to copy it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.copied: dict[int, tuple[int, int]] = {}
        self.pins: set[str | None] = set()
        self.conditions: list[str | None] = []

    @contextmanager
    def bucket(large: "Large") -> Iterator[S3Blobs]:  # noqa: N805
        class Handler(Script(OK).handler()):  # type: ignore[misc]
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.command == "HEAD":
                    self.send_response(200)
                    self.send_header("Content-Length", str(large.size))
                    self.send_header("ETag", ETAG)
                    self.end_headers()
                    return
                self.say(large.said(self.command, self.path, self.headers))

            do_GET = do_PUT = do_HEAD = do_POST = answer  # noqa: N815

        with patch.dict(os.environ, SIMULATED), serving(Handler) as endpoint:
            yield opened(endpoint, "bucket")

    def said(self, method: str, path: str, headers: Mapping[str, str]) -> Say:
        if method == "PUT":
            number = int(re.findall(r"partNumber=(\d+)", path)[0])
            first, last = headers["x-amz-copy-source-range"].removeprefix("bytes=").split("-")
            self.copied[number] = (int(first), int(last) + 1)
            self.pins.add(headers["x-amz-copy-source-if-match"])
            return xml("<ETag>e</ETag>")
        if method == "GET":
            return xml("".join(
                entry("Part", PartNumber=n, Size=end - start, ETag="e")
                for n, (start, end) in sorted(self.copied.items())
            ))  # fmt: skip
        if path.endswith("?uploads"):
            return xml("<UploadId>u</UploadId>")
        self.conditions.append(headers["if-none-match"])
        return xml(f"<ETag>{'0' * 32}-{len(self.copied)}</ETag>")


def test_copies_objects_beyond_5_gb_in_parts() -> None:
    large = Large(6 * 1024**3 + 1)
    with large.bucket() as blobs:
        info = blobs.copy(blobs, "from", "to", pin=None, part_size=64 * MIB, size=large.size)
    assert info is not None
    assert info.size == large.size
    spans = [large.copied[number] for number in range(1, 98)]
    assert [start for start, _ in spans] == [0, *(end for _, end in spans[:-1])]
    assert spans[-1] == (6 * 1024**3, large.size)
    assert large.pins == {ETAG}
    assert large.conditions == ["*"]
