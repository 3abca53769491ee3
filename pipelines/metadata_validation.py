"""Validate the metadata of new bundles against the operator's schemas.

A file that was found valid is not read again while the process remembers it. A request that ran out
of time continues where the one before stopped, however many files there are.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from pipelines import documents, failover
from storage.catalog import files
from storage.errors import NotFoundError, Unavailable, Unprocessable
from storage.json_codec import estimate_parsed_size
from storage.model import Replica
from storage.protocols import MetadataSchema
from storage.stores import Stores

MAX_FAULTS = 50
"""Faults that one error lists."""
DETAILED_BYTES = 256 * 1024
"""Largest file of which more than the first fault is listed: listing all takes long."""
TIME_LIMIT_S = 30.0
"""After this time no other file is begun."""
_SHOWN = 3
_VALID = b"\1"


class FileToValidate(NamedTuple):
    """A metadata file of a new bundle; `schemas` are those for its name."""

    name: str
    size: int
    sha256: str
    schemas: Sequence[MetadataSchema]


class MetadataFault(NamedTuple):
    """What is wrong with the value at a JSON pointer of a metadata file."""

    name: str
    pointer: str
    message: str


class MetadataInvalid(Unprocessable):
    """Metadata does not satisfy the schemas of the store."""

    code = "metadata_invalid"

    def __init__(self, faults: Sequence[MetadataFault]) -> None:
        listed: dict[str, list[str]] = {}
        for fault in faults:
            listed.setdefault(f"{fault.name}#{fault.pointer}", []).append(fault.message)
        names = list(dict.fromkeys(fault.name for fault in faults))
        shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
        super().__init__(
            f"The metadata does not satisfy the schemas of this store: {shown}.", errors=listed
        )
        self.faults = faults


def find_schemas(stores: Stores, name: str, *, indexed: bool) -> list[MetadataSchema]:
    """Return the schemas for a file of a bundle; only indexed files are metadata."""
    if not indexed:
        return []
    return [schema for schema in stores.metadata_schemas if schema.matches(name)]


def choose_metadata(
    stores: Stores,
    entries: Sequence[tuple[str, files.FileKey, bool]],
    found: Sequence[files.FoundFile],
) -> list[FileToValidate]:
    """Return the files of entries (name, file, indexed) that have schemas.

    `found` are the files of all entries, in their order.
    """
    if not stores.metadata_schemas:
        return []
    chosen = []
    for (name, _, indexed), (_, _, _, size, _, sha256, _, _) in zip(entries, found, strict=True):
        if schemas := find_schemas(stores, name, indexed=indexed):
            chosen.append(FileToValidate(name, size, sha256, schemas))
    return chosen


def validate_metadata(
    stores: Stores,
    replica: Replica,
    metadata: Sequence[FileToValidate],
    *,
    time_limit_s: float = TIME_LIMIT_S,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Validate files that the replica has.

    Raise MetadataInvalid, and Unavailable if it takes too long: a retry continues.
    """
    progress = _progress_key(metadata)
    first = int(stores.valid_metadata.get(progress) or 0)
    waiting = [
        (index, file)
        for index, file in enumerate(metadata[first:], first)
        if _list_unseen(stores, file)
    ]
    faults: list[MetadataFault] = []
    ends = clock() + time_limit_s
    for start in range(0, len(waiting), stores.copy_parallel):
        is_late = start > 0 and clock() > ends
        if len(faults) >= MAX_FAULTS or (faults and is_late):
            break
        batch = waiting[start : start + stores.copy_parallel]
        if is_late:
            # Of more files than are remembered, the first would be forgotten before the last.
            stores.valid_metadata.put(progress, b"%d" % batch[0][0])
            raise Unavailable(
                f"Validated {start} of {len(waiting)} metadata files in {time_limit_s:g} s; send"
                " the request again to continue.",
                retry_after_s=1,
            )
        for found in _validate_batch(stores, replica, [file for _, file in batch]):
            faults += found
    if faults:
        raise MetadataInvalid(faults[:MAX_FAULTS])


def _validate_batch(
    stores: Stores, replica: Replica, batch: Sequence[FileToValidate]
) -> list[list[MetadataFault]]:
    if len(batch) == 1:
        return [_validate_file(stores, replica, batch[0])]
    with ThreadPoolExecutor(len(batch)) as pool:
        return list(pool.map(lambda file: _validate_file(stores, replica, file), batch))


def _list_unseen(stores: Stores, file: FileToValidate) -> list[MetadataSchema]:
    """Return the schemas that the file was not validated against in this process."""
    return [
        schema
        for schema in file.schemas
        if stores.valid_metadata.get(_cache_key(file, schema)) is None
    ]


def _cache_key(file: FileToValidate, schema: MetadataSchema) -> str:
    return f"{file.sha256} {schema.digest}"


def _progress_key(metadata: Sequence[FileToValidate]) -> str:
    """The cache key of how many files of a bundle were found valid, in their order."""
    keys = hashlib.sha256()
    for file in metadata:
        for schema in file.schemas:
            keys.update(f"{_cache_key(file, schema)}\n".encode())
    return keys.hexdigest()


def _validate_file(stores: Stores, replica: Replica, file: FileToValidate) -> list[MetadataFault]:
    if file.size > documents.MAX_FILE_BYTES:
        message = f"is larger than {documents.MAX_FILE_BYTES} bytes, and cannot be validated"
        return [MetadataFault(file.name, "", message)]
    try:
        content = failover.read_blob(stores, replica, file.sha256)
    except NotFoundError as error:
        raise Unavailable(f"The content of {file.name} cannot be read now.") from error
    with stores.memory.reserve(estimate_parsed_size(content)):
        try:
            value, _ = documents.parse_metadata(content)
        except documents.UnreadableMetadata as error:
            return [MetadataFault(file.name, "", str(error))]
        faults: list[MetadataFault] = []
        for schema in _list_unseen(stores, file):
            most = MAX_FAULTS if file.size <= DETAILED_BYTES else 1
            found = schema.find_faults(value, most=most)
            if not found:
                stores.valid_metadata.put(_cache_key(file, schema), _VALID)
            faults += [MetadataFault(file.name, *fault) for fault in found]
        return faults
