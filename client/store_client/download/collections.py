"""Download a collection, and all that it leads to, into a tree of directories.

    <download_dir>/<uuid>.<version>/collection.json           as the store tells it
                                    bundles/<fqid>/<name>     each bundle in its directory
                                    files/<fqid>              files that are linked by themselves
                                    fragments/<fqid>.….json   fragments of JSON
                                    collections/<fqid>/       each other collection, the same within

Collections that collections lead to, however deep, lie side by side under the first one, each once:
so circles come to an end, and no path is longer than it has to be.
"""

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from store_client.download import bundles, entries, fragments
from store_client.download.bundles import ALL
from store_client.download.entries import Store
from store_client.download.job import Job, job
from store_client.download.options import Options, checked_uuid
from store_client.download.parallel import Task
from store_client.download.reports import CollectionReport
from store_client.errors import Damaged, Misused
from store_client.names import safe_path
from store_client.versions import parse_version


def download_collection(
    store: Store, uuid: str, *, options: Options, version: str = ""
) -> CollectionReport:
    """Bring a collection, its latest version when none is named, with all that it links to.

    As `download`; what a link leads to and is not there (any more) fails alone, and the rest
    comes all the same.
    """
    if version:
        parse_version(version)
    named = {"version": version} if version else {}
    uuid = checked_uuid(uuid, "collection's uuid")
    with job(store, options) as running:
        root = _read(store, options.replica, uuid, named)
        fqid = _fqid(root)
        walking = _Walking(running, safe_path(options.directory, fqid))
        walking.seen.add(fqid)
        running.run([lambda: walking.lay(root, walking.root)])
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
class _Walking:
    """One collection and what it leads to; `seen` are collections that have their place."""

    job: Job
    root: Path
    seen: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def lay(self, collection: Mapping[str, Any], directory: Path) -> Iterable[Task]:
        """Write what it says of itself, and answer a task for each thing it links to."""
        if not self.job.options.dry_run:
            told = json.dumps(collection, ensure_ascii=False, indent=2).encode() + b"\n"
            fragments.put(directory / "collection.json", told)
        return [self._task(item, directory) for item in collection["contents"]]

    def _task(self, item: Mapping[str, str], directory: Path) -> Task:
        match item["type"]:
            case "bundle":
                return lambda: self._bundle(item, directory)
            case "file":
                return lambda: self._file(item, directory)
            case "collection":
                return lambda: self._collection(item)
        return lambda: self._fragment(item, directory)

    def _bundle(self, item: Mapping[str, str], directory: Path) -> Iterable[Task]:
        listed = entries.bundle(
            self.job.store, self.job.options.replica, item["uuid"], version=item["version"]
        )
        self.job.tally.add(bundles=1)
        return bundles.tasks(self.job, listed, ALL, under=directory / "bundles")

    def _file(self, item: Mapping[str, str], directory: Path) -> Iterable[Task]:
        wanted = self._asked(item)
        return self.job.files([entries.named(wanted, _fqid(item))], directory / "files")

    def _collection(self, item: Mapping[str, str]) -> Iterable[Task]:
        fqid = _fqid(item)
        with self.lock:
            if fqid in self.seen:
                return []
            self.seen.add(fqid)
        found = _read(
            self.job.store, self.job.options.replica, item["uuid"], {"version": item["version"]}
        )
        self.job.tally.add(collections=1)
        return self.lay(found, safe_path(self.root, f"collections/{fqid}"))

    def _fragment(self, item: Mapping[str, str], directory: Path) -> Iterable[Task]:
        pointer = item.get("path", "")
        wanted = self._asked(item)
        self.job.tally.add(fragments=1)
        # The whole file has to come: it has a task like any other, and what follows takes it apart.
        coming = self.job.files([wanted])

        def cut() -> None:
            found = fragments.resolve(self.job.bring(wanted), pointer, wanted.name)
            place = safe_path(directory, f"fragments/{fragments.name_of(_fqid(item), pointer)}")
            fragments.put(place, found)

        return [cut] if coming else []

    def _asked(self, item: Mapping[str, str]) -> entries.Wanted:
        return entries.file(
            self.job.store, self.job.options.replica, item["uuid"], version=item["version"]
        )


def _read(store: Store, replica: str, uuid: str, named: Mapping[str, str]) -> Mapping[str, Any]:
    found = store.call("get_collection", uuid=uuid, replica=replica, **named)
    try:
        entries.named_safely(found)
        for item in found["contents"]:
            entries.named_safely(item)
    except (KeyError, TypeError, Misused) as error:
        raise Damaged(f"the answer about collection {uuid} is no collection") from error
    return dict(found)


def _fqid(item: Mapping[str, Any]) -> str:
    return f"{item['uuid']}.{item['version']}"
