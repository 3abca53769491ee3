"""Listing of all bundles, page by page, of 10,000 and of 100,000.

Run as `python -m bench.listing [rounds] [size size]`.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx
from werkzeug.http import parse_list_header

from bench import rows, stand
from pipelines import bundles
from pipelines.limits import PAGE_MAX
from storage.model import FQID
from storage.stores import Stores

SIZES = (10_000, 100_000)
FIRST = f"/v1/bundles/all?replica=aws&per_page={PAGE_MAX}"

Fetch = Callable[[str], tuple[Any, str | None]]
"""From a path to a page and the path of the next."""
Pages = Callable[[], Iterator[int]]
"""Walks a listing; the number of rows of every page."""


def main(rounds: int = 3, *sizes: int) -> None:
    """Print rows per second of each way to list, at each size."""
    sizes = sizes or SIZES
    fqids = rows.new_fqids(sizes[-1], salt="bundle")
    rates: list[dict[str, float]] = []
    with stand.running() as (store, settings, opened), httpx.Client(trust_env=False) as http:
        client = stand.application(settings, opened).test_client()
        ways: dict[str, Pages] = {
            "catalog": lambda: _catalog(opened),
            "API in process": lambda: _walk(lambda path: _page(client.get(path))),
            "API over HTTP": lambda: _walk(lambda path: _page(http.get(store.api + path))),
        }
        stored, before = 0, sum(_catalog(opened))
        for size in sizes:
            rows.add_bundles(opened.catalog, fqids[stored:size])
            stored = size
            rates.append(
                {name: _rate(pages, before + size, rounds) for name, pages in ways.items()}
            )
    _show(rates, sizes, rounds)


def _show(rates: list[dict[str, float]], sizes: Sequence[int], rounds: int) -> None:
    print(f"rows per second, pages of {PAGE_MAX}, best of {rounds} walks over all")
    print(f"{'':<16}" + "".join(f"{size:>10,}" for size in sizes) + f"{'change':>9}")
    for name in rates[0]:
        small, large = (rate[name] for rate in rates)
        print(f"{name:<16}{small:>10,.0f}{large:>10,.0f}{large / small:>8.2f}×")


def _rate(pages: Pages, expected: int, rounds: int) -> float:
    return max(_walked(pages, expected) for _ in range(rounds))


def _walked(pages: Pages, expected: int) -> float:
    began = time.perf_counter()
    assert sum(pages()) == expected
    return expected / (time.perf_counter() - began)


def _catalog(opened: Stores) -> Iterator[int]:
    after: FQID | None = None
    while page := bundles.list_versions(opened, "aws", "", after, PAGE_MAX):
        yield len(page)
        after = page[-1]


def _walk(fetch: Fetch) -> Iterator[int]:
    path: str | None = FIRST
    while path is not None:
        body, path = fetch(path)
        yield len(body["bundles"])


def _page(answer: Any) -> tuple[Any, str | None]:
    """Flask's answers and the client's are read alike."""
    body = answer.json() if callable(answer.json) else answer.json
    return body, _next(answer.headers.get("Link", ""))


def _next(link: str) -> str | None:
    """Path and query of the URL with the relation `next`."""
    for part in parse_list_header(link):
        address, _, relation = part.partition(">")
        if "next" in relation:
            return "/v1/" + address.partition("/v1/")[2]
    return None


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main(*map(int, sys.argv[1:]))
