"""Matching one bundle with many JMESPath subscriptions, beside a loop of `jmespath.search`.

Two rows at each size: subscriptions that all have an equality, which the index serves, and a mix of
which 30 % have none and are evaluated one by one.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import jmespath

from bench.harness import Figures, Measure
from pipelines.matching import evaluate_event
from pipelines.queries.stored_queries import StoredQuerySet
from storage.catalog.subscriptions import Subscription
from storage.model import FQID, BundleEvent

WITHOUT_EQUALITY = 0.3
OF_ONE_OWNER = 100
VALUES = 100
"""Different values that the subscriptions ask for."""
ORGANS = ["brain", "liver", "heart", "kidney", "lung", "skin", "blood", "spleen"]

DOCUMENT: dict[str, Any] = {
    "event_type": "CREATE",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "bundle_info": {
        "uuid": "00000000-0000-4000-8000-000000000000",
        "version": "2026-01-01T000000.000000Z",
    },
    "manifest": {
        "files": [
            {"name": f"reads_{n}.fastq", "size": n * 1000, "indexed": n < 6} for n in range(40)
        ]
    },
    "files": {
        "project_json": [
            {
                "project_core": {"project_short_name": "project-17", "cells": 250},
                "contributors": [{"name": f"Person {n}", "lab": f"lab-{n}"} for n in range(12)],
            }
        ],
        "donor_json": [{"sex": "female", "age": n, "organ": ORGANS[n]} for n in range(3)],
        "sequencing_json": [
            {"method": "10x", "paired_end": True, "lanes": [{"index": n} for n in range(4)]}
        ],
    },
}

Forms = Sequence[Callable[[Random, int], str]]
EQUALITIES: Forms = (
    lambda rng, n: f"files.project_json[0].project_core.project_short_name == 'project-{n}'",
    lambda rng, n: (
        "event_type == 'CREATE' && "
        f"files.project_json[0].project_core.project_short_name == 'project-{n}'"
    ),
    lambda rng, n: f"bundle_info.uuid == '{n:032x}'",
    lambda rng, n: f"files.donor_json[0].organ == '{rng.choice(ORGANS)}' && uuid == '{n:x}'",
    lambda rng, n: (
        f"event_type == 'TOMBSTONE' && files.donor_json[?age > `{n}`] && "
        "files.sequencing_json[0].paired_end == `true`"
    ),
    lambda rng, n: (
        f"files.sequencing_json[0].method == 'method-{n}' && length(files.donor_json) > `1`"
    ),
    lambda rng, n: f"files.donor_json[0].sex == 'male' || files.donor_json[1].age == `{n + 100}`",
)
OTHERS: Forms = (
    lambda rng, n: f"files.donor_json[?age > `{n}`]",
    lambda rng, n: f"length(files.project_json[0].contributors) > `{n + 12}`",
    lambda rng, n: f"contains(files.project_json[0].contributors[].lab, 'lab-{n + 100}')",
    lambda rng, n: f"files.project_json[0].project_core.cells > `{n + 250}`",
    lambda rng, n: f"starts_with(bundle_info.version, '{n + 3000}')",
    lambda rng, n: f"files.imaging_json[?channel == 'c{n}'].name",
    lambda rng, n: f"files.sequencing_json[].lanes[?index == `{n + 9}`][]",
)


@contextmanager
def prepare(sizes: Sequence[int] = (1_000, 10_000)) -> Iterator[Measure]:
    """Match one event at each size, with subscriptions of either kind."""
    sets: dict[str, tuple[StoredQuerySet, list[Subscription]]] = {}
    for size in sizes:
        for kind, share in (("indexable", 0.0), ("mixed", WITHOUT_EQUALITY)):
            rng = Random(1)
            subscriptions = [_subscription(rng, n, share) for n in range(1, size + 1)]
            queries = StoredQuerySet(subscriptions)
            queries.compile_pending()
            sets[f"{size:,} {kind}"] = queries, subscriptions
    events = iter(range(10**9))

    def measure() -> Figures:
        figures = {}
        for name, (queries, subscriptions) in sets.items():
            document = DOCUMENT | {"number": next(events)}
            began = time.process_time()
            matched = _match(queries, document)
            ours = time.process_time() - began
            began = time.process_time()
            found = [bool(jmespath.search(each.query or "", document)) for each in subscriptions]
            loop = time.process_time() - began
            assert matched == [
                each.id for each, is_found in zip(subscriptions, found, strict=True) if is_found
            ]
            figures[f"{name}: index ms"] = ours * 1000
            figures[f"{name}: loop ms"] = loop * 1000
            figures[f"{name}: loop / index ×"] = loop / ours
        return figures

    yield measure


def _match(queries: StoredQuerySet, document: dict[str, Any]) -> list[int]:
    fqid = FQID(document["uuid"], document["bundle_info"]["version"])
    event = BundleEvent("event", "aws", "CREATE", fqid, 1, 2**52)
    found = evaluate_event(queries, event, document, base_url="https://store.example")
    return [one.subscription_id for one in found if one.failure is None]


def _subscription(rng: Random, number: int, without_equality: float) -> Subscription:
    forms = OTHERS if rng.random() < without_equality else EQUALITIES
    return Subscription(
        uuid=f"{number:032x}",
        owner=f"owner{number // OF_ONE_OWNER}@example.org",
        replica="aws",
        type="jmespath",
        query=rng.choice(forms)(rng, number % VALUES),
        callback_url="https://receiver.example/hook",
        method="POST",
        encoding="application/json",
        form_fields={},
        payload_form_field="payload",
        id=number,
    )
