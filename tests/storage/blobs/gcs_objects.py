"""Objects of the simulated GCS: generations, preconditions, compose and rewrite."""

import base64
import itertools
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import google_crc32c

Params = Mapping[str, str]


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


@dataclass(frozen=True)
class Stored:
    """One generation of one object."""

    name: str
    data: bytes
    generation: int
    updated: datetime
    content_type: str | None = None
    content_encoding: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    components: int | None = None

    @property
    def crc32c(self) -> str:
        return base64.b64encode(google_crc32c.value(self.data).to_bytes(4, "big")).decode()

    def resource(self) -> dict[str, Any]:
        """As the JSON interface describes it."""
        told = {
            "kind": "storage#object",
            "name": self.name,
            "size": str(len(self.data)),
            "generation": str(self.generation),
            "metageneration": "1",
            "crc32c": self.crc32c,
            "etag": f"etag{self.generation}",
            "updated": self.updated.isoformat().replace("+00:00", "Z"),
            "contentType": self.content_type,
            "contentEncoding": self.content_encoding,
            "metadata": dict(self.metadata) or None,
            "componentCount": self.components,
        }
        return {name: value for name, value in told.items() if value is not None}


@dataclass
class Rewriting:
    """A rewrite on its way."""

    original: Stored
    target: tuple[str, str]
    done: int = 0


class Objects:
    """All buckets. One thing happens at a time, as it seems to anybody who asks GCS."""

    def __init__(self, rewritten_per_call: int | None = None) -> None:
        self.rewritten_per_call = rewritten_per_call
        self._buckets: dict[str, dict[str, Stored]] = {}
        self._rewriting: dict[str, Rewriting] = {}
        self._numbers = itertools.count(1_700_000_000_000_001)
        self._lock = threading.RLock()

    def make_bucket(self, name: str) -> None:
        self._buckets[name] = {}

    @contextmanager
    def bucket(self, name: str) -> Iterator[dict[str, Stored]]:
        """A bucket while nobody else touches it."""
        with self._lock:
            if name not in self._buckets:
                raise Refused(404, "The specified bucket does not exist.")
            yield self._buckets[name]

    def get(self, bucket: str, key: str, params: Params) -> Stored:
        """An object that fits its conditions."""
        with self.bucket(bucket) as objects:
            found = objects.get(key)
            wanted = params.get("generation")
            if found is None or (wanted and int(wanted) != found.generation):
                raise Refused(404, f"No such object: {bucket}/{key}")
            _hold(params, found)
            return found

    def put(
        self, bucket: str, resource: Mapping[str, Any], data: bytes, params: Params, **more: Any
    ) -> Stored:
        """A new generation, if the conditions are met and the checksum is as announced."""
        with self.bucket(bucket) as objects:
            key = resource["name"]
            if not 0 < len(key.encode()) <= 1024 or key in (".", ".."):
                raise Refused(400, "Invalid object name")
            self.may_put(bucket, key, params)
            stored = Stored(
                key,
                data,
                next(self._numbers),
                datetime.now(UTC),
                resource.get("contentType"),
                resource.get("contentEncoding"),
                resource.get("metadata") or {},
                **more,
            )
            announced = resource.get("crc32c")
            if announced and announced != stored.crc32c:
                raise Refused(400, f"Provided CRC32C {announced} doesn't match calculated CRC32C")
            objects[key] = stored
            return stored

    def may_put(self, bucket: str, key: str, params: Params) -> None:
        with self.bucket(bucket) as objects:
            _hold(params, objects.get(key))

    def delete(self, bucket: str, key: str, params: Params) -> None:
        with self.bucket(bucket) as objects:
            self.get(bucket, key, params)
            del objects[key]

    def patch(self, bucket: str, key: str, body: Mapping[str, Any], params: Params) -> Stored:
        """Metadata are added to the same generation."""
        with self.bucket(bucket) as objects:
            found = self.get(bucket, key, params)
            objects[key] = replace(found, metadata={**found.metadata, **body["metadata"]})
            return objects[key]

    def age(self, bucket: str, prefix: str, updated: datetime) -> None:
        """Pretend that objects were stored some time ago."""
        with self.bucket(bucket) as objects:
            for key in [key for key in objects if key.startswith(prefix)]:
                objects[key] = replace(objects[key], updated=updated)

    def list(self, bucket: str, params: Params) -> dict[str, Any]:
        """One page, in byte order."""
        with self.bucket(bucket) as objects:
            start = max(params.get("startOffset", ""), params.get("pageToken", ""), key=str.encode)
            names = sorted(
                (
                    key
                    for key in objects
                    if key.startswith(params.get("prefix", "")) and key.encode() >= start.encode()
                ),
                key=str.encode,
            )
            most = min(int(params.get("maxResults", 1000)), 1000)
            page: dict[str, Any] = {"kind": "storage#objects"}
            if names[:most]:
                page["items"] = [objects[key].resource() for key in names[:most]]
            if names[most:]:
                page["nextPageToken"] = names[most]
            return page

    def compose(self, bucket: str, key: str, body: Mapping[str, Any], params: Params) -> Stored:
        sources = body["sourceObjects"]
        if not 1 <= len(sources) <= 32:
            raise Refused(400, "The number of source components provided is not between 1 and 32")
        with self.bucket(bucket):
            parts = [self.get(bucket, one["name"], _named(one)) for one in sources]
            resource = {**body.get("destination", {}), "name": key}
            count = sum(part.components or 1 for part in parts)
            data = b"".join(part.data for part in parts)
            return self.put(bucket, resource, data, params, components=count)

    def rewrite(
        self,
        original: tuple[str, str],
        target: tuple[str, str],
        params: Params,
        description: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """So many bytes of it as one call moves; a token for the next call until all are there.

        The source's metadata are copied only if no description of the target is sent."""
        with self._lock:
            self.may_put(*target, params)
            token = params.get("rewriteToken") or ""
            source = self._source(original, params)
            going = self._rewriting.pop(token, None) or Rewriting(source, target)
            if token and (going.target != target or going.done == 0 or going.original != source):
                raise Refused(400, "The rewrite token does not fit")
            going.done += self.rewritten_per_call or len(source.data)
            told = {"kind": "storage#rewriteResponse", "objectSize": str(len(source.data))}
            if going.done < len(source.data):
                token = f"token{next(self._numbers)}"
                self._rewriting[token] = going
                moved = str(going.done)
                return {**told, "done": False, "rewriteToken": token, "totalBytesRewritten": moved}
            described = source.resource() if description is None else description
            resource = {**described, "name": target[1]}
            more = {"components": source.components}
            stored = self.put(target[0], resource, source.data, params, **more)
            return {
                **told,
                "done": True,
                "totalBytesRewritten": str(len(source.data)),
                "resource": stored.resource(),
            }

    def _source(self, original: tuple[str, str], params: Params) -> Stored:
        wanted = params.get("sourceGeneration")
        return self.get(*original, {"generation": wanted} if wanted else {})


def _named(source: Mapping[str, Any]) -> dict[str, str]:
    condition = source.get("objectPreconditions", {}).get("ifGenerationMatch")
    named = {"generation": source.get("generation"), "ifGenerationMatch": condition}
    return {name: str(value) for name, value in named.items() if value}


def _hold(params: Params, found: Stored | None) -> None:
    """412 unless the object is of the generation that is asked for; 0: there is none."""
    wanted = params.get("ifGenerationMatch")
    if wanted is not None and int(wanted) != (found.generation if found else 0):
        raise Refused(412, "At least one of the pre-conditions you specified did not hold.")
