"""Fetch the API definition of a store, and cache it on disk."""

import json
import logging
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store_client.atomic_files import parse_json_object, read_json, remove_file, write_json
from store_client.configuration import Configuration
from store_client.definition.openapi import (
    ApiDefinition,
    ApiOperation,
    ServiceName,
    find_auth_url,
    parse_operations,
)
from store_client.errors import NotFound, Refused, StoreError, Unreachable
from store_client.http.retries import MAX_DEFINITION
from store_client.http.session import HttpSession

if TYPE_CHECKING:
    import httpx

log = logging.getLogger(__name__)


CACHE_FORMAT = 1
"""Of the file; another one is not read."""


@dataclass(frozen=True, slots=True)
class CachedDocument:
    """One document as it was served."""

    base: str
    document: Mapping[str, Any]
    etag: str = ""


@dataclass(frozen=True, slots=True)
class CachedDefinition:
    """Both documents, and when they were last validated."""

    store: CachedDocument
    auth: CachedDocument | None
    fetched: float

    def parse(self) -> ApiDefinition:
        """Parse the documents; raises one of UNREADABLE if invalid."""
        found = _parse_named(self.store, "store")
        for name, operation in _parse_named(self.auth, "auth").items() if self.auth else ():
            own = f"auth_{name}" if name in found else name
            found[own] = replace(operation, name=own)
        info = self.store.document["info"]
        return ApiDefinition(
            operations=found,
            title=str(info.get("title", "")),
            about=str(info.get("description", "")),
            auth_url=find_auth_url(self.store.document),
            fetched=self.fetched,
            # Served names win.
            by_name={
                **{one.method_name: one for one in found.values()},
                **{one.command: one for one in found.values()},
                **found,
            },
        )


UNREADABLE = (KeyError, TypeError, AttributeError, ValueError)
"""What reading raises for something that is no definition."""


def cached_definition(config: Configuration) -> ApiDefinition | None:
    """The cached definition; None if there is none."""
    found = read_cached(config)
    return found and found[1]


def is_cached(config: Configuration) -> bool:
    """Whether this store was used before."""
    return _cache_path(config).exists()


def read_cached(config: Configuration) -> tuple[CachedDefinition, ApiDefinition] | None:
    """Read the cache file if it is intact."""
    found = read_json(_cache_path(config))
    try:
        if found["form"] != CACHE_FORMAT or found["url"] != config.url:
            return None
        auth = found["auth"]
        if found["sum"] != _checksum(found["store"], auth):
            return None
        copy = CachedDefinition(
            store=CachedDocument(**found["store"]),
            auth=None if auth is None else CachedDocument(**auth),
            fetched=float(found["fetched"]),
        )
        return copy, copy.parse()
    except UNREADABLE:
        return None


def write_cached(config: Configuration, copy: CachedDefinition) -> None:
    """Write the cache file; a failure is only logged."""
    head = {"form": CACHE_FORMAT, "url": config.url}
    documents = asdict(copy)
    total = _checksum(documents["store"], documents["auth"])
    try:
        write_json(_cache_path(config), {**head, "sum": total, **documents})
    except StoreError as error:
        log.warning("%s; definitions are fetched each time", error)


def clear_cache(config: Configuration) -> int:
    """Delete the cached definitions of all stores; the number of files."""
    return sum(remove_file(path) for path in sorted(config.definitions.glob("*.json")))


def _checksum(*documents: Any) -> int:
    return zlib.crc32(json.dumps(documents).encode())


def _cache_path(config: Configuration) -> Path:
    return config.definitions / f"{config.key}.json"


def _parse_named(one: CachedDocument, service: ServiceName) -> dict[str, ApiOperation]:
    return {found.name: found for found in parse_operations(one.document, one.base, service)}


STALE_S = 3600.0
"""A copy of that age is compared with what is served."""


def load_definition(
    session: HttpSession,
    config: Configuration,
    *,
    now: Callable[[], float] = time.time,
    fresh: bool = False,
) -> ApiDefinition:
    """Load the definition of a store and its authorization service.

    `fresh` fetches it completely. StoreError if there is neither cache nor answer, or the server is
    not a store.
    """
    copy, moment = read_cached(config), now()
    if copy:
        session.mark_reachable(session.base_url)
    if copy and not fresh and 0 <= moment - copy[1].fetched < STALE_S:
        found = copy[1]
    else:
        found = _refresh(session, config, copy, moment, whole=fresh)
    if found.auth_url:
        session.trust(found.auth_url)
    return found


def _refresh(
    session: HttpSession,
    config: Configuration,
    before: tuple[CachedDefinition, ApiDefinition] | None,
    moment: float,
    *,
    whole: bool,
) -> ApiDefinition:
    copy = before[0] if before else None
    if copy and whole:
        # Without ETags it is fetched again.
        auth = copy.auth and replace(copy.auth, etag="")
        copy = replace(copy, store=replace(copy.store, etag=""), auth=auth)
    try:
        store = _fetch_document(session, f"{session.base_url}/v1", copy.store if copy else None)
    except NotFound as error:
        raise _not_a_store(session.base_url, str(error)) from error
    except (Unreachable, Refused) as error:
        if before is None:
            raise
        fetched = time.strftime("%Y-%m-%d %H:%M", time.localtime(before[1].fetched))
        log.warning("%s; using the cached definition of %s", error, fetched)
        return before[1]
    found = CachedDefinition(
        store, _fetch_auth_document(session, store, copy.auth if copy else None), moment
    )
    write_cached(config, found)
    return found.parse()


def _fetch_auth_document(
    session: HttpSession, store: CachedDocument, before: CachedDocument | None
) -> CachedDocument | None:
    """Fetch the authorization service's document; None if that fails."""
    base = find_auth_url(store.document)
    if base is None:
        return None
    known = before if before and before.base == base else None
    try:
        return _fetch_document(session, base, known, needed=False)
    except StoreError as error:
        log.warning("the authorization service: %s", error)
        return known


def _fetch_document(
    session: HttpSession, base: str, before: CachedDocument | None, *, needed: bool = True
) -> CachedDocument:
    answer = session.request(
        "GET",
        f"{base}/swagger.json",
        headers={"If-None-Match": before.etag} if before and before.etag else {},
        authorize=False,
        limit=MAX_DEFINITION,
        # Without retries where there is a cached copy, or it is not needed.
        repeatable=needed and before is None,
    )
    if answer.status_code == 304 and before is not None:
        return before
    found = CachedDocument(base, _parse_document(answer, base), answer.headers.get("ETag", ""))
    try:
        CachedDefinition(found, None, 0.0).parse()
    except UNREADABLE as error:
        raise _not_a_store(base, f"its definition cannot be read ({error!r})") from error
    return found


def _parse_document(answer: "httpx.Response", base: str) -> Any:
    found = parse_json_object(answer.content)
    if answer.status_code != 200 or found is None or "paths" not in found:
        kind = answer.headers.get("Content-Type", "nothing").partition(";")[0]
        raise _not_a_store(base, f"it answers {answer.status_code} with {kind}")
    return found


def _not_a_store(base: str, why: str) -> StoreError:
    return StoreError(
        f"{base.removesuffix('/v1')} is not a data store: {why}",
        hint="give the base URL of one, without /v1: --url https://store.example",
    )
