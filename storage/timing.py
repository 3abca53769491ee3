"""Measure the calls to buckets and search indexes."""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

from prometheus_client import Histogram

from storage.errors import (
    AlreadyExists,
    DomainError,
    NotFoundError,
    TimeLimitExceeded,
    Unavailable,
)
from storage.metrics import BUCKET_SECONDS, SEARCH_SECONDS
from storage.protocols import BlobStore, SearchIndex

BUCKET_VERBS = (
    *("head", "put", "put_stream", "upload", "copy", "copy_unverified", "delete"),
    *("matches", "list_prefix", "write_metadata"),
)
BUCKET_STREAMS = ("read", "list")
SEARCH_VERBS = ("write", "search", "count_facets", "list_fields", "get", "ping")
SEARCH_STREAMS = ("list_ids",)

Observe = Callable[[float, BaseException | None], None]


def time_bucket(bucket: BlobStore, replica: str) -> None:
    """Measure each call to a bucket; a verb that calls another counts for both.

    The methods of the object are replaced, since stores choose fast paths by its class.
    """
    _time_verbs(bucket, BUCKET_SECONDS, replica, BUCKET_VERBS, BUCKET_STREAMS)


def time_search_index(index: SearchIndex, replica: str) -> None:
    """Measure each call to a search index."""
    _time_verbs(index, SEARCH_SECONDS, replica, SEARCH_VERBS, SEARCH_STREAMS)


def _time_verbs(
    engine: object,
    histogram: Histogram,
    replica: str,
    verbs: tuple[str, ...],
    streams: tuple[str, ...],
) -> None:
    for verb in (*verbs, *streams):
        if (call := getattr(engine, verb, None)) is not None:
            observe = _make_observer(histogram, replica, verb)
            time_call = _time_stream if verb in streams else _time_call
            setattr(engine, verb, partial(time_call, call, observe))


def _make_observer(histogram: Histogram, replica: str, verb: str) -> Observe:
    known: dict[str, Histogram] = {}

    def observe(seconds: float, error: BaseException | None) -> None:
        outcome = "ok" if error is None else _classify_error(error)
        # Looking labels up costs as much as counting.
        if (child := known.get(outcome)) is None:
            child = known[outcome] = histogram.labels(replica, verb, outcome)
        child.observe(seconds)

    return observe


_OUTCOME_BY_ERROR: Mapping[type[DomainError], str] = {
    NotFoundError: "absent",
    AlreadyExists: "exists",
    Unavailable: "unavailable",
    TimeLimitExceeded: "timeout",
    DomainError: "refused",
}


def _classify_error(error: BaseException) -> str:
    return next(
        (name for kind, name in _OUTCOME_BY_ERROR.items() if isinstance(error, kind)), "failed"
    )


def _time_call(call: Callable[..., Any], observe: Observe, *args: Any, **named: Any) -> Any:
    began = time.perf_counter()
    try:
        answer = call(*args, **named)
    except BaseException as error:
        observe(time.perf_counter() - began, error)
        raise
    observe(time.perf_counter() - began, None)
    return answer


def _time_stream(
    call: Callable[..., Iterator[Any]], observe: Observe, *args: Any, **named: Any
) -> Iterator[Any]:
    """Call the verb now, and measure until its first item."""
    began = time.perf_counter()
    try:
        stream = call(*args, **named)
    except BaseException as error:
        observe(time.perf_counter() - began, error)
        raise
    return _observe_first(stream, observe)


def _observe_first(stream: Iterator[Any], observe: Observe) -> Iterator[Any]:
    began = time.perf_counter()
    try:
        first = list(islice(stream, 1))
    except BaseException as error:
        observe(time.perf_counter() - began, error)
        raise
    observe(time.perf_counter() - began, None)
    yield from first
    yield from stream
