"""Whole uploads through an upload area, against an embedded store."""

import json
from pathlib import Path

from store_client.client import Client
from store_client.upload.options import UploadOptions
from store_client.upload.running import upload


def sample(folder: Path) -> Path:
    (folder / "reads" / "lane 1").mkdir(parents=True)
    (folder / "sample.json").write_text(json.dumps({"donor": 1}))
    (folder / "empty.txt").write_bytes(b"")
    (folder / "reads" / "lane 1" / "R1.fastq.gz").write_bytes(b"x" * 3_000_000)
    return folder


def test_a_directory_becomes_a_bundle(client: Client, tmp_path: Path) -> None:
    done = upload(client, UploadOptions(sample(tmp_path / "s"), "aws"))
    assert done.state == "uploaded"
    assert sorted(one["name"] for one in done.files) == [
        "empty.txt",
        "reads/lane 1/R1.fastq.gz",
        "sample.json",
    ]
    again = upload(client, UploadOptions(tmp_path / "s", "aws"))
    assert (again.state, again.bundle_uuid, again.version) == (
        "unchanged",
        done.bundle_uuid,
        done.version,
    )
