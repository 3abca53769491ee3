"""Versions of a bundle: history, withdrawals, and the differences of two versions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pipelines import documents, failover
from storage import json_codec
from storage.catalog import bundle_versions, bundles, purges, versions
from storage.catalog.purges import Purge
from storage.catalog.versions import Tombstone
from storage.errors import DomainError, NotFoundError
from storage.model import FQID, BundleVersion, Replica
from storage.stores import Stores

HISTORY_ENTRIES_MAX = 50_000
"""Entries whose bytes are summed for one page of a history."""
DIFF_LINES_MAX = 500
"""Files that a diff lists of each kind."""
DIFF_JSON_FILES_MAX = 20
DIFF_JSON_BYTES_MAX = 256 * 1024
DIFF_PATHS_MAX = 200
"""Differences that are listed of one JSON file."""
DIFF_VALUE_CHARS = 200

KIND: Literal["bundle"] = "bundle"


# History -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HistoryVersion:
    """A version that was published once; `size` is None unless its bytes were summed."""

    row: BundleVersion
    replicas: frozenset[Replica]
    tombstone: Tombstone | None
    size: int | None

    @property
    def is_live(self) -> bool:
        """Whether readers of any replica see it."""
        return self.tombstone is None and bool(self.replicas)


def list_history(
    stores: Stores,
    uuid: str,
    *,
    before: str | None = None,
    limit: int,
    with_sizes: bool = False,
) -> list[HistoryVersion]:
    """List the versions of a bundle, live and withdrawn, the latest first."""
    with stores.catalog.read() as tx:
        listed = bundle_versions.list_versions(tx, uuid, before=before, limit=limit)
        measured = [one.row.id for one in listed] if with_sizes else []
        sizes = bundle_versions.sum_bytes(tx, measured, max_entries=HISTORY_ENTRIES_MAX)
    return [
        HistoryVersion(one.row, one.replicas, one.tombstone, sizes.get(one.row.id))
        for one in listed
    ]


@dataclass(frozen=True, slots=True)
class BundleState:
    """What became of a bundle version that may be withdrawn, or be in another replica only.

    `row` is None after a purge.
    """

    state: Literal["live", "elsewhere", "withdrawn", "purged"]
    row: BundleVersion | None
    end: Tombstone | Purge | None = None


def find_state(stores: Stores, replica: Replica, uuid: str, version: str | None) -> BundleState:
    """Return the state of a version, by default the latest live one, else the latest.

    Raise NotFoundError if it was never published.
    """
    with stores.catalog.read() as tx:
        ident = versions.resolve_version(tx, KIND, replica, uuid, version)
        if ident is not None:
            return BundleState("live", bundles.get(tx, ident))
        purge = purges.find(tx, KIND, uuid, version or "") or purges.find(tx, KIND, uuid, "")
        if purge is not None:
            return BundleState("purged", None, purge)
        if version is None:
            known = bundle_versions.list_versions(tx, uuid, limit=1)
            row = known[0].row if known else None
        else:
            row = bundles.find(tx, FQID(uuid, version))
        if row is None or not row.published:
            name = uuid if version is None else f"{uuid}.{version}"
            raise NotFoundError(f"There is no bundle {name} in replica {replica}.")
        tombstone = versions.find_covering_tombstone(tx, KIND, *row.fqid)
    return BundleState("elsewhere" if tombstone is None else "withdrawn", row, tombstone)


# Differences of files ----------------------------------------------------------------------


class FileLine(NamedTuple):
    """A file of a bundle, as diffs compare it."""

    name: str
    uuid: str
    version: str
    indexed: int
    content_type: str
    sha256: str
    size: int

    @property
    def is_json(self) -> bool:
        """Whether its content is part of the metadata."""
        return bool(self.indexed) and self.content_type.lower().startswith("application/json")


class FileChange(NamedTuple):
    """A file that differs between two versions; `before` or `after` is None if it is absent."""

    before: FileLine | None
    after: FileLine | None

    @property
    def name(self) -> str:
        """Its name in the later version, or in the earlier one if it was removed."""
        line = self.after or self.before
        assert line is not None
        return line.name


@dataclass(frozen=True, slots=True)
class BundleDiff:
    """The differences of two versions: the first DIFF_LINES_MAX of each kind, by name.

    `counts` are those of all. A `renamed` file has the same bytes under another name; a `rewritten`
    one has the same bytes and name, but is another file or version, or has another type or flag.
    """

    before: BundleVersion
    after: BundleVersion
    changes: dict[str, list[FileChange]]
    counts: dict[str, int]
    metadata: list["MetadataDiff"]


def compare_versions(
    stores: Stores, replica: Replica, uuid: str, before: str, after: str
) -> BundleDiff:
    """Compare two live versions of a bundle; raise NotFoundError."""
    rows: list[BundleVersion] = []
    with stores.catalog.read() as tx:
        for version in (before, after):
            ident = versions.find_published(tx, KIND, replica, FQID(uuid, version))
            if ident is None:
                raise NotFoundError(f"There is no bundle {uuid}.{version} in replica {replica}.")
            rows.append(bundles.get(tx, ident))
        lines = bundle_versions.list_unshared_lines(tx, rows[0].id, rows[1].id)
    old, new = ([FileLine(*line) for line in side] for side in lines)
    found = compare_files(old, new)
    metadata = list(_compare_metadata(stores, replica, found["changed"]))
    return BundleDiff(
        rows[0],
        rows[1],
        {kind: changes[:DIFF_LINES_MAX] for kind, changes in found.items()},
        {kind: len(changes) for kind, changes in found.items()},
        metadata,
    )


def compare_files(
    before: Sequence[FileLine], after: Sequence[FileLine]
) -> dict[str, list[FileChange]]:
    """Return the files added, removed, changed, renamed and rewritten, each sorted by name."""
    old, new = ({line.name: line for line in side} for side in (before, after))
    both = sorted(old.keys() & new.keys())
    changed = [FileChange(old[name], new[name]) for name in both if old[name] != new[name]]
    gone: dict[str, list[FileLine]] = {}
    for name in sorted(old.keys() - new.keys(), reverse=True):
        gone.setdefault(old[name].sha256, []).append(old[name])
    added, renamed = list[FileChange](), list[FileChange]()
    for name in sorted(new.keys() - old.keys()):
        same = gone.get(new[name].sha256)
        if same:
            renamed.append(FileChange(same.pop(), new[name]))
        else:
            added.append(FileChange(None, new[name]))
    removed = sorted(
        (line for lines in gone.values() for line in lines), key=lambda line: line.name
    )
    return {
        "added": added,
        "removed": [FileChange(line, None) for line in removed],
        "changed": [one for one in changed if _sha256s(one)[0] != _sha256s(one)[1]],
        "renamed": renamed,
        "rewritten": [one for one in changed if _sha256s(one)[0] == _sha256s(one)[1]],
    }


def _sha256s(change: FileChange) -> tuple[str | None, str | None]:
    before, after = change
    return (before and before.sha256), (after and after.sha256)


# Differences of metadata -------------------------------------------------------------------


class PathChange(NamedTuple):
    """A value that differs; `before` or `after` is None if the path is absent there."""

    path: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class MetadataDiff:
    """The differences of a JSON file, or why they are not shown."""

    name: str
    changes: list[PathChange]
    is_complete: bool = True
    problem: str | None = None


def _compare_metadata(
    stores: Stores, replica: Replica, changed: Sequence[FileChange]
) -> Iterator[MetadataDiff]:
    shown = 0
    for before, after in changed:
        if before is None or after is None or not (before.is_json and after.is_json):
            continue
        if shown == DIFF_JSON_FILES_MAX:
            return
        shown += 1
        if max(before.size, after.size) > DIFF_JSON_BYTES_MAX:
            problem = f"Larger than {DIFF_JSON_BYTES_MAX // 1024} KiB; not compared."
            yield MetadataDiff(after.name, [], problem=problem)
            continue
        try:
            values = [
                documents.parse_metadata(failover.read_blob(stores, replica, line.sha256))[0]
                for line in (before, after)
            ]
        except (DomainError, documents.UnreadableMetadata) as error:
            yield MetadataDiff(after.name, [], problem=f"Not compared: {error}.")
            continue
        changes = compare_values(*values, limit=DIFF_PATHS_MAX + 1)
        is_complete = len(changes) <= DIFF_PATHS_MAX
        yield MetadataDiff(after.name, changes[:DIFF_PATHS_MAX], is_complete)


def compare_values(before: Any, after: Any, *, limit: int) -> list[PathChange]:
    """Return at most `limit` paths whose values differ, in order; items compare by index."""
    changes: list[PathChange] = []
    # Iterative, as metadata may be nested deeply.
    waiting: list[tuple[str, Any, Any]] = [("", before, after)]
    while waiting and len(changes) < limit:
        path, old, new = waiting.pop()
        if type(old) is type(new) and isinstance(old, dict | list):
            waiting += reversed(list(_pair_children(path, old, new)))
        elif old is _ABSENT or new is _ABSENT or type(old) is not type(new) or old != new:
            changes.append(PathChange(path or "(whole file)", _shorten(old), _shorten(new)))
    return changes


_ABSENT = object()


def _pair_children(path: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            name = f"{path}.{key}" if path else str(key)
            yield name, old.get(key, _ABSENT), new.get(key, _ABSENT)
        return
    for place in range(max(len(old), len(new))):
        yield (
            f"{path}[{place}]",
            old[place] if place < len(old) else _ABSENT,
            new[place] if place < len(new) else _ABSENT,
        )


def _shorten(value: Any) -> str | None:
    if value is _ABSENT:
        return None
    text = json_codec.encode(value).decode(errors="replace")
    return text if len(text) <= DIFF_VALUE_CHARS else text[: DIFF_VALUE_CHARS - 1] + "…"
