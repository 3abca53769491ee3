"""The command `mirror`, and the HTTP client that reads the mirrored store."""

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import BinaryIO, NoReturn, TypeVar
from urllib.parse import quote, urlencode, urljoin

import click

from auth.http_client import HttpClient
from config import Settings
from config.logs import configure_logging
from config.parsing import is_plain_url
from ops.commands import open_stores, parse_owner
from ops.options import PrintableText
from ops.output import CommandOutput, OutputTable, prints_output
from pipelines import mirrors
from pipelines.area_files import checksum_metadata
from pipelines.deliveries import parse_retry_after
from pipelines.mirror_answers import (
    BundleEntry,
    FeedPage,
    FileHeaders,
    MirroredBundle,
    SourceBundle,
    decode_answer,
    parse_headers,
)
from pipelines.mirrors import (
    MirroredFile,
    MirrorPlan,
    MirrorProgress,
    follow_page,
    normalize_store_url,
    retry_failed,
)
from pipelines.ssrf_guard import check_address_text
from storage.errors import DomainError, Invalid, NotFoundError, SourceChanged, Unavailable
from storage.metrics import MIRROR_EVENTS, serve_metrics, share_metrics
from storage.model import CHECKSUM_NAMES, FQID, REPLICAS, Checksums, Replica
from storage.protocols import BlobInfo
from storage.stores import Stores

log = logging.getLogger(__name__)

TIMEOUT_S = 60.0
"""Longest silence of the mirrored store."""
WAIT_S = 20
"""How long the mirrored store waits for news before it answers that there is none."""
IDLE_S = 1.0
"""Pause of `--follow` after no news, in case the mirrored store did not wait for them."""
PAUSES_S = (1.0, 15.0)
"""Pauses of `--follow` while the mirrored store is away: the first, doubled up to the last."""
RETRY_PAUSES_S = (5.0, 3600.0)
"""The same between attempts to apply the events that failed."""
RETRY_EVENTS = 20
"""Most failed events that `--follow` tries again before it reads new ones."""
MAX_JSON_BYTES = 64 * 1024 * 1024
READ_ATTEMPTS = 5
"""Requests for a file that the mirrored store is still copying."""
MAX_ENTRIES = 1_000_000
"""Most files of a bundle."""
T = TypeVar("T")
_PREFIX = re.compile(r"[0-9a-f-]{0,36}")
_NEXT = re.compile(r'<([^>]+)>\s*;\s*rel="next"')


@dataclass(frozen=True)
class HttpStore:
    """The mirrored store over HTTP; see MirroredStore."""

    url: str
    replica: Replica
    token: str = field(repr=False)
    wait_s: int
    http: HttpClient

    def check(self) -> None:
        """See MirroredStore."""
        self._read_json(self._make_url("events/feed", after=""), FeedPage, {"Prefer": "wait=0"})

    def read_events(self, cursor: str) -> FeedPage:
        """See MirroredStore; after the other store was restored, all events come again."""
        feed = self._make_url("events/feed", after=cursor)
        try:
            page, _ = self._read_json(feed, FeedPage, {"Prefer": f"wait={self.wait_s}"})
        except Invalid:
            if not cursor:
                raise
            page, _ = self._read_json(self._make_url("events/feed", after=""), FeedPage)
        return page

    def read_bundle(self, fqid: FQID) -> MirroredBundle:
        """See MirroredStore."""
        following: str | None = self._make_url(f"bundles/{fqid.uuid}", version=fqid.version)
        entries: list[BundleEntry] = []
        creator_uid = 0
        while following:
            url = following
            answer, following = self._read_json(url, SourceBundle)
            creator_uid = answer.bundle.creator_uid
            entries += answer.bundle.files
            if len(entries) > MAX_ENTRIES or (following and not answer.bundle.files):
                raise Unavailable(f"{_without_query(url)} answers with too many pages")
        return MirroredBundle(creator_uid, entries)

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
        names = {
            name: f"x-store-{name.replace('_', '-')}" for name in FileHeaders.__struct_fields__
        }
        values = {name: headers[header] for name, header in names.items() if header in headers}
        found = parse_headers(_without_query(url), values)
        sums = Checksums(**{name: getattr(found, name) for name in CHECKSUM_NAMES})
        info = BlobInfo(
            key=str(fqid),
            size=found.size,
            pin=sums.sha256,
            content_type=found.content_type,
            metadata=checksum_metadata(sums),
        )
        return MirroredFile(info, found.creator_uid)

    def open(self, url: str) -> "HttpFile":
        """See Sources."""
        return HttpFile(self, url)

    def list(self, url: str) -> Iterator[BlobInfo]:
        """See Sources; a store has no prefixes."""
        raise NotImplementedError

    def resolve_area_key(self, url: str) -> str | None:
        """See Sources."""
        return None

    def is_own_bucket(self, url: str) -> bool:
        """See Sources."""
        return False

    def read_content(self, url: str, headers: Mapping[str, str]) -> Iterator[bytes]:
        """Yield a file's bytes from where the store redirects to; the guard checks each address."""
        for _ in range(READ_ATTEMPTS):
            with self.http.stream("GET", url, {**headers, **self._authorize(url)}) as response:
                if response.status in (200, 206):
                    yield from response.blocks
                    return
                if response.status not in (301, 302, 303, 307, 308):
                    _raise_status(url, response.status)
                retry_after = parse_retry_after(
                    response.headers.get("retry-after"), now_us=time.time_ns() // 1000
                )
                url = _find_target(url, response.headers.get("location", ""))
            time.sleep(max(0.0, min(retry_after or 0.0, TIMEOUT_S)))
        raise Unavailable(f"{_without_query(url)} redirects too often")

    def _make_url(self, path: str, **query: str) -> str:
        return f"{self.url}/v1/{quote(path)}?{urlencode({'replica': self.replica, **query})}"

    def _authorize(self, url: str) -> dict[str, str]:
        """Return the token for requests to the store's API, and for no other address."""
        is_api = self.token and url.startswith(f"{self.url}/v1/")
        return {"Authorization": f"Bearer {self.token}"} if is_api else {}

    def _read_json(
        self, url: str, expected: type[T], headers: Mapping[str, str] | None = None
    ) -> tuple[T, str | None]:
        """Return the object of a response, and the URL of the next page."""
        with self.http.stream("GET", url, {**(headers or {}), **self._authorize(url)}) as response:
            if response.status not in (200, 206):
                _raise_status(url, response.status)
            body = bytearray()
            for block in response.blocks:
                body += block
                if len(body) > MAX_JSON_BYTES:
                    raise Unavailable(f"{_without_query(url)} answers with too many bytes")
            link = _NEXT.search(response.headers.get("link", ""))
        if link and not link[1].startswith(f"{self.url}/v1/"):
            raise Unavailable(
                f"{_without_query(url)} continues at {_without_query(link[1])[:200]}, which does"
                f" not begin with {self.url}/v1/"
            )
        return decode_answer(_without_query(url), body, expected), link and link[1]


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


def _find_target(url: str, location: str) -> str:
    """Return where a redirect leads; Unavailable if that is no URL, or not encrypted any more."""
    try:
        target = urljoin(url, location)
    except ValueError:
        target = ""
    is_downgrade = url.startswith("https:") and not target.startswith("https:")
    if not location or is_downgrade or not is_plain_url(target):
        raise Unavailable(f"{_without_query(url)} redirects to no address that can be read")
    return target


def _without_query(url: str) -> str:
    """Return what messages may name: the query of a presigned URL is a secret."""
    return url.partition("?")[0]


def _raise_status(url: str, status: int) -> NoReturn:
    where = f"{_without_query(url)} answers {status}"
    if status == 401:
        where += " (it may want a token: --token-file)"
    if status in (404, 410):
        raise NotFoundError(where)
    if status == 400:
        raise Invalid(where)
    raise Unavailable(where)


@click.command()
@click.argument("url")
@click.option("--token", default="", help="Bearer token of its API.")
@click.option("--token-file", type=click.File("rb"), help="A file with that token; - is the input.")
@click.option("--replica", type=click.Choice(REPLICAS), default="aws", show_default=True)
@click.option("--prefix", default="", help="Only bundles whose uuids begin with it.")
@click.option(
    "--owner",
    type=PrintableText(),
    help="E-mail address of the owner; by default the administrator.",
)
@click.option("--follow/--once", help="Go on for ever, or end when all events were applied.")
@click.option("--list-failed", is_flag=True, help="Only list the events that were not applied.")
@click.option("--forget", is_flag=True, help="End this mirror: forget its place and its failures.")
@click.pass_obj
@prints_output
def mirror(
    settings: Settings,
    url: str,
    token: str,
    token_file: BinaryIO | None,
    replica: Replica,
    prefix: str,
    owner: str | None,
    follow: bool,
    list_failed: bool,
    forget: bool,
) -> CommandOutput:
    """Copy another store and follow its events.

    Files and bundles keep uuid and version, and every byte is verified. Deletions follow. The place
    in the feed is kept in the catalog: repeat the command to go on. STORE_MIRROR_OF of this store
    must be the same URL, so that its API refuses writes.
    """
    url = _check_url(settings, url)
    if not _PREFIX.fullmatch(prefix.lower()):
        raise click.BadParameter("must be the beginning of a uuid", param_hint="--prefix")
    if forget and (follow or list_failed):
        raise click.UsageError("--forget cannot be used with --follow or --list-failed.")
    if settings.read_only and not list_failed:
        raise Unavailable("STORE_READ_ONLY is set.", code="read_only")
    plan = MirrorPlan(url, replica, parse_owner(settings, owner), prefix.lower())
    token = _check_token(
        token_file.read() if token_file else token.encode(errors="surrogateescape")
    )
    http = HttpClient(
        TIMEOUT_S,
        check_address=None if settings.allow_private_callbacks else check_address_text,
    )
    source = HttpStore(plan.url, replica, token, WAIT_S if follow else 0, http)
    follow = follow and not list_failed
    if follow:
        configure_logging(settings.log_level, "mirror", settings.log_format, os.environ)
        share_metrics(settings.metrics_folder, "mirror")
        serve_metrics(settings.host, settings.metrics_port)
    stores = open_stores(settings)
    with closing(stores.catalog):
        if forget:
            return _forget(stores, plan)
        if follow:
            _follow(stores, source, plan)
        pages = [] if list_failed else _apply_all(stores, source, plan)
        return _report_pages(stores, plan, pages)


def _check_token(text: bytes) -> str:
    """Return the token without white space around it; the message of an error is without it."""
    token = text.strip().decode(errors="replace")
    if not (token.isascii() and token.isprintable()):
        raise click.BadParameter(
            "must be one line of printable ASCII characters", param_hint="--token, --token-file"
        )
    return token


def _check_url(settings: Settings, url: str) -> str:
    """Return the normal spelling of the URL that STORE_MIRROR_OF names; raise UsageError."""
    if not is_plain_url(url) or set("?#") & set(url):
        raise click.BadParameter("must be an http or https URL", param_hint="URL")
    url = normalize_store_url(url)
    if url in map(normalize_store_url, (settings.site_url, settings.internal_url)):
        raise click.BadParameter("is this store itself", param_hint="URL")
    if not settings.mirror_of or normalize_store_url(settings.mirror_of) != url:
        raise click.UsageError(
            f"STORE_MIRROR_OF must be {url}: deletions of that store are applied here, so"
            " this store must refuse other writes."
        )
    return url


def _forget(stores: Stores, plan: MirrorPlan) -> CommandOutput:
    mirrors.forget_mirror(stores, plan)
    value = {"url": plan.url, "replica": plan.replica, "prefix": plan.prefix}
    bundles = f"bundles that begin with {plan.prefix}" if plan.prefix else "all bundles"
    return CommandOutput(value, f"Forgot the mirror of {bundles}, replica {plan.replica}.")


def _apply_all(stores: Stores, source: HttpStore, plan: MirrorPlan) -> list[MirrorProgress]:
    """Apply the events that failed, then the new ones to the last."""
    pages = [retry_failed(stores, source, plan)]
    while page := follow_page(stores, source, plan):
        pages.append(page)
    return pages


def _report_pages(
    stores: Stores, plan: MirrorPlan, pages: Sequence[MirrorProgress]
) -> CommandOutput:
    bundles, deleted = sum(one.bundles for one in pages), sum(one.deleted for one in pages)
    failed = mirrors.list_failed(stores, plan)
    return CommandOutput(
        {
            "bundles": bundles,
            "deleted": deleted,
            "failures": OutputTable(
                "Not applied",
                ("event", "bundle", "reason"),
                [(one.event_type, one.bundle, one.reason) for one in failed],
                hidden_if_empty=True,
            ),
        },
        f"{bundles} bundle versions copied, {deleted} deleted",
        error=f"{len(failed)} events were not applied" if failed else "",
    )


@dataclass
class Pauses:
    """Pauses that double up to a limit, until one is reset."""

    first_s: float
    most_s: float
    next_s: float = 0.0

    def take(self) -> float:
        """Return the next pause in seconds."""
        pause_s = max(self.next_s, self.first_s)
        self.next_s = min(2 * pause_s, self.most_s)
        return pause_s

    def reset(self) -> None:
        """Begin again with the shortest pause."""
        self.next_s = 0.0


@dataclass
class RetrySchedule:
    """When `--follow` tries failed events again: some at a time, and pauses after all of them."""

    pauses: Pauses
    due_at: float = field(default_factory=time.monotonic)
    left: int = 0
    """Events that are still to be tried before the next pause."""

    def run_turn(self, stores: Stores, source: HttpStore, plan: MirrorPlan) -> None:
        """Apply some events again if they are due; after an error, go on after the next pause."""
        if not self.left and time.monotonic() < self.due_at:
            return
        left, self.left = self.left, 0
        try:
            left = left or len(mirrors.list_failed(stores, plan))
            _log_progress(retry_failed(stores, source, plan, RETRY_EVENTS))
            self.left = max(0, left - RETRY_EVENTS)
        except DomainError as error:
            log.warning("%s; events that failed are tried again later", error.detail)
        if not self.left:
            self.pause()

    def pause(self) -> None:
        """Begin the next pause."""
        self.due_at = time.monotonic() + self.pauses.take()


def _follow(stores: Stores, source: HttpStore, plan: MirrorPlan) -> NoReturn:
    """Apply events as they come, and those that failed again and again, for ever.

    A page of the feed is read before each attempt, so that no event that fails delays the others.
    """
    pauses, retries = Pauses(*PAUSES_S), RetrySchedule(Pauses(*RETRY_PAUSES_S))
    log.info("follows replica %s of %s", plan.replica, plan.url)
    while True:
        try:
            page = follow_page(stores, source, plan)
        except DomainError as error:
            pause_s = pauses.take()
            log.warning("%s; again in %g s", error.detail, pause_s)
            time.sleep(pause_s)
            continue
        pauses.reset()
        if page is None:
            time.sleep(IDLE_S)
        else:
            _log_progress(page)
            if page.failed:
                retries.pauses.reset()
                retries.pause()
        retries.run_turn(stores, source, plan)


def _log_progress(progress: MirrorProgress) -> None:
    """Log and count what became of some events."""
    MIRROR_EVENTS.labels("copied").inc(progress.bundles)
    MIRROR_EVENTS.labels("deleted").inc(progress.deleted)
    MIRROR_EVENTS.labels("failed").inc(len(progress.failed))
    for one in progress.failed:
        log.warning(
            "%s %s is not applied, and is tried again: %s", one.event_type, one.bundle, one.reason
        )
    if progress.bundles or progress.deleted:
        log.info("%d bundle versions copied, %d deleted", progress.bundles, progress.deleted)
