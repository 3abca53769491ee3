"""Deleting bundles: what is hidden from that moment, what is told, and what can never come back."""

import pytest

from storage.catalog import events
from storage.model import FQID, REPLICAS
from tests.api.builders import INGEST, VERSION, Depositor, uuid_of

LATER = "2026-02-01T000000.000000Z"
LATEST = "2026-03-01T000000.000000Z"
UUID = uuid_of(9)


@pytest.fixture
def two_versions(depositor: Depositor) -> str:
    """A bundle in two versions, in both replicas."""
    entry = depositor.file(1)
    for version in (VERSION, LATER):
        assert depositor.put_bundle(UUID, [entry], version=version).status_code == 201
    depositor.drain()
    return UUID


def delete(client, query: str, reason: str = "withdrawn"):
    return client.delete(f"/v1/bundles/{UUID}?{query}", json={"reason": reason}, headers=INGEST)


def live(client, replica: str) -> list[str]:
    listed = client.get(f"/v1/bundles/all?replica={replica}").json["bundles"]
    return [bundle["version"] for bundle in listed]


@pytest.mark.parametrize("replica", REPLICAS)
def test_a_deleted_version_is_gone_from_every_replica_and_the_others_stay(
    client, two_versions, replica
) -> None:
    gone = delete(client, f"replica={replica}&version={LATER}")
    assert (gone.status_code, gone.json) == (200, {})
    for asked in REPLICAS:
        path = f"/v1/bundles/{UUID}?replica={asked}"
        assert client.get(f"{path}&version={LATER}").status_code == 404
        assert client.get(path).json["bundle"]["version"] == VERSION
        assert live(client, asked) == [VERSION]
        checkout = f"/v1/bundles/{UUID}/checkout?replica={asked}&version={LATER}"
        assert client.post(checkout).status_code == 404


@pytest.mark.parametrize("replica", REPLICAS)
def test_a_deleted_bundle_is_gone_whole_and_for_later_versions_too(
    client, depositor, two_versions, replica
) -> None:
    assert delete(client, f"replica={replica}").status_code == 200
    for asked in REPLICAS:
        assert live(client, asked) == []
        assert client.get(f"/v1/bundles/{UUID}?replica={asked}").status_code == 404
    entry = depositor.file(1)
    for version in (VERSION, LATEST):
        for named in REPLICAS:
            again = depositor.put_bundle(UUID, [entry], version=version, replica=named)
            assert (again.status_code, again.json["code"]) == (
                409,
                "bundle_tombstone_already_exists",
            )


def test_a_deleted_version_cannot_be_put_again_and_a_later_one_can(
    client, depositor, two_versions
) -> None:
    delete(client, f"replica=aws&version={LATER}")
    entry = depositor.file(1)
    again = depositor.put_bundle(UUID, [entry], version=LATER)
    assert (again.status_code, again.json["code"]) == (409, "bundle_tombstone_already_exists")
    assert depositor.put_bundle(UUID, [entry], version=LATEST).status_code == 201


def test_each_version_that_was_live_is_told_of_once_in_each_replica(
    client, stores, depositor, two_versions
) -> None:
    delete(client, f"replica=aws&version={VERSION}")
    for _ in range(2):
        assert delete(client, "replica=gcp").status_code == 200
    depositor.drain()
    with stores.catalog.read() as tx:
        rows = tx.exec_driver_sql("SELECT id FROM events WHERE type = 'TOMBSTONE'").scalars().all()
    expected = {
        events.event_id("TOMBSTONE", replica, FQID(UUID, version))
        for replica in REPLICAS
        for version in (VERSION, LATER)
    }
    assert len(rows) == 4
    assert set(rows) == expected


def test_a_version_is_deleted_for_one_reason_only(client, two_versions) -> None:
    for reason, status in (("a", 200), ("a", 200), ("b", 409)):
        answer = delete(client, f"replica=aws&version={LATER}", reason)
        assert answer.status_code == status
    assert answer.json["code"] == "bundle_tombstone_already_exists"


def test_what_never_was_cannot_be_deleted(client, two_versions) -> None:
    for query in (f"replica=aws&version={LATEST}", f"replica=gcp&version={LATEST}"):
        absent = delete(client, query)
        assert (absent.status_code, absent.json["code"]) == (404, "not_found")
    never = client.delete(
        f"/v1/bundles/{uuid_of(77)}?replica=aws", json={"reason": "x"}, headers=INGEST
    )
    assert never.status_code == 404
