"""Damage stored objects on disk."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from pipelines import records
from storage.blobs import folder_files
from storage.blobs.folder import FolderBlobs
from storage.model import FQID, CollectionLink, Replica
from storage.protocols import BlobStore
from storage.stores import Stores

HEADER = 14
"""A byte of a folder bucket's header: the lowest of the length of the object."""


def flip(data: bytes, place: int) -> bytes:
    changed = bytearray(data)
    changed[place] ^= 1
    return bytes(changed)


KINDS: Mapping[str, Callable[[bytes], bytes | None]] = {
    "emptied": lambda _data: b"",
    "truncated": lambda data: data[:-1],
    "extended": lambda data: data + b"x",
    "first byte": lambda data: flip(data, 0),
    "header byte": lambda data: flip(data, HEADER),
    "last byte": lambda data: flip(data, -1),
    "removed": lambda _data: None,
}
"""What each kind makes of an object's bytes; in a folder these begin with the header."""


def path_of(bucket: BlobStore, key: str) -> Path:
    assert isinstance(bucket, FolderBlobs)
    return bucket.root.joinpath(*folder_files.object_path(key))


def damage_file(bucket: BlobStore, key: str, kind: str) -> None:
    """Damage an object of a folder bucket as a disk or a person would."""
    path = path_of(bucket, key)
    changed = KINDS[kind](path.read_bytes())
    if changed is None:
        path.unlink()
    else:
        path.write_bytes(changed)


def damage(stores: Stores, replica: Replica, key: str, kind: str) -> None:
    damage_file(stores.replicas[replica], key, kind)


def damage_s3(client: Any, bucket: str, key: str, kind: str) -> None:
    """Damage an object of an S3 bucket, as whoever has its credentials could."""
    data = client.get_object(Bucket=bucket, Key=key)["Body"].read()
    changed = KINDS[kind](data)
    client.delete_object(Bucket=bucket, Key=key)
    if changed is not None:
        client.put_object(Bucket=bucket, Key=key, Body=changed)


def other_record(data: bytes) -> bytes:
    """A valid record of the same bundle or collection with other content."""
    row = orjson.loads(data)
    if row["kind"] == "bundle":
        row["manifest"]["creator_uid"] += 1
        lines = [
            (line["name"], FQID(line["uuid"], line["version"]), line["indexed"])
            for line in row["manifest"]["files"]
        ]
        row["digest"] = records.bundle_digest(row["manifest"]["creator_uid"], lines)
    else:
        row["name"] += "!"
        links = [
            CollectionLink(line["type"], FQID(line["uuid"], line["version"]), line.get("path"))
            for line in row["contents"]
        ]
        row["digest"] = records.collection_digest(
            row["owner"], row["name"], row["description"], row["details"], links
        )
    return orjson.dumps(row, option=orjson.OPT_SORT_KEYS)
