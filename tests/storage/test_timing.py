"""Calls to engines are measured with their outcomes, and the pool of the catalog with its share."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from storage import metrics
from storage.catalog import Catalog
from storage.errors import Invalid, NotFoundError, TimeLimitExceeded, Unavailable
from storage.metrics import REGISTRY
from storage.timing import time_search_index

pytestmark = pytest.mark.spec("OPS-02")

OUTCOMES = {
    "absent": NotFoundError("there is none"),
    "refused": Invalid("it has no such field"),
    "timeout": TimeLimitExceeded("it took longer than it may"),
    "unavailable": Unavailable("it does not answer"),
    "failed": ZeroDivisionError("oh"),
}


class FailingIndex:
    """An index whose pings fail."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def ping(self) -> str:
        raise self._error


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_outcome_of_failed_call_is_counted(outcome: str) -> None:
    index = FailingIndex(OUTCOMES[outcome])
    time_search_index(index, "of this test")  # type: ignore[arg-type]
    labels = {"replica": "of this test", "verb": "ping", "outcome": outcome}
    before = REGISTRY.get_sample_value("store_search_seconds_count", labels) or 0
    with pytest.raises(type(OUTCOMES[outcome])):
        index.ping()
    assert REGISTRY.get_sample_value("store_search_seconds_count", labels) == before + 1


def test_share_of_the_connections_in_use_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Catalogs of other tests in this process have the name `other`.
    monkeypatch.setattr(metrics, "_process", "of this test")
    catalog = Catalog(f"sqlite:///{tmp_path / 'catalog.sqlite'}", connections=3, overflow=1)
    labels, shares = {"process": "of this test"}, []
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(catalog.read())
            shares.append(REGISTRY.get_sample_value("store_catalog_pool_used_ratio", labels))
    shares.append(REGISTRY.get_sample_value("store_catalog_pool_used_ratio", labels))
    catalog.close()
    assert shares == [0.25, 0.5, 0.75, 1.0, 0.0]
