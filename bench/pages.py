"""Processor time of web pages in a large catalog: home, bundles small and large, their history."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256

from sqlalchemy import select, update

from api.app import SERVICES_KEY
from api.http.operation import Services
from bench import stores as bench_stores
from bench.harness import Figures, Measure
from bench.requests import DiscardedJobs, Environ, Site, answer, processor_ms, site
from bench.stores import VERSION, new_fqids
from config import process
from storage import keys
from storage.catalog.tables.versions import blobs, files
from storage.model import FQID, Principal
from web.app import create_site_app

METADATA_FILES = 5
VERSIONS = 3
SMALL = 20


@contextmanager
def prepare(
    requests: int = 10, bundles: int = 100_000, manifest: int = 20_000
) -> Iterator[Measure]:
    """Show each page so many times a round, to an anonymous visitor."""
    with site(files=manifest) as found:
        process.relax_gc()
        bench_stores.add_bundles(found.stores.catalog, new_fqids(bundles, salt="pages"))
        for number, file in enumerate(found.files[:METADATA_FILES]):
            _put_metadata(found, number, file)
        small, large = (_put_versions(found, count) for count in (SMALL, manifest))
        later = _name_version(VERSIONS - 1)
        paths = {
            "home": "/",
            f"bundle of {SMALL} files": f"/bundles/{small}",
            f"bundle of {manifest:,} files": f"/bundles/{large}",
            "  folder": f"/bundles/{large}?path=lane_3/",
            "  history": f"/bundles/{large}/versions",
            "  diff": f"/bundles/{large}/diff?from={_name_version(0)}&to={later}",
            "file": f"/files/{found.files[0].uuid}",
        }
        pages = _create_pages(found)
        environs = {name: _visit(pages, path) for name, path in paths.items()}
        for each in environs.values():
            processor_ms(pages, each, min(requests, 2))

        def measure() -> Figures:
            return {
                f"{name} ms": processor_ms(pages, each, requests) for name, each in environs.items()
            }

        yield measure


def _create_pages(found: Site) -> Site:
    """Return the site with an application that has the pages."""
    services: Services = found.app.extensions[SERVICES_KEY]
    pages = create_site_app(
        services.settings,
        found.stores,
        job_queue=DiscardedJobs(),
        verify=_refuse,
        auth=None,
        post_form=lambda _path, _form: {},
        clock=time.time,
    )
    return replace(found, app=pages)


def _refuse(_token: str) -> Principal:
    raise AssertionError("the visitors of this bench are anonymous")


def _visit(found: Site, path: str) -> Iterator[Environ]:
    environ = found.environ("GET", path, Accept="text/html")
    del environ["HTTP_AUTHORIZATION"]
    while True:
        yield dict(environ)


def _put_metadata(found: Site, number: int, file: FQID) -> None:
    """Make a file of the catalog a metadata file with real bytes."""
    fields = {f"field_{at}": {"text": f"value {at}", "ontology": f"T:{at}"} for at in range(50)}
    data = json.dumps({"number": number, "donors": [fields]}).encode()
    digest = sha256(data).hexdigest()
    found.stores.replicas["aws"].put(keys.blob_key(digest), data)
    with found.stores.catalog.write() as tx:
        row = tx.execute(select(files.c.id, files.c.blob_id).where(files.c.uuid == file.uuid)).one()
        tx.execute(
            update(blobs).where(blobs.c.id == row.blob_id).values(sha256=digest, size=len(data))
        )
        kind = "application/json"
        tx.execute(update(files).where(files.c.id == row.id).values(content_type=kind))


def _name_version(number: int) -> str:
    return VERSION.replace("000000Z", f"{number:06d}Z")


def _put_versions(found: Site, count: int) -> str:
    """Put versions of one bundle, each with a file less; return its uuid."""
    (fqid,) = new_fqids(1, salt=f"pages of {count}")
    for number in range(VERSIONS):
        entries = [
            {
                "uuid": file.uuid,
                "version": file.version,
                "name": f"sample_{at}.json" if at < METADATA_FILES else f"lane_{at % 8}/{at}.gz",
                "indexed": at < METADATA_FILES,
            }
            for at, file in enumerate(found.files[: count - number])
        ]
        path = f"/v1/bundles/{fqid.uuid}?version={_name_version(number)}&replica=aws"
        answer(found, found.environ("PUT", path, {"creator_uid": 1, "files": entries}))
    return fqid.uuid
