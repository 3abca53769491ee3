"""The command `mirror`, and the HTTP client that reads the mirrored store."""

import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NoReturn, TextIO
from urllib.parse import quote, urlencode, urljoin, urlsplit

import click
import orjson

from auth.http_client import HttpClient
from auth.login.users import parse_user_email
from auth.tokens.issuance import administrator_email
from config import Settings
from ops.commands import open_stores
from ops.output import CommandOutput, prints_output
from pipelines.area_files import checksum_metadata
from pipelines.mirrors import MirroredFile, MirrorPlan, follow_page
from storage.errors import DomainError, Invalid, NotFoundError, SourceChanged, Unavailable
from storage.model import CHECKSUM_NAMES, FQID, REPLICAS, Checksums, Replica
from storage.protocols import BlobInfo

log = logging.getLogger(__name__)

TIMEOUT_S = 60.0
"""Longest silence of the mirrored store."""
WAIT_S = 20
"""How long the mirrored store waits for news before it answers that there is none."""
RETRY_S = 15.0
"""Pause of `--follow` after an error."""
MAX_JSON_BYTES = 64 * 1024 * 1024
READ_ATTEMPTS = 5
"""Requests for a file that the mirrored store is still copying."""
_NEXT = re.compile(r'<([^>]+)>\s*;\s*rel="next"')


@dataclass(frozen=True)
class HttpStore:
    """The mirrored store over HTTP; see MirroredStore."""

    url: str
    replica: Replica
    token: str = field(repr=False)
    wait_s: int
    http: HttpClient = field(default_factory=lambda: HttpClient(TIMEOUT_S))

    def read_events(self, cursor: str) -> tuple[Sequence[Mapping[str, Any]], str]:
        """See MirroredStore; after the other store was restored, all events come again."""
        feed = self._make_url("events/feed", after=cursor)
        try:
            found, _ = self._read_json(feed, {"Prefer": f"wait={self.wait_s}"})
        except Invalid:
            if not cursor:
                raise
            found, _ = self._read_json(self._make_url("events/feed", after=""))
        return found["events"], found["cursor"]

    def read_bundle(self, fqid: FQID) -> Mapping[str, Any]:
        """See MirroredStore."""
        url: str | None = self._make_url(f"bundles/{fqid.uuid}", version=fqid.version)
        entries: list[Any] = []
        bundle: dict[str, Any] = {}
        while url:
            page, url = self._read_json(url)
            bundle = page["bundle"]
            entries += bundle["files"]
        return {**bundle, "files": entries}

    def file_url(self, fqid: FQID) -> str:
        """See MirroredStore."""
        return self._make_url(f"files/{fqid.uuid}", version=fqid.version)

    def read_file(self, fqid: FQID) -> MirroredFile:
        """See MirroredStore."""
        url = self.file_url(fqid)
        with self.http.stream("HEAD", url, self._authorize(url)) as response:
            if response.status != 200:
                _raise_status(url, response.status)
            headers = response.headers
        sums = Checksums(
            **{name: headers[f"x-store-{name.replace('_', '-')}"] for name in CHECKSUM_NAMES}
        )
        info = BlobInfo(
            key=str(fqid),
            size=int(headers["x-store-size"]),
            pin=sums.sha256,
            content_type=headers["x-store-content-type"],
            metadata=checksum_metadata(sums),
        )
        return MirroredFile(info, int(headers["x-store-creator-uid"]))

    def open(self, url: str) -> "HttpFile":
        """See Sources."""
        return HttpFile(self, url)

    def list(self, url: str) -> Iterator[BlobInfo]:
        """See Sources; stores have no prefixes."""
        raise Invalid(f"source: must be s3://bucket/prefix or gs://bucket/prefix (got {url})")

    def resolve_area_key(self, url: str) -> str | None:
        """See Sources."""
        return None

    def is_own_bucket(self, url: str) -> bool:
        """See Sources."""
        return False

    def read_content(self, url: str, headers: Mapping[str, str]) -> Iterator[bytes]:
        """Yield a file's bytes from where the store redirects to."""
        for _ in range(READ_ATTEMPTS):
            with self.http.stream("GET", url, {**headers, **self._authorize(url)}) as response:
                if response.status in (200, 206):
                    yield from response.blocks
                    return
                if response.status not in (301, 302, 303, 307, 308):
                    _raise_status(url, response.status)
                wait_s = min(float(response.headers.get("retry-after") or 0), TIMEOUT_S)
                url = urljoin(url, response.headers["location"])
            time.sleep(wait_s)
        raise Unavailable(f"{url.partition('?')[0]} redirects too often")

    def _make_url(self, path: str, **query: str) -> str:
        return f"{self.url}/v1/{quote(path)}?{urlencode({'replica': self.replica, **query})}"

    def _authorize(self, url: str) -> dict[str, str]:
        """Return the token for requests to the store's API, and for no other address."""
        is_api = self.token and url.startswith(f"{self.url}/v1/")
        return {"Authorization": f"Bearer {self.token}"} if is_api else {}

    def _read_json(
        self, url: str, headers: Mapping[str, str] | None = None
    ) -> tuple[dict[str, Any], str | None]:
        """Return the object of a response, and the URL of the next page."""
        with self.http.stream("GET", url, {**(headers or {}), **self._authorize(url)}) as response:
            if response.status not in (200, 206):
                _raise_status(url, response.status)
            body = bytearray()
            for block in response.blocks:
                body += block
                if len(body) > MAX_JSON_BYTES:
                    raise Unavailable(f"{url.partition('?')[0]} answers with too many bytes")
            following = _NEXT.search(response.headers.get("link", ""))
        return orjson.loads(body), following and following[1]


@dataclass(frozen=True)
class HttpFile:
    """A file of the mirrored store; see SourceObject."""

    store: HttpStore
    url: str

    def head(self) -> BlobInfo:
        """See SourceObject; the mirror reads the metadata before."""
        raise Invalid("source: is read by the command `mirror` only")

    def read(self, pin: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """See SourceObject; versions never change, so the pin needs no check."""
        if length is not None:
            raise SourceChanged("Files of a mirrored store are read to their end.")
        return self.store.read_content(self.url, {"Range": f"bytes={start}-"} if start else {})


def _raise_status(url: str, status: int) -> NoReturn:
    where = f"{url.partition('?')[0]} answers {status}"
    if status in (404, 410):
        raise NotFoundError(where)
    if status == 400:
        raise Invalid(where)
    raise Unavailable(where)


@click.command()
@click.argument("url")
@click.option("--token", default="", help="Bearer token of its API.")
@click.option("--token-file", type=click.File(), help="A file with that token; - is the input.")
@click.option("--replica", type=click.Choice(REPLICAS), default="aws", show_default=True)
@click.option("--prefix", default="", help="Only bundles whose uuids begin with it.")
@click.option("--owner", help="E-mail address of the owner; by default the administrator.")
@click.option("--follow/--once", help="Go on for ever, or end when all events were applied.")
@click.pass_obj
@prints_output
def mirror(
    settings: Settings,
    url: str,
    token: str,
    token_file: TextIO | None,
    replica: Replica,
    prefix: str,
    owner: str | None,
    follow: bool,
) -> CommandOutput:
    """Copy another store and follow its events.

    Files and bundles keep uuid and version, and every byte is verified. Deletions follow. The place
    in the feed is kept in the catalog: repeat the command to go on. Set STORE_MIRROR_OF in this
    store, so that its API refuses writes.
    """
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise click.BadParameter("must be an http or https URL", param_hint="URL")
    email = parse_user_email(owner or administrator_email(settings))
    plan = MirrorPlan(url.rstrip("/"), replica, email, prefix.lower())
    token = token_file.read().strip() if token_file else token
    source = HttpStore(plan.url, replica, token, WAIT_S if follow else 0)
    totals = {"bundles": 0, "deleted": 0}
    stores = open_stores(settings)
    with closing(stores.catalog):
        while True:
            try:
                counts = follow_page(stores, source, plan)
            except DomainError as error:
                if not follow:
                    raise
                log.warning("%s; again in %g s", error.detail, RETRY_S)
                time.sleep(RETRY_S)
                continue
            if counts is None and not follow:
                break
            totals = {name: totals[name] + (counts or {}).get(name, 0) for name in totals}
    return CommandOutput(
        totals, f"{totals['bundles']} bundle versions copied, {totals['deleted']} deleted"
    )
