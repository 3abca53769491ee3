"""What a store costs: to start, at rest, and for each small bundle, beside an older commit.

The stores of both take turns. Run as `python -m bench.reach [--beside COMMIT] [--rounds N]`, or as
`python -m bench real-reach` with the real engines that the environment names.
"""

import argparse
import asyncio
import logging
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from sqlalchemy import Engine, create_engine, text

from bench import checkouts, latency, load, traffic
from bench.checkouts import GitCheckout, Store

BASELINE = "c861ca8"
"""Thirteen processes: before the store was made light."""
ROUNDS = 5
BUNDLES = 200
IDLE_S = 20
WARM_UP = 8
SETTLE_S = 5.0
PATIENCE_S = 300.0
PER_SECOND = 20

Figures = dict[str, float]
Environments = Callable[[], AbstractContextManager[Mapping[str, str]]]

DECIMALS = {"ms": 0, "MB": 0, "processes": 0}
"""Of a figure, by the last word of its name; others have two."""


@dataclass(frozen=True)
class Plan:
    """How often and how long to measure; `callbacks` bundles for latency, none if 0."""

    rounds: int = ROUNDS
    bundles: int = BUNDLES
    idle_s: float = IDLE_S
    callbacks: int = 0


def main(
    rounds: int = ROUNDS, bundles: int = BUNDLES, idle_s: int = IDLE_S, paired: int = 1
) -> None:
    """Embedded stores, beside the baseline if `paired`."""
    compare(Plan(rounds, bundles, idle_s), _embedded, BASELINE if paired else "")


@contextmanager
def _embedded() -> Iterator[Mapping[str, str]]:
    # Where the baseline finds no redis-server, it serves its queue itself.
    yield {"PATH": "/nowhere"}


def compare(plan: Plan, environments: Environments, commit: str) -> None:
    """Print the medians of both and their ratios; of this checkout alone without a commit."""
    print(f"{plan.rounds} rounds, {plan.bundles} bundles of 2 files, {load.IN_FLIGHT} at once")
    with ExitStack() as stack:
        sides = [checkouts.this_checkout()]
        if commit:
            sides.append(stack.enter_context(checkouts.checkout_of(commit)))
        found: dict[str, list[Figures]] = {side.name: [] for side in sides}
        for number in range(plan.rounds):
            for side in sides if number % 2 else reversed(sides):
                with environments() as environ:
                    found[side.name].append(_measure(side, environ, plan))
    _show([found[side.name] for side in sides], [side.name for side in sides])


def _measure(checkout: GitCheckout, environ: Mapping[str, str], plan: Plan) -> Figures:
    """One store, from its start to its end."""
    with checkouts.started(checkout, environ) as store:
        figures = {
            "start: processor s": store.processor_s,
            "start: wall s": store.stage.started_in_s,
            **_at_rest(store, plan),
            **asyncio.run(_under_load(store, plan)),
        }
        if plan.callbacks:
            figures |= asyncio.run(_callbacks(store, plan))
        return figures


def _at_rest(store: Store, plan: Plan) -> Figures:
    time.sleep(min(SETTLE_S, plan.idle_s))
    began, before = time.perf_counter(), checkouts.spent_s(store.pid)
    time.sleep(plan.idle_s)
    share = (checkouts.spent_s(store.pid) - before) / (time.perf_counter() - began)
    return {
        "idle: % of a core": share * 100,
        "idle: PSS MB": checkouts.pss_mb(store.pid),
        "idle: processes": len(checkouts.tree(store.pid)),
    }


async def _under_load(store: Store, plan: Plan) -> Figures:
    """Bundles at once, until they are visible in both replicas, and until nothing is left to do."""
    stage = store.stage
    catalog = create_engine(
        stage.environ.get("STORE_CATALOG_URL") or f"sqlite:///{stage.home}/catalog.sqlite"
    )
    async with traffic.depositing(stage.api, stage.token, connections=load.IN_FLIGHT) as depositor:
        await load.deposit(depositor, min(WARM_UP, plan.bundles), load.IN_FLIGHT)
        await _until(lambda: _open_jobs(catalog) == 0)
        whole = _visible(catalog) + 2 * plan.bundles
        began, before = time.perf_counter(), checkouts.spent_s(store.pid)
        await load.deposit(depositor, plan.bundles, load.IN_FLIGHT)
        await _until(lambda: _visible(catalog) >= whole)
        took_s = time.perf_counter() - began
        await _until(lambda: _open_jobs(catalog) == 0)
        spent_s = checkouts.spent_s(store.pid) - before
    catalog.dispose()
    return {
        "bundle: processor ms": spent_s * 1000 / plan.bundles,
        "bundles whole in both replicas /s": plan.bundles / took_s,
    }


async def _until(holds: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + PATIENCE_S
    while not holds():
        assert time.perf_counter() < deadline, "the store does not get on"
        await asyncio.sleep(0.05)


def _visible(catalog: Engine) -> int:
    """Bundles in each replica, counted in the catalog: asking the API would load the store."""
    return _count(catalog, "SELECT count(*) FROM visible WHERE kind = 'bundle'")


def _open_jobs(catalog: Engine) -> int:
    return _count(catalog, "SELECT count(*) FROM todo WHERE parked_us IS NULL")


def _count(catalog: Engine, query: str) -> int:
    with catalog.connect() as connection:
        return int(connection.execute(text(query)).scalar_one())


async def _callbacks(store: Store, plan: Plan) -> Figures:
    times, _ = await latency.measured(store.stage, plan.callbacks, PER_SECOND)
    took = [(times.told[fqid] - times.sent[fqid]) * 1000 for fqid in times.sent]
    return {
        "PUT to callback: p50 ms": statistics.median(took),
        "PUT to callback: p95 ms": statistics.quantiles(took, n=20)[-1],
    }


def _show(sides: list[list[Figures]], names: list[str]) -> None:
    """A line for each figure: the median of each side, and ours as a part of theirs."""
    ratio = f"{'ratio':>8}" if len(sides) > 1 else ""
    print(f"{'':<36}" + "".join(f"{name:>16}" for name in names) + ratio)
    for figure in sides[0][0]:
        medians = [statistics.median(one[figure] for one in side) for side in sides]
        decimals = DECIMALS.get(figure.split()[-1], 2)
        columns = "".join(f"{median:>16.{decimals}f}" for median in medians)
        ours, *theirs = medians
        print(
            f"{figure:<36}{columns}" + "".join(f"{ours / max(one, 1e-9):>8.2f}" for one in theirs)
        )


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beside", metavar="COMMIT", default=BASELINE, help="'' for none")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--bundles", type=int, default=BUNDLES)
    parser.add_argument("--idle", type=float, default=IDLE_S, metavar="SECONDS")
    given = parser.parse_args()
    compare(Plan(given.rounds, given.bundles, given.idle), _embedded, given.beside)
