"""Definitions that were fetched, in the user's cache: one file per store, made from anew when it
cannot be read."""

import json
import logging
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from store_client.configuration import Configuration
from store_client.definition.operation import Definition, Operation, Service
from store_client.definition.reading import auth_url, operations
from store_client.errors import StoreError
from store_client.private_files import read_json, remove, write_json

log = logging.getLogger(__name__)

FORM = 1
"""Of the file; another one is not read."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One document as it was served."""

    base: str
    document: Mapping[str, Any]
    etag: str = ""


@dataclass(frozen=True, slots=True)
class Copy:
    """Both documents, and when they were last known to be the served ones."""

    store: Kept
    auth: Kept | None
    fetched: float

    def definition(self) -> Definition:
        """What they say; KeyError, TypeError, AttributeError or ValueError for no definition."""
        found = _named(self.store, "store")
        for name, operation in _named(self.auth, "auth").items() if self.auth else ():
            own = f"auth_{name}" if name in found else name
            found[own] = replace(operation, name=own)
        info = self.store.document["info"]
        return Definition(
            operations=found,
            title=str(info.get("title", "")),
            about=str(info.get("description", "")),
            auth_url=auth_url(self.store.document),
            fetched=self.fetched,
            named=_every_name(found),
        )


UNREADABLE = (KeyError, TypeError, AttributeError, ValueError)
"""What reading raises for something that is no definition."""


def cached(config: Configuration) -> Definition | None:
    """What is known without asking; None when nothing is."""
    found = kept(config)
    return found and found[1]


def known(config: Configuration) -> bool:
    """Whether that store was there before."""
    return _path(config).exists()


def kept(config: Configuration) -> tuple[Copy, Definition] | None:
    """The copy on disk, if it is whole, and what it says."""
    found = read_json(_path(config))
    try:
        if found["form"] != FORM or found["url"] != config.url:
            return None
        auth = found["auth"]
        if found["sum"] != _sum(found["store"], auth):
            return None
        copy = Copy(
            store=_kept(found["store"]),
            auth=None if auth is None else _kept(auth),
            fetched=float(found["fetched"]),
        )
        return copy, copy.definition()
    except UNREADABLE:
        return None


def keep(config: Configuration, copy: Copy) -> None:
    """Put it there; a cache that cannot be written is only slower."""
    store, auth = _shown(copy.store), None if copy.auth is None else _shown(copy.auth)
    shown = {"form": FORM, "url": config.url, "fetched": copy.fetched, "sum": _sum(store, auth)}
    try:
        write_json(_path(config), {**shown, "store": store, "auth": auth})
    except StoreError as error:
        log.warning("%s; definitions are fetched each time", error)


def clear(config: Configuration) -> int:
    """Forget the definitions of all stores; how many files that were."""
    return sum(remove(path) for path in sorted(config.definitions.glob("*.json")))


def _sum(*documents: Any) -> int:
    """Tells that what was read is what was written; in parts it may still look like something."""
    return zlib.crc32(json.dumps(documents).encode())


def _path(config: Configuration) -> Path:
    return config.definitions / f"{config.key}.json"


def _kept(found: Mapping[str, Any]) -> Kept:
    return Kept(base=str(found["base"]), document=found["document"], etag=str(found["etag"]))


def _shown(one: Kept) -> dict[str, Any]:
    return {"base": one.base, "etag": one.etag, "document": one.document}


def _named(one: Kept, service: Service) -> dict[str, Operation]:
    return {found.name: found for found in operations(one.document, one.base, service)}


def _every_name(found: Mapping[str, Operation]) -> dict[str, Operation]:
    """Names as they are served come before those that are made of them."""
    named = {one.method_name: one for one in found.values()}
    named |= {one.command: one for one in found.values()}
    return named | dict(found)
