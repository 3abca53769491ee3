"""Documents put into one generation: requests of bounded size, again while the engine is full."""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from storage.errors import NotFound, Unavailable
from storage.protocols import Refusal
from storage.search.opensearch_client import (
    RETRY_AFTER_S,
    Engine,
    FullError,
    OversizedError,
    reason,
)
from storage.search.opensearch_documents import Prepared
from storage.search.opensearch_generations import WRITING

MAX_BYTES = 8 * 1024 * 1024
MAX_DOCUMENTS = 500
# 0.1 + 0.2 + 0.4 + … s: about 6 s in all, then the queue tries again later.
WAITS_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)

FULL, GONE, STALE = 429, 404, 409
TIME_LIMIT_S = 60.0


@dataclass(slots=True)
class _Told:
    """What the engine said to some documents."""

    again: list[Prepared] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)


def put(
    engine: Engine,
    generation: str,
    documents: Sequence[Prepared],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Refusal]:
    """Store what is newer than what is there, searchable afterwards; NotFound when the generation
    is gone, Unavailable when the engine stays full."""
    return [
        refusal
        for chunk in chunks(documents)
        for refusal in _put_all(engine, generation, chunk, sleep)
    ]


def _put_all(
    engine: Engine, generation: str, documents: list[Prepared], sleep: Callable[[float], None]
) -> list[Refusal]:
    """What the engine had no room for again and again, a little later each time."""
    told = _post(engine, generation, documents)
    refused = told.refused
    for wait_s in WAITS_S:
        if not told.again:
            break
        sleep(wait_s * random.uniform(0.5, 1.0))
        told = _post(engine, generation, told.again)
        refused += told.refused
    if told.again:
        said = "The search engine takes no more documents now."
        raise Unavailable(said, retry_after_s=RETRY_AFTER_S)
    return refused


def chunks(documents: Sequence[Prepared]) -> Iterator[list[Prepared]]:
    """The documents in groups of bounded size, in order."""
    chunk: list[Prepared] = []
    size = 0
    for document in documents:
        if chunk and (size + len(document.source) > MAX_BYTES or len(chunk) >= MAX_DOCUMENTS):
            yield chunk
            chunk, size = [], 0
        chunk.append(document)
        size += len(document.source)
    if chunk:
        yield chunk


def _post(engine: Engine, generation: str, documents: Sequence[Prepared]) -> _Told:
    try:
        answer = engine.request(
            "POST",
            f"/{generation}{WRITING}/_bulk",
            b"".join(map(_lines, documents)),
            timeout_s=TIME_LIMIT_S,
            require_alias="true",
            # Many who write at once share one refresh; each forcing its own would stand in a queue.
            refresh="wait_for",
            filter_path="items.*.status,items.*.error",
        )
    except FullError:
        return _Told(again=list(documents))
    except OversizedError:
        return _smaller(engine, generation, documents)
    told = _Told()
    items = answer.get("items", ())
    if len(items) != len(documents):
        raise Unavailable("The search engine did not say what became of each document.")
    for document, item in zip(documents, items, strict=True):
        _judge(document, item["index"], told)
    return told


def _smaller(engine: Engine, generation: str, documents: Sequence[Prepared]) -> _Told:
    """One at a time; what is too large by itself is refused."""
    if len(documents) == 1:
        return _Told(refused=[_refusal(documents[0], "is larger than the engine takes")])
    parts = [_post(engine, generation, [document]) for document in documents]
    return _Told(
        [document for part in parts for document in part.again],
        [refusal for part in parts for refusal in part.refused],
    )


def _lines(document: Prepared) -> bytes:
    action = {"_id": document.id, "version": document.change, "version_type": "external"}
    return orjson.dumps({"index": action}) + b"\n" + document.source + b"\n"


def _judge(document: Prepared, item: Mapping[str, Any], told: _Told) -> None:
    """What became of one document: that a later change is there already is success."""
    status = item["status"]
    if status < 300 or status == STALE:
        return
    if status == FULL:
        told.again.append(document)
    elif status == GONE:
        raise NotFound(reason(item))
    elif status == 400:
        told.refused.append(_refusal(document, reason(item)))
    else:
        raise Unavailable(
            f"The search engine did not store a document: {reason(item)}",
            retry_after_s=RETRY_AFTER_S,
        )


def _refusal(document: Prepared, said: str) -> Refusal:
    return Refusal(document.uuid, document.version, said)
