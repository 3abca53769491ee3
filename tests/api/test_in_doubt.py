"""While catalog and buckets are not of one epoch: reads go on, writes are refused with the reason."""

import pytest

from api.app import create_app
from pipelines.recovering import epochs, reconciling
from storage import keys
from tests.api.builders import INGEST, VERSION, uuid_of
from tests.api.conftest import verify

PATH = f"/v1/bundles/{uuid_of(1)}?replica=aws&version={VERSION}"


@pytest.fixture
def doubtful(stores) -> None:
    """A bucket whose marks were lost."""
    epochs.begin(stores)
    for name in epochs.marks(stores, "gcp"):
        stores.replicas["gcp"].delete(keys.epoch(name))
    assert epochs.judge(stores) is not None


@pytest.fixture
def client(doubtful, settings, stores, chains):
    return create_app(settings, stores, chains=chains, verify=verify).test_client()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", PATH),
        ("PATCH", PATH),
        ("DELETE", PATH),
        ("PUT", f"/v1/files/{uuid_of(1)}?version={VERSION}"),
        ("PUT", f"/v1/collections?replica=aws&uuid={uuid_of(1)}&version={VERSION}"),
        ("PUT", f"/v1/subscriptions?replica=aws&uuid={uuid_of(1)}"),
        ("POST", f"/v1/area/{uuid_of(1)}"),
    ],
)
def test_every_write_is_503_with_the_way_out(client, method, path) -> None:
    refused = client.open(path, method=method, json={}, headers=INGEST)
    assert (refused.status_code, refused.json["code"]) == (503, "read_only")
    assert "ops reconcile" in refused.json["detail"]
    assert int(refused.headers["Retry-After"]) > 0


def test_reads_go_on_and_health_says_why_writes_do_not(client) -> None:
    assert client.get("/v1/bundles/all?replica=aws").status_code == 200
    answer = client.get("/health")
    writes = answer.json["parts"]["writes"]
    assert answer.status_code == 200, "whoever reads is served"
    assert (writes["status"], writes["read_only"]) == ("warning", True)
    assert "has no mark of an epoch" in writes["reason"]


def test_once_reconciled_writes_are_taken_again(client, settings, stores, chains) -> None:
    reconciling.reconcile(stores)
    after = create_app(settings, stores, chains=chains, verify=verify).test_client()
    assert after.put(PATH, json={}, headers=INGEST).status_code == 400
    assert after.get("/health").json["parts"]["writes"]["status"] == "ok"
