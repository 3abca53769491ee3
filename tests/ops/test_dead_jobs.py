"""The commands that list, retry and drop dead jobs."""

import json
from pathlib import Path

import pytest

from storage.catalog import audit, checkouts, jobs
from storage.catalog.audit import AuditFilter
from storage.catalog.checkouts import Checkout
from storage.model import Job
from tests.ops.commands import opened, park, run, run_json, typed

CHECKOUT = Checkout(
    id="6e1f9bc4-6aa5-4c26-a4b4-9ac17d5b5ab0",
    replica="aws",
    uuid="0be51642-6fcb-44ab-9dc8-fad3ee5204c5",
    version="2026-11-23T232003.566780Z",
    bundle_id=1,
    destination=None,
    email=None,
    requester=None,
    state="RUNNING",
    location=None,
    cause=None,
    files=0,
    files_total=1,
    bytes=0,
    bytes_total=1,
    created_us=0,
    finished_us=None,
)


def list_references(*words: str) -> set[str]:
    return {one["reference"] for one in run_json("dead", "list", *words)}


@pytest.fixture
def parked(home: Path) -> Path:
    park(home, Job("sync", "gcp", "file:a"), Job("sync", "aws", "file:b"))
    park(home, Job("index", "aws", "c"), reason="100% [broken]: no_such_field")
    park(home, Job("match", "aws", "d"), reason="The query failed")
    return home


@pytest.mark.spec("OPS-09")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), {"file:a", "file:b", "c", "d"}),
        (("--step", "sync"), {"file:a", "file:b"}),
        (("--step", "sync", "--replica", "aws"), {"file:b"}),
        (("--ref", "c"), {"c"}),
        (("--reason", "QUERY"), {"d"}),
        (("--reason", "never"), {"file:a", "file:b"}),
        (("--reason", "the*"), {"d"}),
        (("--reason", "query*"), set()),
        (("--reason", "it never work?"), {"file:a", "file:b"}),
        (("--reason", "0%"), {"c"}),
        (("--reason", "1%n"), set()),
        (("--reason", "no_such"), {"c"}),
        (("--reason", "no.such"), set()),
        (("--reason", "[broken]"), {"c"}),
        (("--reason", "such_"), {"c"}),
        (("--reason", "suc__"), set()),
        (("--reason", "\\"), set()),
    ],
)
def test_dead_jobs_are_chosen_by_step_and_reason(
    parked: Path, words: tuple[str, ...], expected: set[str]
) -> None:
    assert list_references(*words) == expected


@pytest.mark.spec("OPS-09")
def test_limits_listed_and_retried_jobs_to_the_latest(parked: Path) -> None:
    assert list_references("--limit", "1") == {"d"}
    assert run_json("dead", "retry", "--limit", "2") == {"retried": 2}
    assert list_references() == {"file:a", "file:b"}
    assert run("parked", "retry") == "2 rows are due again\n"
    assert list_references() == set()


@pytest.mark.spec("OPS-09")
def test_rejects_unknown_step_and_lists_all(parked: Path) -> None:
    for command in ("list", "retry", "drop"):
        result = typed("dead", command, "--step", "sink")
        assert result.exit_code == 2
        assert "verify_large" in result.output


@pytest.mark.spec("OPS-09")
def test_drops_chosen_jobs_and_records_them(parked: Path) -> None:
    assert typed("dead", "drop").exit_code == 2
    refused = typed("dead", "drop", "--step", "index", answer="n\n")
    assert refused.exit_code == 1
    assert "rebuild index" in refused.output
    assert "c" in list_references()
    dropped = typed("dead", "drop", "--step", "index", "--json", "--yes")
    assert json.loads(dropped.stdout)["dropped"] == 1
    assert list_references() == {"file:a", "file:b", "d"}
    with opened(parked).catalog.read() as tx:
        (entry,) = audit.list_records(
            tx, AuditFilter(what="drop_dead_jobs"), before_id=None, limit=9
        )
        assert not jobs.exists(tx, Job("index", "aws", "c"))
    assert (entry.who, entry.target) == (audit.OPERATOR, "jobs/index")
    assert json.loads(entry.before or "") == {"count": 1, "jobs": ["aws c"]}
    assert run_json("dead", "drop", "--step", "index")["dropped"] == 0


@pytest.mark.spec("OPS-09")
@pytest.mark.parametrize("step", ["verify", "verify_large", "bury", "mark", "forget", "deposit"])
def test_refuses_to_drop_what_was_accepted(parked: Path, step: str) -> None:
    park(parked, Job(step, "aws", "e"), reason="it never works")
    refused = typed("dead", "drop", "--reason", "never", "--yes")
    assert refused.exit_code == 1
    assert f"{step} (1): " in refused.output
    assert list_references() == {"file:a", "file:b", "c", "d", "e"}


@pytest.mark.spec("OPS-09")
def test_dropped_checkout_ends_as_failed(home: Path) -> None:
    stores = opened(home)
    with stores.catalog.write() as tx:
        checkouts.insert_checkout(tx, CHECKOUT)
    park(home, Job("checkout", "aws", CHECKOUT.id))
    assert run_json("dead", "drop", "--step", "checkout", "--yes")["dropped"] == 1
    with stores.catalog.read() as tx:
        found = checkouts.find(tx, CHECKOUT.id)
    assert found is not None
    assert (found.state, "operator" in (found.cause or "")) == ("FAILED", True)


@pytest.mark.spec("OPS-09")
@pytest.mark.parametrize("option", ["--reason", "--ref"])
@pytest.mark.parametrize("words", [("list",), ("retry",), ("drop", "--yes")])
def test_refuses_an_empty_choice(parked: Path, words: tuple[str, ...], option: str) -> None:
    # An empty variable of a script would choose every job.
    answer = typed("dead", *words, option, "")
    assert (answer.exit_code, f"'{option}': must not be empty" in answer.output) == (2, True)
    assert list_references() == {"file:a", "file:b", "c", "d"}
