"""Addresses of bundles and files: `store://bundle/UUID[.VERSION][/NAME]`, `store://file/UUID`.

Names of files stand as they are, without percent-encoding: `store://bundle/UUID/50% done?.txt`.
"""

from dataclasses import dataclass

from store_client.errors import Misused
from store_client.identifiers import is_uuid, parse_version
from store_client.names import name_fault

SCHEME = "store://"
BUNDLE, FILE = "bundle", "file"
HINT = "give store://bundle/UUID/NAME, store://bundle/UUID.VERSION/NAME or store://file/UUID"


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """A bundle, a file or folder in it, or a file by its own uuid.

    `version` is "" for the latest; `name` is "" for the bundle itself.
    """

    kind: str
    uuid: str
    version: str = ""
    name: str = ""

    @property
    def fqid(self) -> str:
        """Uuid and version, as far as they are given."""
        return f"{self.uuid}.{self.version}" if self.version else self.uuid

    def __str__(self) -> str:
        return f"{SCHEME}{self.kind}/{self.fqid}" + (f"/{self.name}" if self.name else "")


def parse_location(text: str) -> StoreLocation:
    """Parse an address; Misused if it names nothing."""
    kind, _, rest = text.removeprefix(SCHEME).partition("/")
    fqid, _, name = rest.partition("/")
    if kind not in (BUNDLE, FILE) or not fqid:
        raise Misused(f"{text!r} is not an address in a store", hint=HINT)
    uuid, dot, version = fqid.partition(".")
    if not is_uuid(uuid):
        raise Misused(f"{text!r}: {uuid!r} is not a uuid", hint=HINT)
    if dot:
        parse_version(version)
    name = name.rstrip("/")
    if name and kind == FILE:
        raise Misused(f"{text!r}: a file has no files in it", hint=HINT)
    wrong = name_fault(name) if name else None
    if wrong is not None:
        raise Misused(f"{text!r}: {wrong}", hint=HINT)
    return StoreLocation(kind, uuid.lower(), version, name)
