"""What an upload answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from store_client.upload.options import UploadOptions
from store_client.upload.planning import Existing, Wanted

State = Literal["uploaded", "unchanged", "planned"]


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A bundle version and its entries as the store shows them.

    state: `uploaded`; `unchanged` when the store had all of it; `planned` by a dry run, whose
        entries are what the directory has, without uuids, and `send` says which would be sent.
    sent_files, sent_bytes: what this run brought, or would bring.
    earlier_uuid: the bundle that an earlier run made of this directory, when this is another one:
        of a directory that has changed, and a bundle that was not named.
    """

    bundle_uuid: str | None
    version: str | None
    creator_uid: int
    files: Sequence[Mapping[str, Any]]
    state: State
    sent_files: int
    sent_bytes: int
    earlier_uuid: str | None = None

    def as_json(self) -> dict[str, Any]:
        """As `store upload` prints it."""
        return {
            "bundle_uuid": self.bundle_uuid,
            "version": self.version,
            "state": self.state,
            "sent": {"files": self.sent_files, "bytes": self.sent_bytes},
            "bundle": {
                "uuid": self.bundle_uuid,
                "version": self.version,
                "creator_uid": self.creator_uid,
            },
            "files": [dict(one) for one in self.files],
        }


def unchanged(there: Existing) -> Uploaded:
    """The store has just this."""
    return Uploaded(there.uuid, there.version, there.creator_uid, there.files, "unchanged", 0, 0)


def planned(options: UploadOptions, files: Sequence[Wanted], missing: Sequence[Wanted]) -> Uploaded:
    """What would be brought."""
    sent = {one.name for one in missing}
    entries = [
        {
            "name": one.name,
            "size": one.file.size,
            "content-type": one.content_type,
            "indexed": one.indexed,
            "send": one.name in sent,
        }
        for one in files
    ]
    return Uploaded(
        bundle_uuid=options.bundle,
        version=None,
        creator_uid=options.creator_uid,
        files=entries,
        state="planned",
        sent_files=len(missing),
        sent_bytes=sum(one.file.size for one in missing),
    )
