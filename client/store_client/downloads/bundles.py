"""Download a bundle, all bundles of a search, or a collection with all that it links to.

    <download_dir>/<uuid>.<version>/collection.json           the collection's document
                                    bundles/<fqid>/<name>     each bundle in its directory
                                    files/<fqid>              files that are linked directly
                                    fragments/<fqid>.….json   fragments of JSON
                                    collections/<fqid>/       each other collection, the same within

Linked collections of any depth are placed side by side under the first one, each once. So cycles
end, and paths stay short.
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from store_client.atomic_files import write_atomically
from store_client.downloads import listing
from store_client.downloads.job import DownloadJob, open_job
from store_client.downloads.listing import BundleListing, StoreCalls
from store_client.downloads.options import (
    BundleReport,
    CollectionReport,
    DownloadOptions,
    Filters,
    SearchReport,
)
from store_client.errors import Damaged, Misused, name_os_errors
from store_client.identifiers import check_uuid, parse_version
from store_client.names import safe_path
from store_client.transfer.engine import Task
from store_client.transfer.streams import RemoteFile

ALL = Filters()


def download(
    store: StoreCalls,
    bundle_uuid: str,
    *,
    options: DownloadOptions,
    version: str = "",
    filters: Filters = ALL,
) -> BundleReport:
    """Download the files of a bundle, by default of its latest version.

    Files go into the cache and are linked into the bundle's directory. Existing files are not
    fetched again, and an interrupted download resumes. Damaged if bytes are wrong, Unreachable if
    the failure quota of a file is used up.
    """
    filters.check()
    uuid = check_uuid(bundle_uuid, "bundle's uuid")
    if version:
        parse_version(version)
    with open_job(store, options) as running:
        listed = listing.list_bundle(store, options.replica, uuid, version=version)
        running.run(bundle_tasks(running, listed, filters, under=options.directory))
        return BundleReport(
            bundle_uuid=listed.uuid,
            version=listed.version,
            directory=str(options.directory / listed.fqid),
            counts=running.tally.counts(),
            dry_run=options.dry_run,
        )


def download_matches(
    store: StoreCalls,
    es_query: Mapping[str, Any],
    *,
    options: DownloadOptions,
    filters: Filters = ALL,
) -> SearchReport:
    """Download all bundles that match a search query now, each as `download`."""
    filters.check()
    pages = store.pages("post_search", replica=options.replica, es_query=es_query)
    # All pages first: a download may take longer than their tokens are valid.
    found = [str(hit["bundle_fqid"]) for page in pages for hit in page["results"]]
    return download_several(store, found, options=options, filters=filters)


def download_several(
    store: StoreCalls,
    names: Sequence[str],
    *,
    options: DownloadOptions,
    filters: Filters = ALL,
) -> SearchReport:
    """Download bundles by `UUID` or `UUID.VERSION`, each as `download`."""
    filters.check()
    with open_job(store, options) as running:
        for name in names:
            uuid, _, version = name.partition(".")
            listed = listing.list_bundle(store, options.replica, uuid, version=version)
            running.run(bundle_tasks(running, listed, filters, under=options.directory))
        return SearchReport(
            directory=str(options.directory),
            bundles=len(names),
            counts=running.tally.counts(),
            dry_run=options.dry_run,
        )


def bundle_tasks(
    running: DownloadJob, listed: BundleListing, filters: Filters, *, under: Path
) -> list[Task]:
    """A task for each file of the bundle that passes the filters."""
    wanted = [one for one in listed.files if filters.matches(one.name, indexed=one.indexed)]
    return running.file_tasks(wanted, safe_path(under, listed.fqid), listed=listed)


_PLAIN = re.compile(r"[a-z0-9_-]{1,80}")
_INDEX = re.compile(r"0|[1-9][0-9]*")


def extract_fragment(path: Path, pointer: str, name: str) -> bytes:
    """Extract the JSON fragment at a pointer; Damaged if there is none."""
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{name} is not JSON, so it has no fragments") from error
    try:
        found = resolve_pointer(value, pointer)
    except LookupError:
        raise Damaged(f"{name} has nothing at {pointer!r}") from None
    return json.dumps(found, ensure_ascii=False, indent=2).encode("utf-8", "surrogatepass") + b"\n"


def resolve_pointer(value: Any, pointer: str) -> Any:
    """Resolve a JSON Pointer in a value; LookupError if it leads nowhere."""
    if pointer and not pointer.startswith("/"):
        raise LookupError(pointer)
    for token in pointer.split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value[token]
        elif isinstance(value, list) and _INDEX.fullmatch(token) and len(token) < 10:
            value = value[int(token)]
        else:
            raise LookupError(pointer)
    return value


def fragment_name(fqid: str, pointer: str) -> str:
    """The file name of a fragment, derived from its pointer."""
    if not pointer:
        return f"{fqid}.json"
    said = quote(pointer.removeprefix("/").replace("/", "-"), safe="")
    if pointer.count("/") == 1 and _PLAIN.fullmatch(said):
        return f"{fqid}.{said}.json"
    # Others may look like this one when they are shortened, or where case makes no difference.
    return f"{fqid}.{said[:60]}.{hashlib.sha256(pointer.encode()).hexdigest()[:12]}.json"


def write_if_changed(path: Path, data: bytes) -> None:
    """Write a small file atomically, unless it is the same already."""
    with name_os_errors(f"write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.read_bytes() == data:
            return
    write_atomically(path, data)


def download_collection(
    store: StoreCalls, uuid: str, *, options: DownloadOptions, version: str = ""
) -> CollectionReport:
    """Download a collection, by default its latest version, with all that it links to.

    As `download`. A link to something that does not exist fails alone, and the rest is downloaded.
    """
    if version:
        parse_version(version)
    uuid = check_uuid(uuid, "collection's uuid")
    with open_job(store, options) as running:
        root = _fetch_collection(store, options.replica, uuid, version)
        fqid = _fqid(root)
        walking = _CollectionWalk(running, safe_path(options.directory, fqid))
        walking.seen.add(fqid)
        running.run([lambda: walking.expand(root, walking.root)])
        tally = running.tally
        return CollectionReport(
            uuid=str(root["uuid"]),
            version=str(root["version"]),
            directory=str(walking.root),
            collections=tally.get("collections"),
            bundles=tally.get("bundles"),
            fragments=tally.get("fragments"),
            counts=tally.counts(),
            dry_run=options.dry_run,
        )


@dataclass(frozen=True, slots=True)
class _CollectionWalk:
    """The download of one collection; `seen` are collections that have a directory."""

    job: DownloadJob
    root: Path
    seen: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def expand(self, collection: Mapping[str, Any], directory: Path) -> Iterable[Task]:
        """Write the collection's document, and return a task for each of its links."""
        if not self.job.options.dry_run:
            document = json.dumps(collection, ensure_ascii=False, indent=2).encode() + b"\n"
            write_if_changed(directory / "collection.json", document)
        return [self._link_task(item, directory) for item in collection["contents"]]

    def _link_task(self, item: Mapping[str, str], directory: Path) -> Task:
        kinds = {
            "bundle": self._bundle_tasks,
            "file": self._file_tasks,
            "collection": self._collection_tasks,
        }
        return partial(kinds.get(item["type"], self._fragment_tasks), item, directory)

    def _bundle_tasks(self, item: Mapping[str, str], directory: Path) -> Iterable[Task]:
        listed = listing.list_bundle(
            self.job.store, self.job.options.replica, item["uuid"], version=item["version"]
        )
        self.job.tally.add(bundles=1)
        return bundle_tasks(self.job, listed, ALL, under=directory / "bundles")

    def _file_tasks(self, item: Mapping[str, str], directory: Path) -> Iterable[Task]:
        wanted = self._find_file(item)
        return self.job.file_tasks([replace(wanted, name=_fqid(item))], directory / "files")

    def _collection_tasks(self, item: Mapping[str, str], _directory: Path) -> Iterable[Task]:
        fqid = _fqid(item)
        with self.lock:
            if fqid in self.seen:
                return []
            self.seen.add(fqid)
        found = _fetch_collection(
            self.job.store, self.job.options.replica, item["uuid"], item["version"]
        )
        self.job.tally.add(collections=1)
        return self.expand(found, safe_path(self.root, f"collections/{fqid}"))

    def _fragment_tasks(self, item: Mapping[str, str], directory: Path) -> Iterable[Task]:
        pointer = item.get("path", "")
        wanted = self._find_file(item)
        self.job.tally.add(fragments=1)
        # The whole file has to come: it has a task like any other, and what follows takes it apart.
        coming = self.job.file_tasks([wanted])

        def cut() -> None:
            found = extract_fragment(self.job.fetch(wanted), pointer, wanted.name)
            place = safe_path(directory, f"fragments/{fragment_name(_fqid(item), pointer)}")
            write_if_changed(place, found)

        return [cut] if coming else []

    def _find_file(self, item: Mapping[str, str]) -> RemoteFile:
        return listing.find_file(
            self.job.store, self.job.options.replica, item["uuid"], version=item["version"]
        )


def _fetch_collection(
    store: StoreCalls, replica: str, uuid: str, version: str
) -> Mapping[str, Any]:
    found = store.call("get_collection", uuid=uuid, replica=replica, version=version or None)
    try:
        listing.check_identity(found)
        for item in found["contents"]:
            listing.check_identity(item)
    except (KeyError, TypeError, Misused) as error:
        raise Damaged(f"the answer about collection {uuid} is not a collection") from error
    return dict(found)


def _fqid(item: Mapping[str, Any]) -> str:
    return f"{item['uuid']}.{item['version']}"
