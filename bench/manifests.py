"""PUT of large bundles against the standard library's parse and dump of the same body.

Run as `python -m bench.manifests [rounds] [files ...]`.
"""

import json
import logging
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import httpx
from sqlalchemy import func, select

from bench import counting, rows, stand
from storage.catalog import now_us
from storage.catalog.tables.jobs import todo
from storage.model import FQID
from storage.stores import Stores

SIZES = (1_000, 20_000)
REST_S = 10.0
Put = Callable[[FQID, bytes], None]


def main(rounds: int = 7, *sizes: int) -> None:
    """Print seconds and ratios, in process and over HTTP, and how often a backend was called."""
    sizes = sizes or SIZES
    files = rows.new_fqids(max(sizes), salt="file")
    print(f"{rounds} rounds each; stdlib is json.dumps(json.loads(body)), measured beside each PUT")
    print(f"{'files':>6} {'':<10}{'stdlib ms':>10}{'median ms':>10}{'best ms':>9}{'ratio':>14}")
    _in_process(files, sizes, rounds)
    _over_http(files, sizes, rounds)


def _in_process(files: list[FQID], sizes: Sequence[int], rounds: int) -> None:
    with stand.stores() as (settings, opened), counting.counting(opened) as counted:
        counted_stores, calls, statements = counted
        rows.add_files(opened.catalog, files)
        client = stand.application(settings, counted_stores).test_client()

        def put(fqid: FQID, body: bytes) -> None:
            calls.clear()
            statements.clear()
            answer = client.put(_path(fqid), data=body, headers=_headers(stand.AUTHORIZED))
            assert answer.status_code == 201, answer.text

        counts = []
        for size in sizes:
            _compare("in process", put, files[:size], rounds)
            told = ", ".join(f"{count} {verb}" for verb, count in sorted(calls.items()))
            counts.append(f"{size} files: {len(statements)} SQL statements, blob calls: {told}")
    print(*counts, sep="\n")


def _over_http(files: list[FQID], sizes: Sequence[int], rounds: int) -> None:
    with stand.running() as (store, _, opened):
        rows.add_files(opened.catalog, files)
        headers = _headers({"Authorization": f"Bearer {store.token}"})
        with httpx.Client(base_url=store.api, headers=headers, trust_env=False, timeout=60) as http:

            def put(fqid: FQID, body: bytes) -> None:
                answer = http.put(_path(fqid), content=body)
                assert answer.status_code == 201, answer.text

            def rest() -> None:
                _until_nobody_works(opened)

            for size in sizes:
                _compare("HTTP", put, files[:size], rounds, rest)


def _until_nobody_works(opened: Stores) -> None:
    """The workers have done with the last bundle, or given up its sync: its files have no bytes."""
    deadline = time.perf_counter() + REST_S
    while _working(opened) and time.perf_counter() < deadline:
        time.sleep(0.05)


def _working(opened: Stores) -> int:
    with opened.catalog.read() as tx:
        busy = todo.c.token.is_not(None) | (todo.c.due_us <= now_us(tx))
        query = select(func.count()).where(busy, todo.c.parked_us.is_(None))
        return int(tx.execute(query).scalar_one())


def _headers(authorized: dict[str, str]) -> dict[str, str]:
    return {**authorized, "Content-Type": "application/json"}


def _path(fqid: FQID) -> str:
    return f"/v1/bundles/{fqid.uuid}?version={fqid.version}&replica=aws"


def _compare(
    how: str, put: Put, files: list[FQID], rounds: int, rest: Callable[[], None] = lambda: None
) -> None:
    """PUT and standard library take turns, after one PUT that does not count."""
    body = _body(files)
    ours, theirs = [], []
    first, *others = _in_one_folder(rows.new_fqids(rounds + 1, salt=f"{how} {len(files)}"))
    put(first, body)
    for fqid in others:
        rest()
        theirs.append(_seconds(lambda: json.dumps(json.loads(body))))
        ours.append(_seconds(lambda fqid=fqid: put(fqid, body)))  # type: ignore[misc]
    middle, best = statistics.median(ours), min(ours)
    ratios = f"{middle / statistics.median(theirs):.1f}, best {best / min(theirs):.1f}"
    print(
        f"{len(files):>6} {how:<10}{statistics.median(theirs) * 1000:>10.1f}{middle * 1000:>10.1f}"
        f"{best * 1000:>9.1f}{ratios:>16}"
    )


def _in_one_folder(fqids: list[FQID]) -> list[FQID]:
    """A store in use has long made the folders that its records' keys begin with."""
    return [FQID("00" + fqid.uuid[2:], fqid.version) for fqid in fqids]


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _body(files: list[FQID]) -> bytes:
    entries = [
        {
            "uuid": file.uuid,
            "version": file.version,
            "name": f"lane_{place % 8}/reads_{place}.fastq.gz",
            "indexed": False,
        }
        for place, file in enumerate(files)
    ]
    return json.dumps({"creator_uid": 1, "files": entries}).encode()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main(*map(int, sys.argv[1:]))
