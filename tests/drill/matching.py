"""The drill `python -m tests.drill.matching`: the equality index against plain evaluation."""

import contextlib
import secrets
import sys
import time
import warnings
from itertools import pairwise

import click

from pipelines.matching import evaluate_event
from pipelines.queries import bounded_jmespath
from pipelines.queries.stored_queries import QueryDocument, StoredQuerySet
from tests.pipelines.expressions import differences, hostile
from tests.pipelines.hostile_queries import ES_TEXTS, JMESPATH, document
from tests.subscription_builders import BASE_URL, a_subscription, an_event

DOCUMENTS, EXPRESSIONS = 50, 200
"""Of one round."""
HOSTILE, OWNERS = 10_000, 100
LONGEST_S, SILENCE_S = 180.0, 10.0
"""Of an event's match; of a step between two renewals of its lease, which lasts 30 s."""
ALONE_S = 20.0
"""Processor time of one stored query with all the steps it may take."""
SHOWN = 25


@click.command()
@click.option("--seed", type=int, help="To repeat a run.")
@click.option("--pairs", default=100_000, show_default=True)
def main(seed: int | None, pairs: int) -> None:
    """Compare, stall, and exit with 1 if anything differed or took too long."""
    warnings.simplefilter("ignore", PendingDeprecationWarning)
    seed = secrets.randbelow(10**9) if seed is None else seed
    click.echo(f"seed {seed}")
    faults = [*_compared(seed, pairs), *_alone(), *_stalled()]
    for fault in faults[:SHOWN]:
        click.echo(f"FAULT {fault}")
    sys.exit(1 if faults else 0)


def _compared(seed: int, pairs: int) -> list[str]:
    began, found = time.monotonic(), list[str]()
    for round_ in range(-(-pairs // (DOCUMENTS * EXPRESSIONS))):
        found += differences(seed + round_, documents=DOCUMENTS, expressions=EXPRESSIONS)
    took = time.monotonic() - began
    click.echo(f"{pairs} pairs of document and expression, {len(found)} differ ({took:.0f} s)")
    return found


def _alone() -> list[str]:
    """Each way to hold a worker up by itself, on a document made for it."""
    seen, took = QueryDocument(document()), dict[str, float]()
    for kind, sources in (("jmespath", JMESPATH), ("elasticsearch", ES_TEXTS)):
        for n, source in enumerate(sources, 1):
            questions = StoredQuerySet([a_subscription(id=n, type=kind, query=source)])
            (one,) = questions.candidates(seen.document, steps=bounded_jmespath.MAX_STEPS)
            began = time.process_time()
            with contextlib.suppress(bounded_jmespath.EvaluationFailed):
                one.stored_query.evaluate(seen, bounded_jmespath.EvaluationBudget())
            took[source] = time.process_time() - began
    click.echo(f"{len(took)} ways to stall a worker: {max(took.values()):.1f} s at the most")
    return [f"{each:.1f} s for {source}" for source, each in took.items() if each > ALONE_S]


def _stalled() -> list[str]:
    """Whether the hostile ones hold an event up, or keep it from whom it is for."""
    bad = [
        a_subscription(id=n, query=hostile(n), owner=f"bad{n % OWNERS}@example.org")
        for n in range(1, HOSTILE + 1)
    ]
    good = a_subscription(id=HOSTILE + 1, query="length(files) == `1`", owner="good@example.org")
    questions, beats = StoredQuerySet([*bad, good]), [time.monotonic()]
    began = time.monotonic()
    found = list(
        evaluate_event(
            questions,
            an_event(),
            {"files": {"a": 1}},
            base_url=BASE_URL,
            beat=lambda _: beats.append(time.monotonic()),
        )
    )
    took = time.monotonic() - began
    silence = max(after - before for before, after in pairwise(beats))
    click.echo(f"{HOSTILE} hostile expressions of {OWNERS} owners: {took:.1f} s on one event")
    click.echo(f"the longest time without a renewal of the lease: {silence:.2f} s")
    told = [one.subscription_id for one in found if one.failure is None]
    return [
        *([f"it took {took:.0f} s"] if took > LONGEST_S else []),
        *([f"{silence:.0f} s without a beat"] if silence > SILENCE_S else []),
        *([f"told {told}"] if told != [good.id] else []),
        *([f"{len(found)} answers"] if len(found) != HOSTILE + 1 else []),
    ]


if __name__ == "__main__":
    main()
