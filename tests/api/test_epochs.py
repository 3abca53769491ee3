"""While catalog and buckets disagree, reads work and writes are refused."""

import pytest

from api.app import create_app
from pipelines.recovery import epochs, reconcile
from storage import keys
from tests.api.builders import INGEST, VERSION, uuid_of
from tests.api.conftest import verify

pytestmark = pytest.mark.spec("OPS-13")

PATH = f"/v1/bundles/{uuid_of(1)}?replica=aws&version={VERSION}"


@pytest.fixture
def doubtful(stores) -> None:
    """A bucket whose marks were lost."""
    epochs.begin_epoch(stores)
    for name in epochs.list_marks(stores, "gcp"):
        stores.replicas["gcp"].delete(keys.epoch_key(name))
    assert epochs.check_epoch(stores) is not None


@pytest.fixture
def client(doubtful, settings, stores, job_queue):
    return create_app(settings, stores, job_queue=job_queue, verify=verify).test_client()


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


def test_reads_continue_and_health_gives_reason_of_read_only(client) -> None:
    assert client.get("/v1/bundles/all?replica=aws").status_code == 200
    answer = client.get("/health")
    writes = answer.json["parts"]["writes"]
    assert answer.status_code == 200, "whoever reads is served"
    assert (writes["status"], writes["read_only"]) == ("warning", True)
    assert "has no mark of an epoch" in writes["reason"]


def test_accepts_writes_after_reconcile(client, settings, stores, job_queue) -> None:
    reconcile.reconcile_catalog(stores)
    after = create_app(settings, stores, job_queue=job_queue, verify=verify).test_client()
    assert after.put(PATH, json={}, headers=INGEST).status_code == 400
    assert after.get("/health").json["parts"]["writes"]["status"] == "ok"
