"""How people name objects: `UUID`, `UUID.VERSION`, the address of a page, or a DRS id."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from store_client.errors import Misused
from store_client.identifiers import is_uuid, parse_version

HINT = "give UUID, UUID.VERSION, or the URL of its page"
_IN_PATH = re.compile(
    r"/(?P<noun>bundle|file|collection|subscription|area)s?/(?P<name>[^/]+)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Reference:
    """An object of a store; version and replica are "" if the text does not say them."""

    uuid: str
    version: str = ""
    replica: str = ""

    def __str__(self) -> str:
        return f"{self.uuid}.{self.version}" if self.version else self.uuid


def parse_reference(text: str, noun: str) -> Reference:
    """Parse a name of a bundle, file and so on; Misused if it names nothing or another thing."""
    said = text.strip()
    if "://" not in said:
        return _parse_name(said, noun)
    try:
        found = urlsplit(said)
    except ValueError:
        raise Misused(f"{noun}: {text!r} is not a URL", hint=HINT) from None
    if found.scheme == "drs":
        return _parse_name(unquote(found.path.lstrip("/") or found.netloc), noun)
    place = _IN_PATH.search(found.path)
    if found.scheme not in ("http", "https") or place is None:
        raise Misused(f"{noun}: {text!r} is not the URL of a {noun}", hint=HINT)
    if place["noun"].lower() != noun:
        raise Misused(f"{text!r} is a {place['noun'].lower()}, not a {noun}")
    named = _parse_name(unquote(place["name"]), noun)
    query = parse_qs(found.query)
    version = query.get("version", [named.version])[-1]
    if version:
        parse_version(version)
    return Reference(named.uuid, version, query.get("replica", [""])[-1])


def _parse_name(text: str, noun: str) -> Reference:
    uuid, dot, version = text.partition(".")
    if not is_uuid(uuid):
        raise Misused(f"{noun}: {text!r} is not a uuid", hint=HINT)
    if dot:
        parse_version(version)
    return Reference(uuid.lower(), version)


def read_references(lines: Iterable[str], noun: str) -> Iterator[Reference]:
    """Yield the objects of lines: a name, a table's first column, or what `store` wrote as JSON.

    Empty lines and a heading are passed over; Misused names the line.
    """
    for number, line in enumerate(lines, 1):
        said = line.strip()
        first = re.split(r"[\t,]", said, maxsplit=1)[0].strip('"')
        if not said or (number == 1 and first in ("uuid", "bundle_uuid", "bundle_fqid")):
            continue
        try:
            yield parse_reference(_name_in_json(said) if said.startswith("{") else first, noun)
        except Misused as error:
            raise Misused(f"line {number}: {error}", hint=error.hint) from None


def _name_in_json(line: str) -> str:
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError):
        return line
    uuid = found.get("uuid") or found.get("bundle_uuid") or found.get("bundle_fqid") or ""
    version = found.get("version") or found.get("bundle_version")
    return f"{uuid}.{version}" if version else str(uuid)
