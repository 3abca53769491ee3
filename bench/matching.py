"""Matching one bundle with many jmespath subscriptions, against a loop of `jmespath.search`.

Run as `python -m bench.matching [rounds] [size ...]`.
"""

import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

import jmespath

from pipelines.matching import evaluate_event
from pipelines.queries.stored_queries import StoredQuerySet
from storage.catalog.subscriptions import Subscription
from storage.model import FQID, BundleEvent

SIZES = (1_000, 10_000)
EQUALITIES = 0.7
OF_ONE_OWNER = 100
ALIKE = 100
"""Values that people ask for where they ask for the same things."""
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
EQUAL: Forms = (
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
OTHER: Forms = (
    lambda rng, n: f"files.donor_json[?age > `{n}`]",
    lambda rng, n: f"length(files.project_json[0].contributors) > `{n + 12}`",
    lambda rng, n: f"contains(files.project_json[0].contributors[].lab, 'lab-{n + 100}')",
    lambda rng, n: f"files.project_json[0].project_core.cells > `{n + 250}`",
    lambda rng, n: f"starts_with(bundle_info.version, '{n + 3000}')",
    lambda rng, n: f"files.imaging_json[?channel == 'c{n}'].name",
    lambda rng, n: f"files.sequencing_json[].lanes[?index == `{n + 9}`][]",
)


HARD: Forms = (
    lambda rng, n: f"length(files.donor_json[?age > `{n}`]) > `1`",
    lambda rng, n: f"manifest.files[?size > `{n}`] | [?ends_with(name, '.bam')]",
    lambda rng, n: f"files.donor_json[0].age > files.donor_json[1].age && uuid != '{n}'",
    lambda rng, n: f"max_by(files.donor_json[?age != `{n}`], &age).organ == 'spleen'",
    lambda rng, n: f"manifest.files[*].{{n: name, s: size}} | [?s == `{n + 1}`]",
    lambda rng, n: f"join('-', files.donor_json[?age < `{n}`].organ) == 'none'",
)
"""Whose literals stand where the index does not look: what it cannot decide is evaluated."""


def main(rounds: int = 7, *sizes: int) -> None:
    """Print the time of one event at each size, either way."""
    print(f"one bundle of 40 files, best of {rounds} events, processor time; {EQUALITIES:.0%} of")
    print(f"the expressions have an equality; their values are {ALIKE}, or all different.")
    print(
        "The others: what people ask (comparisons, contains, filters), or only what no index finds"
    )
    print(
        f"{'others':>7}{'subscriptions':>14}{'different':>10}{'match':>6}{'ours ms':>9}"
        f"{'the loop ms':>12}{'ours is':>9}{'compiled before ms':>20}{'ours is':>9}"
        f"{'set up ms':>11}{'one more ms':>13}{'MB':>6}"
    )
    for others in ("asked", "hard"):
        for variety in (ALIKE, 10**9):
            for size in sizes or SIZES:
                _bench(size, variety, others, rounds)


def _bench(size: int, variety: int, others: str, rounds: int) -> None:
    asked = _subscriptions(size, variety, OTHER if others == "asked" else HARD)
    questions, set_up, megabytes = _measured(asked)
    sources = [each.query or "" for each in asked]
    ours, loop, ready = [], [], []
    for number in range(rounds):
        document = DOCUMENT | {"number": number}
        found, took = _timed(partial(_ours, questions, document))
        ours.append(took)
        plain, took = _timed(partial(_loop, sources, document))
        loop.append(took)
        assert found == [each.id for each, told in zip(asked, plain, strict=True) if told]
    # Only now: so many objects would slow the others down, by what Python's collector walks.
    compiled = [jmespath.compile(source) for source in sources]
    ready += [_timed(partial(_compiled_loop, compiled, DOCUMENT))[1] for _ in range(rounds)]
    _, more = _timed(partial(_one_more, questions, _subscription(size + 1, "a.b == 'c'")))
    times, once = min(loop) / min(ours), min(ready) / min(ours)
    print(
        f"{others:>7}{size:>14,}{len(set(sources)):>10,}{len(found):>6}{min(ours):>9.1f}"
        f"{min(loop):>12.1f}{times:>8.1f}×{min(ready):>20.1f}{once:>8.1f}×{set_up:>11.0f}{more:>13.2f}{megabytes:>6.1f}"
    )


def _measured(asked: Sequence[Subscription]) -> tuple[StoredQuerySet, float, float]:
    """The set, how long it takes to make, and what it holds beyond the subscriptions."""
    tracemalloc.start()
    _settled(asked)
    before, _ = tracemalloc.get_traced_memory()
    kept = _settled(asked)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    questions, took = _timed(lambda: _settled(asked))
    return questions, took, (after - before) / 1e6


def _settled(asked: Sequence[Subscription]) -> StoredQuerySet:
    questions = StoredQuerySet(asked)
    questions.compile_pending()
    return questions


def _one_more(questions: StoredQuerySet, subscription: Subscription) -> None:
    questions.update([subscription], gone=[])
    questions.compile_pending()


def _ours(questions: StoredQuerySet, document: dict[str, Any]) -> list[int]:
    fqid = FQID(document["uuid"], document["bundle_info"]["version"])
    event = BundleEvent("event", "aws", "CREATE", fqid, 1, 2**52)
    found = evaluate_event(questions, event, document, base_url="https://store.example")
    return [one.subscription_id for one in found if one.failure is None]


def _loop(sources: Sequence[str], document: Any) -> list[bool]:
    return [bool(jmespath.search(source, document)) for source in sources]


def _compiled_loop(compiled: Sequence[Any], document: Any) -> list[bool]:
    return [bool(one.search(document)) for one in compiled]


def _timed(act: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    found = act()
    return found, (time.process_time() - began) * 1000


def _subscriptions(size: int, variety: int, others: Forms) -> list[Subscription]:
    rng = Random(1)
    return [_subscription(n, _expression(rng, n % variety, others)) for n in range(1, size + 1)]


def _expression(rng: Random, number: int, others: Forms) -> str:
    forms = EQUAL if rng.random() < EQUALITIES else others
    return rng.choice(forms)(rng, number)


def _subscription(number: int, query: str) -> Subscription:
    return Subscription(
        uuid=f"{number:032x}",
        owner=f"owner{number // OF_ONE_OWNER}@example.org",
        replica="aws",
        type="jmespath",
        query=query,
        callback_url="https://receiver.example/hook",
        method="POST",
        encoding="application/json",
        form_fields={},
        payload_form_field="payload",
        id=number,
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
