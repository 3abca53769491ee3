from dataclasses import replace

import pytest

from api.app import create_app
from tests.api.builders import READER, uuid_of
from tests.api.conftest import verify


def test_a_checkout_runs_and_then_tells_where_the_copy_is(depositor, client, drain) -> None:
    uuid = depositor.bundle(1, files=2)
    begun = client.post(f"/v1/bundles/{uuid}/checkout?replica=gcp")
    assert begun.status_code == 200
    path = f"/v1/bundles/checkout/{begun.json['checkout_job_id']}?replica=gcp"
    running = client.get(path).json
    assert running["status"] == "RUNNING"
    assert running["progress"] == {"files": 0, "files_total": 2, "bytes": 0, "bytes_total": 14}
    assert "location" not in running
    drain()
    done = client.get(path).json
    assert done["status"] == "SUCCEEDED"
    assert done["location"]
    assert done["progress"]["files"] == 2
    assert client.get(path.replace("gcp", "aws")).status_code == 404


def test_an_absent_bundle_or_job_is_404(client) -> None:
    assert client.post(f"/v1/bundles/{uuid_of(1)}/checkout?replica=aws").status_code == 404
    assert client.get(f"/v1/bundles/checkout/{uuid_of(1)}?replica=aws").status_code == 404


@pytest.fixture
def allowing(settings, stores, chains):
    """A client of a store that lets checkouts go to some buckets."""
    told = replace(settings, checkout_destinations=("lab-*",))
    return create_app(told, stores, chains=chains, verify=verify).test_client()


def test_a_destination_wants_a_token_and_the_operators_consent(depositor, allowing, client) -> None:
    path = f"/v1/bundles/{depositor.bundle(1)}/checkout?replica=aws"
    body = {"destination": "lab-results"}
    assert allowing.post(path, json=body).status_code == 401
    assert allowing.post(path, json=body, headers=READER).status_code == 200
    elsewhere = allowing.post(path, json={"destination": "other"}, headers=READER)
    assert elsewhere.status_code == 403
    assert client.post(path, json=body, headers=READER).status_code == 403
