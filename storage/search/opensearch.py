"""OpenSearch as the search engine: one index a replica and generation, behind an alias."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from config.settings import SettingsError
from storage.errors import NotFound, Unavailable
from storage.model import FQID
from storage.protocols import IndexedDocument, Refusal, SearchPage
from storage.query.clauses import Clause
from storage.search import opensearch_bulk as bulk
from storage.search.opensearch_client import Answer, Engine, Place
from storage.search.opensearch_combined import ALL, every
from storage.search.opensearch_documents import Prepared, prepare, settings, stub
from storage.search.opensearch_generations import GenerationIndices, Generations, not_building
from storage.search.opensearch_queries import live
from storage.search.opensearch_searching import BY_UUID, NEWEST, Page, ask, hit
from storage.search.pointers import place
from storage.search.verbatim import RefusedError

DEFAULT_PREFIX = "store"
PREFIX = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")
OPTIONS = ("shards", "ca")
PAGE = 1_000
# How often generations may come and go while one document is written or one search is made.
ROUNDS = 5


def open_index(
    url: str, replica: str, *, time_limit_s: float, field_limit: int
) -> "OpenSearchIndex":
    """The index that a URL names; nothing is asked of the engine yet."""
    parts = urlsplit(url)
    options = _options(parts.query)
    prefix = parts.path.strip("/") or DEFAULT_PREFIX
    address = _address(parts)
    if address is None or not PREFIX.fullmatch(prefix):
        raise SettingsError("the search engine's URL is not http(s)://host:port/prefix")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    engine = Engine(Place(address, user, password, options.get("ca")), time_limit_s=time_limit_s)
    shards = int(options["shards"])
    return OpenSearchIndex(engine, f"{prefix}-{replica}", field_limit=field_limit, shards=shards)


def _address(parts: SplitResult) -> str | None:
    """Scheme, host and port, as far as they are good."""
    try:
        port = parts.port or (443 if parts.scheme == "https" else 9200)
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


def _options(query: str) -> dict[str, str]:
    given = {"shards": "1", **dict(parse_qsl(query, keep_blank_values=True))}
    unknown = sorted(given.keys() - {*OPTIONS})
    if unknown:
        raise SettingsError(f"unknown options of the search engine: {', '.join(unknown)}")
    if not given["shards"].isdecimal() or not 1 <= int(given["shards"]) <= 1024:
        raise SettingsError(f"shards must be a number from 1 to 1024: {given['shards']}")
    return given


class OpenSearchIndex:
    """One replica's documents; usable from any thread, and in a forked child."""

    def __init__(self, engine: Engine, base: str, *, field_limit: int, shards: int = 1) -> None:
        self._engine = engine
        self._base = base
        self._field_limit = field_limit
        fixed = settings(field_limit=field_limit, shards=shards)
        self._generations = GenerationIndices(engine, base, fixed)

    def write(self, documents: Sequence[IndexedDocument]) -> Sequence[Refusal]:
        """Store or replace, and return once all are searchable; refusals never stop the others."""
        prepared: list[Prepared] = []
        refusals: dict[tuple[str, str], Refusal] = {}
        for document in documents:
            try:
                prepared.append(prepare(document, field_limit=self._field_limit))
            except RefusedError as error:
                refusal = Refusal(document.uuid, document.version, str(error))
                refusals[refusal.uuid, refusal.version] = refusal
        for refusal in self._write(prepared) if prepared else ():
            refusals[refusal.uuid, refusal.version] = refusal
        return list(refusals.values())

    def _write(self, documents: Sequence[Prepared]) -> list[Refusal]:
        """Into every generation that there is at the end: one may have been begun meanwhile."""
        refusals: list[Refusal] = []
        done: set[str] = set()
        found = self._generations.seen()
        for _ in range(ROUNDS):
            for name in self._generations.written(found):
                if name not in done:
                    with suppress(NotFound):
                        refusals += bulk.put(self._engine, name, documents)
                        done.add(name)
            found = self._generations.existing()
            if done.issuperset(self._generations.written(found)):
                return refusals
        raise Unavailable("the generations of the search index change too fast", retry_after_s=5)

    def search(
        self, query: Clause, *, size: int, after: str | None = None, raw: bool = False
    ) -> SearchPage:
        """Live documents that match, newest version first, then by uuid."""
        page = Page(live(query), size + 1, NEWEST, None if after is None else place(after), raw)
        answer = self._searched(page)
        if answer is None:
            return SearchPage([], 0, None)
        found = answer["hits"]
        hits = [hit(each) for each in found[:size]]
        more = len(found) > size and bool(hits)
        return SearchPage(hits, int(answer["total"]["value"]), hits[-1].place if more else None)

    def get(self, uuid: str, version: str) -> bytes | None:
        """The verbatim live document, or None."""
        query = every([{"term": {"live": True}}, {"ids": {"values": [f"{uuid}.{version}"]}}])
        answer = self._searched(Page(query, 1, NEWEST, raw=True))
        return hit(answer["hits"][0]).document if answer and answer["hits"] else None

    def held(self) -> Iterator[FQID]:
        """What is there, stubs too, by uuid, then version; a page at a time."""
        page = Page(ALL, PAGE, BY_UUID)
        while True:
            answer = self._searched(page)
            hits = answer["hits"] if answer else []
            yield from (FQID(*each["sort"]) for each in hits)
            if len(hits) < PAGE:
                return
            page = replace(page, start=tuple(hits[-1]["sort"]))

    def _searched(self, page: Page) -> Answer | None:
        """A page of what is searched now; None where there is no index."""
        for _ in range(ROUNDS):
            name = self._generations.searched()
            if name is None:
                return None
            with suppress(NotFound):
                return ask(self._engine, name, page)
            # A rebuild dropped it since its name was read, or somebody did by hand.
            self._generations.read()
        raise Unavailable("the generations of the search index change too fast", retry_after_s=5)

    def begin_rebuild(self) -> str:
        """Open a new generation, or go on with the one that is being built; returns its name."""
        return self._generations.begin()

    def finish_rebuild(self, generation: str) -> None:
        """Search the new generation from now on and drop the old one."""
        found = self._generations.read()
        if generation == found.current:
            return
        if generation != found.building:
            raise not_building(generation)
        with suppress(NotFound):
            # Somebody else may finish it meanwhile.
            self._carry_stubs(found)
            self._generations.finish(found)
        if self._generations.read().current != generation:
            raise not_building(generation)

    def _carry_stubs(self, found: Generations) -> None:
        """Take over the stubs, so that no late write revives what they hide."""
        old, new = found.current, found.building
        if old is None or new is None or not self._generations.is_ours(old):
            return
        page = Page({"term": {"live": False}}, PAGE, BY_UUID)
        while True:
            hits = ask(self._engine, old, page)["hits"]
            bulk.put(self._engine, new, [stub(each) for each in hits])
            if len(hits) < PAGE:
                return
            page = replace(page, start=tuple(hits[-1]["sort"]))

    def ping(self) -> str:
        """The engine's name and version, and what is searched."""
        version = self._engine.request("GET", "/")["version"]
        name = str(version.get("distribution", "search engine")).replace("opensearch", "OpenSearch")
        return f"{name} {version['number']}, {self._generations.read().current or 'no index yet'}"

    def close(self) -> None:
        """Close the connections of this process."""
        self._engine.close()
