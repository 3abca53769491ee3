"""Checkouts over HTTP: start, poll, choose a destination, reject."""

from dataclasses import replace
from pathlib import Path

import pytest

from api.app import create_app
from config import Settings
from pipelines import checkouts
from storage.catalog import jobs
from storage.model import Job
from tests.api.builders import READER, VERSION, uuid_of
from tests.api.conftest import verify

LATER = "2026-02-01T000000.000000Z"


@pytest.mark.spec("SVC-10", "CHK-01", "CHK-07", "CHK-08", "CHK-09", "STA-01", "STA-02")
def test_finished_checkout_has_location(depositor, client, drain) -> None:
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


@pytest.mark.spec("CHK-01", "CHK-07")
def test_an_absent_bundle_or_job_is_404(client) -> None:
    assert client.post(f"/v1/bundles/{uuid_of(1)}/checkout?replica=aws").status_code == 404
    assert client.get(f"/v1/bundles/checkout/{uuid_of(1)}?replica=aws").status_code == 404


@pytest.fixture
def allowing(settings, stores, job_queue):
    """A client of a store that lets checkouts go to some buckets."""
    told = replace(settings, checkout_destinations=("lab-*",))
    return create_app(told, stores, job_queue=job_queue, verify=verify).test_client()


@pytest.mark.spec("CHK-03")
def test_destination_requires_token_and_configuration(depositor, allowing, client) -> None:
    path = f"/v1/bundles/{depositor.bundle(1)}/checkout?replica=aws"
    body = {"destination": "lab-results"}
    assert allowing.post(path, json=body).status_code == 401
    assert allowing.post(path, json=body, headers=READER).status_code == 200
    elsewhere = allowing.post(path, json={"destination": "other"}, headers=READER)
    assert elsewhere.status_code == 403
    assert client.post(path, json=body, headers=READER).status_code == 403


@pytest.mark.spec("CHK-01", "STA-01")
def test_the_latest_version_is_copied_unless_one_is_named(depositor, client, drain, stores) -> None:
    entries = [depositor.file(1), depositor.file(2)]
    depositor.put_bundle(uuid_of(9), entries)
    depositor.put_bundle(uuid_of(9), entries[:1], version=LATER)
    totals = []
    for query in ("", f"&version={VERSION}"):
        path = f"/v1/bundles/{uuid_of(9).upper()}/checkout?replica=aws{query}"
        job = client.post(path).json["checkout_job_id"]
        shown = client.get(f"/v1/bundles/checkout/{job.upper()}?replica=aws").json
        totals.append(shown["progress"]["files_total"])
    assert totals == [1, 2]
    absent = f"/v1/bundles/{uuid_of(9)}/checkout?replica=aws&version=2026-03-01T000000.000000Z"
    assert client.post(absent).status_code == 404


@pytest.mark.spec("CHK-10")
def test_failed_checkout_has_reason(depositor, allowing, drain) -> None:
    path = f"/v1/bundles/{depositor.bundle(1)}/checkout?replica=aws"
    job = allowing.post(path, json={"destination": "lab-nowhere"}, headers=READER).json
    drain()
    shown = allowing.get(f"/v1/bundles/checkout/{job['checkout_job_id']}?replica=aws").json
    assert shown["status"] == "FAILED"
    assert "lab-nowhere" in shown["cause"]
    assert "location" not in shown


@pytest.mark.spec("CHK-03")
def test_rejects_store_buckets_as_destination(depositor, settings, stores, job_queue) -> None:
    class Sources:
        """Of which only the store's own are asked."""

        def is_own_bucket(self, url: str) -> bool:
            return url == "file://our-own/x"

    told = replace(settings, checkout_destinations=("*",))
    own = replace(stores, sources=Sources())
    client = create_app(told, own, job_queue=job_queue, verify=verify).test_client()
    path = f"/v1/bundles/{depositor.bundle(1)}/checkout?replica=aws"
    for destination, status in (("our-own", 403), ("another", 200)):
        answer = client.post(path, json={"destination": destination}, headers=READER)
        assert answer.status_code == status


@pytest.mark.spec("CHK-02")
@pytest.mark.parametrize("member", ["destination", "email"])
def test_a_body_and_its_members_may_be_left_out(depositor, client, member) -> None:
    path = f"/v1/bundles/{depositor.bundle(1)}/checkout?replica=aws"
    for given in ({}, {"json": {}}, {"json": {member: None}}):
        assert client.post(path, **given).status_code == 200


@pytest.mark.spec("CHK-04")
@pytest.mark.parametrize(
    ("destination", "word"), [(None, "is checked out"), ("lab-nowhere", "failed")]
)
def test_mails_result_to_requester(depositor, stores, job_queue, drain, destination, word) -> None:
    sent: list[tuple[str, str, str]] = []
    posting = replace(stores, send_mail=lambda *letter: sent.append(letter))
    wanted = checkouts.CheckoutRequest(
        "aws", depositor.bundle(1), None, destination, "ada@example.org"
    )
    job = checkouts.create(posting, wanted, None)
    drain()
    row = Job("mail", "aws", job.job_id)
    assert row in [sent_row for sent_row, _ in job_queue.sent]
    with stores.catalog.write() as tx:
        jobs.insert(tx, [row])
        claim = jobs.claim(tx, row, token="t", lease_s=60, max_claims=5)
    checkouts.send_mail(posting, claim, lambda _n: None)
    ((address, subject, text),) = sent
    assert address == "ada@example.org"
    assert word in subject
    assert (job.job_id if destination else "are at") in text


@pytest.mark.spec("CHK-08")
def test_status_reports_missing_mail_server(depositor, client) -> None:
    path = f"/v1/bundles/{depositor.bundle(1)}/checkout?replica=aws"
    for body, mail in (({"email": "ada@example.org"}, "not_configured"), ({}, None)):
        begun = client.post(path, json=body)
        assert begun.status_code == 200
        job = begun.json["checkout_job_id"]
        status = client.get(f"/v1/bundles/checkout/{job}?replica=aws").json
        assert status.get("mail") == mail


@pytest.mark.spec("CHK-11")
def test_copies_expire_after_14_days(depositor, client, stores, drain) -> None:
    assert Settings().checkout_keep_days == 14
    uuid = depositor.bundle(1)
    job = client.post(f"/v1/bundles/{uuid}/checkout?replica=aws").json["checkout_job_id"]
    drain()
    assert checkouts.expire(stores, 2**60) == 1
    shown = client.get(f"/v1/bundles/checkout/{job}?replica=aws").json
    assert shown["status"] == "FAILED"
    assert "kept" in shown["cause"]


@pytest.mark.spec("CHK-02")
def test_copies_to_requested_destination(depositor, allowing, drain, settings) -> None:
    root = settings.home / "checkouts" / "destinations" / "gcp" / "lab-results"
    root.mkdir(parents=True)
    path = f"/v1/bundles/{depositor.bundle(1)}/checkout?replica=gcp"
    job = allowing.post(path, json={"destination": "lab-results"}, headers=READER).json
    drain()
    shown = allowing.get(f"/v1/bundles/checkout/{job['checkout_job_id']}?replica=gcp").json
    assert shown["status"] == "SUCCEEDED"
    folder = Path(shown["location"].removeprefix("file://"))
    assert folder.is_relative_to(root)
    assert (folder / "f256.txt").read_bytes() == b"content"
