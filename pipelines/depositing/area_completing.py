"""Files that came into an upload area by parts become files.

A file is there from the moment that the bucket completes it; the catalog learns of it afterwards.
Who dies in between has left the upload's id on the object, by which a completion that comes again
knows its own. What a completion was answered is kept as other answers are that may be asked for
twice.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pipelines.depositing import area_files
from pipelines.depositing import areas as staged
from pipelines.depositing.area_parts import MARK, Named, count, find, unfinished, whole
from storage import keys
from storage.catalog import answers, area_uploads
from storage.catalog.answers import Given
from storage.catalog.area_uploads import AreaUpload
from storage.errors import Invalid, NotFound
from storage.model import Todo
from storage.protocols import BlobInfo, Upload
from storage.stores import Stores

NAMED = 20
"""Missing parts that an answer names."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A file that is there, and how far looking at it is."""

    size: int
    status: str
    todo: tuple[Todo, ...] = ()


def complete(
    stores: Stores,
    upload: Named,
    caller: str,
    said: Mapping[str, Any] | None = None,
    *,
    request_id: str = "",
) -> Completed:
    """Make the parts one file, in place of what the name stood for, and have it looked at; `said`
    is what its uploader says of it. Again the same answer, whatever has come of the file since.
    Invalid while a part is missing, NotFound when the upload is gone."""
    told = _told(stores, upload, caller)
    if told is not None:
        return told
    try:
        begun = find(stores, upload, caller)
    except NotFound:
        # Another completion may have ended since that look.
        told = _told(stores, upload, caller)
        if told is None:
            raise
        return told
    _put_together(stores, begun)
    declared = {"size": begun.size, **(said or {})}
    came = area_files.arrived(
        stores,
        begun.area,
        begun.name,
        declared,
        # Somebody else may have put that name meanwhile, and says of it what is right.
        is_meant=lambda info: _became(info, begun),
        request_id=request_id,
    )
    with stores.catalog.write() as tx:
        area_uploads.closed(tx, begun.id)
        given = Given("", json.dumps({"size": begun.size, "status": came.status}))
        answers.add(tx, caller, _answered(begun.id), given)
    return _told(stores, upload, caller, came.todo) or Completed(begun.size, came.status)


def _answered(ident: str) -> str:
    """No Idempotency-Key has a line feed."""
    return f"area upload\n{ident}"


def _told(
    stores: Stores, upload: Named, caller: str, follow: tuple[Todo, ...] = ()
) -> Completed | None:
    """What a completion was answered, to whom it was."""
    with stores.catalog.read() as tx:
        given = answers.find(tx, caller, _answered(upload.id))
    if given is None:
        return None
    staged.owned(stores, upload.area, caller)
    return Completed(**json.loads(given.answer), todo=follow)


def _put_together(stores: Stores, upload: AreaUpload) -> None:
    """The object is there, by us or by whoever completed this upload before."""
    try:
        parts = unfinished(stores, upload)
        _check_all(upload, parts)
        parts.complete(replace=True)
    except (NotFound, Invalid):
        # Somebody else's completion may also have come between our looks at it.
        if not _is_there(stores, upload):
            raise


def _is_there(stores: Stores, upload: AreaUpload) -> bool:
    with suppress(NotFound):
        return _became(stores.areas.head(keys.area_file(upload.area, upload.name)), upload)
    return False


def _became(info: BlobInfo, upload: AreaUpload) -> bool:
    return info.metadata.get(MARK) == upload.id


def _check_all(upload: AreaUpload, parts: Upload) -> None:
    stored = whole(upload, parts)
    missing = [number for number in range(1, count(upload) + 1) if number not in stored]
    if missing:
        shown = ", ".join(map(str, missing[:NAMED])) + (", …" if len(missing) > NAMED else "")
        said = f"Parts are missing, or not whole: {shown}."
        raise Invalid(said, errors={"/parts": [said]})
