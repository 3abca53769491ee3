"""GET /integrity, its metrics, and its part of /health."""

import pytest

from pipelines import scrub
from storage.catalog import integrity
from tests.api.builders import ADMIN, READER
from tests.builders import make_file
from tests.damage import damage
from tests.pipelines.test_scrub import blob_of
from tests.scrubs import age, run

REPORT = "/v1/integrity"


@pytest.mark.spec("INT-01")
def test_an_empty_store_has_no_objects_and_no_age(client) -> None:
    answer = client.get(REPORT)
    assert answer.status_code == 200
    nothing = {"objects": 0, "verified": 0, "damaged": 0, "repaired": 0}
    assert answer.json["replicas"] == {"aws": nothing, "gcp": nothing}
    assert answer.json["period_s"] == 30 * 86_400
    assert client.get(REPORT, headers=ADMIN).json["damaged"] == []
    assert client.get("/integrity").status_code == 200


@pytest.mark.spec("INT-01")
def test_counts_what_was_verified_within_the_period(client, stores) -> None:
    make_file(stores, b"old", everywhere=True)
    age(stores, 31)
    make_file(stores, b"new")
    replicas = client.get(REPORT).json["replicas"]
    assert [replicas["aws"][name] for name in ("objects", "verified")] == [4, 2]
    assert [replicas["gcp"][name] for name in ("objects", "verified")] == [2, 0]
    assert 31 * 86_400 <= replicas["gcp"]["oldest_unverified_s"] < 31 * 86_400 + 60


@pytest.mark.spec("INT-02")
def test_names_damage_until_it_is_repaired(client, stores) -> None:
    key = blob_of(stores, make_file(stores, b"content", everywhere=True))
    for replica in ("aws", "gcp"):
        damage(stores, replica, key, "first byte")
    age(stores, 16)
    run(stores)
    shown = client.get(REPORT, headers=ADMIN).json
    assert {(one["replica"], one["key"]) for one in shown["damaged"]} == {
        ("aws", key),
        ("gcp", key),
    }
    assert all(one["reason"] and one["found"] for one in shown["damaged"])
    part = client.get("/health", headers=ADMIN).json["parts"]["integrity"]
    assert (part["status"], part["damaged"]) == ("warning", 2)
    assert f"{key} in aws" in part["reason"]
    damage(stores, "aws", key, "removed")
    stores.replicas["aws"].put(key, b"content")
    age(stores, 1)
    run(stores)
    run(stores)
    assert client.get("/health").json["parts"]["integrity"]["status"] == "ok"
    with stores.catalog.read() as tx:
        counted = [integrity.count_objects(tx, name, since_us=0) for name in ("aws", "gcp")]
    assert [(one.damaged, one.repaired) for one in counted] == [(0, 1), (0, 1)]


@pytest.mark.spec("INT-02")
@pytest.mark.parametrize("headers", [{}, READER, {"Authorization": "Bearer wrong"}])
def test_readers_see_counts_and_no_keys_of_damaged_objects(client, stores, headers) -> None:
    key = blob_of(stores, make_file(stores, b"content", everywhere=True))
    for replica in ("aws", "gcp"):
        damage(stores, replica, key, "first byte")
    age(stores, 16)
    run(stores)
    part = client.get("/health", headers=headers).json["parts"]["integrity"]
    assert (part["status"], part["reason"]) == ("warning", "2 objects are damaged")
    report = client.get(REPORT, headers=headers)
    assert key not in report.text
    if report.status_code == 200:
        assert [report.json["replicas"][name]["damaged"] for name in ("aws", "gcp")] == [1, 1]


@pytest.mark.spec("INT-03")
def test_metrics_have_bytes_damage_repairs_and_the_oldest_age(client, stores) -> None:
    key = blob_of(stores, make_file(stores, b"content", everywhere=True))
    damage(stores, "gcp", key, "emptied")
    age(stores, 16)
    run(stores)
    page = client.get("/metrics", headers=ADMIN).text
    for line in (
        'store_objects{replica="gcp"} 2.0',
        'store_objects_damaged{replica="gcp"} 0.0',
        'store_damage_found_total{replica="gcp"} 1.0',
        'store_repairs_total{replica="gcp"} 1.0',
        'store_verified_bytes_total{replica="aws"} ' + f"{2.0 * scrub.MIN_OBJECT_BYTES}",
    ):
        assert line in page, page
    assert 'store_oldest_unverified_seconds{replica="aws"}' in page
