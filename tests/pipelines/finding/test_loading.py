"""Loading documents: their memory is reserved for as long as they are used."""

from dataclasses import replace

import pytest

from pipelines.finding import loading
from storage.catalog import bundles
from storage.errors import Unavailable
from storage.memory import MemoryBudget
from storage.stores import Stores
from tests.builders import make_file
from tests.pipelines.filled import write

MB = 1024 * 1024


def silent(_moved: int) -> None:
    """Report no progress."""


def bundle_of(stores: Stores, content: bytes) -> int:
    file = make_file(stores, content, content_type="application/json")
    fqid = write(stores, file)
    with stores.catalog.read() as tx:
        row = bundles.by_fqid(tx, fqid)
    assert row is not None
    return row.bundle.id


@pytest.mark.parametrize("is_cached", [False, True])
def test_a_document_waits_for_memory_that_others_hold(stores: Stores, is_cached: bool) -> None:
    budget = MemoryBudget(40 * MB, timeout_s=0.01)
    own = replace(stores, memory=budget)
    ident = bundle_of(own, b"[" + b"{}," * 100_000 + b"{}]")
    if is_cached:
        loading.document_text(own, "aws", ident, silent)
    with (
        budget.reserved(40 * MB),
        pytest.raises(Unavailable),
        loading.document(own, "aws", ident, silent),
    ):
        pass
    with (
        loading.document(own, "aws", ident, silent) as document,
        pytest.raises(Unavailable),
        budget.reserved(40 * MB),
    ):
        assert document["files"]
    assert not document
    with budget.reserved(40 * MB):
        pass


def test_a_text_that_is_assembled_waits_and_a_cached_one_does_not(stores: Stores) -> None:
    budget = MemoryBudget(40 * MB, timeout_s=0.01)
    own = replace(stores, memory=budget)
    ident = bundle_of(own, b"[" + b"{}," * 100_000 + b"{}]")
    with budget.reserved(40 * MB), pytest.raises(Unavailable):
        loading.document_text(own, "aws", ident, silent)
    text = loading.document_text(own, "aws", ident, silent)
    with budget.reserved(40 * MB):
        assert loading.document_text(own, "aws", ident, silent) == text
