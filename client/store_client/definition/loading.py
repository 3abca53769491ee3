"""The definition as a store serves it now, or a copy that is young enough."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from store_client.configuration import Configuration
from store_client.definition.keeping import UNREADABLE, Copy, Kept, keep, kept
from store_client.definition.operation import Definition
from store_client.definition.reading import auth_url
from store_client.errors import NotFound, Refused, StoreError, Unreachable
from store_client.transport.limits import LARGEST_DEFINITION
from store_client.transport.session import Session

if TYPE_CHECKING:
    import httpx

log = logging.getLogger(__name__)

STALE_S = 3600.0
"""A copy of that age is compared with what is served."""


def load(
    session: Session,
    config: Configuration,
    *,
    now: Callable[[], float] = time.time,
    fresh: bool = False,
) -> Definition:
    """What a store and its authorization service can be asked; `fresh` asks them at any rate, and
    for the whole of it.

    StoreError when there is no copy and no answer, or something answers that is no store.
    """
    copy, moment = kept(config), now()
    if copy:
        session.met(session.base_url)
    if copy and not fresh and 0 <= moment - copy[1].fetched < STALE_S:
        found = copy[1]
    else:
        found = _renewed(session, config, copy, moment, whole=fresh)
    if found.auth_url:
        session.trust(found.auth_url)
    return found


def _renewed(
    session: Session,
    config: Configuration,
    before: tuple[Copy, Definition] | None,
    moment: float,
    *,
    whole: bool,
) -> Definition:
    copy = _untagged(before[0]) if before and whole else before[0] if before else None
    try:
        store = _fetched(session, f"{session.base_url}/v1", copy.store if copy else None)
    except NotFound as error:
        raise _no_store(session.base_url, str(error)) from error
    except (Unreachable, Refused) as error:
        if before is None:
            raise
        log.warning("%s; going by the definition of %s", error, _day(before[1].fetched))
        return before[1]
    found = Copy(store, _auth(session, store, copy.auth if copy else None), moment)
    keep(config, found)
    return found.definition()


def _untagged(copy: Copy) -> Copy:
    """To be had anew, whatever is thought to be known."""
    auth = None if copy.auth is None else replace(copy.auth, etag="")
    return replace(copy, store=replace(copy.store, etag=""), auth=auth)


def _auth(session: Session, store: Kept, before: Kept | None) -> Kept | None:
    """Without it the store is still of use."""
    base = auth_url(store.document)
    if base is None:
        return None
    known = before if before and before.base == base else None
    try:
        return _fetched(session, base, known, needed=False)
    except StoreError as error:
        log.warning("the authorization service: %s", error)
        return known


def _fetched(session: Session, base: str, before: Kept | None, *, needed: bool = True) -> Kept:
    answer = session.ask(
        "GET",
        f"{base}/swagger.json",
        headers={"If-None-Match": before.etag} if before and before.etag else {},
        authorize=False,
        limit=LARGEST_DEFINITION,
        # Where there is a copy, or it can be done without, nobody waits for long.
        repeatable=needed and before is None,
    )
    if answer.status_code == 304 and before is not None:
        return before
    found = Kept(base, _document(answer, base), answer.headers.get("ETag", ""))
    try:
        Copy(found, None, 0.0).definition()
    except UNREADABLE as error:
        raise _no_store(base, f"its definition cannot be read ({error!r})") from error
    return found


def _document(answer: "httpx.Response", base: str) -> Any:
    try:
        found = answer.json()
    except (ValueError, RecursionError):
        found = None
    if answer.status_code != 200 or not isinstance(found, dict) or "paths" not in found:
        kind = answer.headers.get("Content-Type", "nothing").partition(";")[0]
        raise _no_store(base, f"it answers {answer.status_code} with {kind}")
    return found


def _no_store(base: str, why: str) -> StoreError:
    return StoreError(
        f"{base.removesuffix('/v1')} is no data store: {why}",
        hint="give the base URL of one, without /v1: --url https://store.example",
    )


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))
