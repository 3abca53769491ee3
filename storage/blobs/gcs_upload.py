"""An upload into GCS: components under a hidden prefix that are composed into the object.

GCS's own multipart uploads take no condition; a compose does. Beside its components
(`.uploads/<token>/00001`) lie the upload's words, by which any process can go on; whoever has
forgotten them has forgotten the upload, for every step looks at them first.
"""

import io
import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, TypeVar

import google_crc32c

from storage.blobs.envelope import checked_head
from storage.blobs.gcs_asking import FREE, Bucket, Reply
from storage.blobs.gcs_client import Call
from storage.blobs.gcs_inserting import Params, insert
from storage.blobs.gcs_reading import TOLD, described, info_of, listed, stream
from storage.blobs.spooling import Spooled, spooled
from storage.errors import AlreadyExists, Invalid, NotFound, StoreError, Unavailable
from storage.protocols import BlobInfo

T = TypeVar("T")
R = TypeVar("R")

HIDDEN: Final = ".uploads/"
"""Where everything unfinished lies."""
MAX_PARTS: Final = 10_000
_AT_ONCE: Final = 32
"""Objects that one compose joins."""
_SIDE_BY_SIDE: Final = 8
_TOKEN = re.compile(r"[0-9a-f]{32}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{5}", re.ASCII)
_WORDS: Final = "words"


@dataclass(frozen=True, slots=True)
class Words:
    """What an upload was begun with; stored as JSON, a format that outlives a release."""

    key: str
    part_size: int
    content_type: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Component:
    """One stored piece of the object, by its generation."""

    name: str
    size: int
    generation: str


class GcsUpload:
    """One unfinished object; any number of parts may be on their way at once."""

    def __init__(self, bucket: Bucket, token: str, words: Words) -> None:
        self._bucket, self._token, self._words = bucket, token, words

    @classmethod
    def begin(cls, bucket: Bucket, words: Words) -> "GcsUpload":
        """A new upload."""
        checked_head(words.key, words.content_type, words.metadata)
        if words.part_size < 1:
            raise Invalid("a part has at least one byte")
        token = secrets.token_hex(16)
        text = {name: getattr(words, name) for name in Words.__slots__}
        content = in_memory(json.dumps(text).encode())
        insert(bucket, _path(token, _WORDS), content, {}, FREE)
        return cls(bucket, token, words)

    @classmethod
    def resume(cls, bucket: Bucket, key: str, token: str) -> "GcsUpload":
        """The upload that a token names; NotFound when it is gone, done or of another key."""
        if not _TOKEN.fullmatch(token):
            raise NotFound("no such upload")
        blocks = stream(bucket, _path(token, _WORDS), pin=None, start=0, length=None)
        words = Words(**json.loads(b"".join(blocks)))
        if words.key != key:
            raise NotFound("no such upload")
        return cls(bucket, token, words)

    @property
    def token(self) -> str:
        """See Upload."""
        return self._token

    @property
    def part_size(self) -> int:
        """Bytes of every part but the last."""
        return self._words.part_size

    def part(self, number: int, blocks: Iterable[bytes]) -> None:
        """See Upload."""
        if not 1 <= number <= MAX_PARTS:
            raise Invalid(f"part numbers are 1 to {MAX_PARTS}")
        with spooled(blocks, self.part_size) as content:
            words = self._bucket.object(_path(self._token, _WORDS))
            self._bucket.ask(Call("GET", words, {"fields": "generation"}))
            insert(self._bucket, _path(self._token, f"{number:05}"), content, {}, {})

    def parts(self) -> Mapping[int, int]:
        """See Upload."""
        return {number: part.size for number, part in self._components().items()}

    def _components(self) -> dict[int, Component]:
        found = [_component(entry) for entry in listed(self._bucket, _path(self._token))]
        names = {part.name.rpartition("/")[2]: part for part in found}
        if _WORDS not in names:
            raise NotFound("no such upload")
        return {int(name): part for name, part in names.items() if _NUMBER.fullmatch(name)}

    def complete(
        self, metadata: Mapping[str, str] | None = None, *, replace: bool = False
    ) -> BlobInfo:
        """See Upload."""
        words = self._words
        kept = {**words.metadata, **(metadata or {})}
        checked_head(words.key, words.content_type, kept)
        parts = _whole(self._components(), words.part_size)
        condition: Params = {} if replace else FREE
        try:
            reply = self._made(parts, described(words.content_type, kept), condition)
        except AlreadyExists:
            self.abort()
            raise
        # The object is there: what cannot be cleared away now is left to the sweep.
        with suppress(StoreError):
            self.abort()
        return info_of(words.key, reply)

    def _made(
        self, parts: list[Component], described: Mapping[str, Any], condition: Params
    ) -> Reply:
        key = self._words.key
        if not parts:
            return insert(self._bucket, key, in_memory(b""), described, condition)
        try:
            return _compose(self._bucket, self._joined(parts), key, described, condition)
        except NotFound as error:
            self._components()
            raise Unavailable("a part was stored again meanwhile") from error

    def _joined(self, parts: list[Component], level: int = 1) -> list[Component]:
        """As many pieces as one compose takes, made of the parts in as many rounds as needed."""
        if len(parts) <= _AT_ONCE:
            return parts
        groups = [parts[n : n + _AT_ONCE] for n in range(0, len(parts), _AT_ONCE)]

        def join(number: int) -> Component:
            name = _path(self._token, f"joined-{level}-{number:05}")
            reply = _compose(self._bucket, groups[number], name, {}, {})
            return _component({"name": name, **reply})

        return self._joined(_side_by_side(join, range(len(groups))), level + 1)

    def abort(self) -> None:
        """See Upload."""
        _forget(self._bucket, self._token)


def in_memory(data: bytes) -> Spooled:
    """Bytes that are there already, as what can be sent."""
    return Spooled(io.BytesIO(data), len(data), google_crc32c.value(data).to_bytes(4, "big"))


def remove(bucket: Bucket, key: str, condition: Params | None = None) -> None:
    """Delete an object; not an error when it is absent."""
    with suppress(NotFound):
        bucket.ask(Call("DELETE", bucket.object(key), condition or {}))


def sweep(bucket: Bucket, *, before: float, moment: Callable[[str], float]) -> int:
    """Abort uploads of which nothing was stored since a time; returns how many. `moment` reads
    GCS's times."""
    count = 0
    entries = listed(bucket, HIDDEN, fields="name,updated")
    for token, group in groupby(entries, lambda entry: entry["name"].split("/")[1]):
        if max(moment(entry["updated"]) for entry in group) < before:
            _forget(bucket, token)
            count += 1
    return count


def _forget(bucket: Bucket, token: str) -> None:
    """Delete all of an upload; its words go first, so that nobody goes on."""
    remove(bucket, _path(token, _WORDS))
    left = [str(entry["name"]) for entry in listed(bucket, _path(token))]
    _side_by_side(lambda name: remove(bucket, name), left)


def _path(token: str, name: str = "") -> str:
    return f"{HIDDEN}{token}/{name}"


def _component(entry: Reply) -> Component:
    return Component(entry["name"], int(entry["size"]), str(entry["generation"]))


def _whole(parts: Mapping[int, Component], part_size: int) -> list[Component]:
    """All parts in order; Invalid unless they join without a gap."""
    if sorted(parts) != list(range(1, len(parts) + 1)):
        raise Invalid("a part is missing")
    ordered = [parts[number] for number in sorted(parts)]
    if any(part.size != part_size for part in ordered[:-1]):
        raise Invalid("a part that is not the last is short")
    return ordered


def _compose(
    bucket: Bucket,
    parts: Sequence[Component],
    key: str,
    described: Mapping[str, Any],
    condition: Params,
) -> Reply:
    """Join up to 32 objects, just these generations of them, into one; what GCS tells of it."""
    sources = [{"name": part.name, "generation": part.generation} for part in parts]
    body = json.dumps({"sourceObjects": sources, "destination": described}).encode()
    headers = {"Content-Type": "application/json"}
    where = bucket.object(key) + "/compose"
    return bucket.ask(Call("POST", where, {"fields": TOLD, **condition}, headers, body))


def _side_by_side(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        return list(pool.map(function, items))
