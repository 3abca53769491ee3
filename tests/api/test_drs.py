"""GA4GH DRS over HTTP: objects, access, errors, permissions."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import crcmod.predefined
import pytest
from flask.testing import FlaskClient

from api.app import create_app
from auth import accounts
from auth.accounts import NewAccount
from auth.policies.grammar import parse_policy
from config import Settings
from pipelines import drs
from storage import keys
from storage.catalog.accounts import AccountKey
from storage.errors import Unprocessable
from storage.model import FQID, REPLICAS, Checksums
from storage.stores import Stores
from tests.api.builders import INGEST, READER, VERSION, Depositor, uuid_of
from tests.api.conftest import PEOPLE, verify
from tests.auth.accounts.builders import BY
from tests.auth.policies.builders import document, statement
from tests.conftest import Outbox
from tests.damage import damage
from tests.storage.blobs import backend_gcs, backend_s3
from tests.storage.blobs.backend_gcs import running
from tests.storage.blobs.backend_s3 import SIMULATED
from tests.storage.blobs.s3_server import lasting_s3

ROOT = "/ga4gh/drs/v1"
DATA = b"content"
SHA256 = hashlib.sha256(DATA).hexdigest()
Make = Callable[..., FlaskClient]


@pytest.fixture
def make(settings: Settings, stores: Stores, job_queue: Outbox) -> Make:
    """Build a client of the application with other settings or stores."""

    def build(*, on: Stores = stores, **more: Any) -> FlaskClient:
        changed = replace(settings, **more)
        return create_app(changed, on, job_queue=job_queue, verify=verify).test_client()

    return build


def object_path(uuid: str) -> str:
    return f"{ROOT}/objects/{uuid}.{VERSION}"


# What an object is -------------------------------------------------------------------------


@pytest.mark.spec("DRS-01")
def test_service_info_says_what_the_service_is(make: Make) -> None:
    told = {"external_url": "https://store.example", "web_about": "Kidneys."}
    info = make(**told, web_contact="help@store.example").get(f"{ROOT}/service-info").json
    assert info["type"] == {"group": "org.ga4gh", "artifact": "drs", "version": "1.2.0"}
    assert info["organization"] == {"name": "Data store", "url": "https://store.example"}
    assert (info["id"], info["description"]) == ("example.store.drs", "Kidneys.")
    assert info["contactUrl"] == "mailto:help@store.example"


@pytest.mark.spec("DRS-01")
def test_operations_are_at_the_root_and_below_v1(client: FlaskClient, depositor: Depositor) -> None:
    path = object_path(depositor.file(1)["uuid"])
    for below in (f"{ROOT}/service-info", path, f"{path}/access/aws"):
        at_root, versioned = client.get(below), client.get(f"/v1{below}")
        assert (at_root.status_code, versioned.status_code) == (200, 200)
        assert at_root.json.keys() == versioned.json.keys()


@pytest.mark.spec("DRS-02", "DRS-03", "DRS-04", "DRS-05")
def test_a_file_is_an_object_with_checksums_and_access(
    client: FlaskClient, depositor: Depositor
) -> None:
    uuid = depositor.file(1)["uuid"]
    found = client.get(object_path(uuid.upper())).json
    fqid = f"{uuid}.{VERSION}"
    assert (found["id"], found["self_uri"]) == (fqid, f"drs://localhost/{fqid}")
    assert (found["size"], found["version"], found["mime_type"]) == (7, VERSION, "text/plain")
    assert found["created_time"] == found["updated_time"]
    assert found["created_time"].endswith("Z")
    crc32c = crcmod.predefined.mkCrcFun("crc-32c")(DATA)
    assert {one["type"]: one["checksum"] for one in found["checksums"]} == {
        "sha-256": SHA256,
        "sha1": hashlib.sha1(DATA).hexdigest(),
        "md5": hashlib.md5(DATA).hexdigest(),
        "crc32c": f"{crc32c:08x}",
    }
    assert found["access_methods"] == [
        {"type": "https", "access_id": "aws"},
        {"type": "https", "access_id": "gcp"},
    ]
    assert "contents" not in found


@pytest.mark.spec("DRS-04")
def test_an_etag_of_several_parts_is_no_md5() -> None:
    listed = drs.list_checksums(Checksums("1", "2", "3", f"{'0' * 32}-2"))
    assert [one["type"] for one in listed] == ["sha-256", "sha1", "crc32c", "etag"]


@pytest.mark.spec("DRS-03", "DRS-06")
@pytest.mark.parametrize("expand", ["", "?expand=true", "?expand=True", "?expand=false"])
def test_a_bundle_is_an_object_with_contents(
    client: FlaskClient, depositor: Depositor, expand: str
) -> None:
    entries = [depositor.file(number, bytes([number])) for number in (1, 2, 3)]
    entries[1]["name"] = "reads/lane 1.fastq"
    bundle = uuid_of(9)
    assert depositor.put_bundle(bundle, entries).status_code == 201
    found = client.get(object_path(bundle) + expand).json
    fqids = [f"{entry['uuid']}.{VERSION}" for entry in entries]
    assert found["contents"] == [
        {"name": entry["name"], "id": fqid, "drs_uri": [f"drs://localhost/{fqid}"]}
        for entry, fqid in zip(entries, fqids, strict=True)
    ]
    sums = sorted(hashlib.sha256(bytes([number])).hexdigest() for number in (1, 2, 3))
    joined = hashlib.sha256("".join(sums).encode()).hexdigest()
    assert found["checksums"] == [{"type": "sha-256", "checksum": joined}]
    assert (found["size"], "access_methods" in found) == (3, False)


@pytest.mark.spec("DRS-06", "ERR-48")
def test_contents_are_bounded(stores: Stores, depositor: Depositor) -> None:
    fqid = FQID(depositor.bundle(1, files=3), VERSION)
    whole = drs.find_bundle(stores, REPLICAS, fqid, str, most=3)
    assert whole is not None
    assert len(whole.contents) == 3
    with pytest.raises(Unprocessable) as refused:
        drs.find_bundle(stores, REPLICAS, fqid, str, most=2)
    assert refused.value.code == "contents_too_large"


# Which objects there are -------------------------------------------------------------------


@pytest.mark.spec("DRS-02", "DRS-09")
@pytest.mark.parametrize(
    "object_id",
    ["x", "a/b", uuid_of(1), f"{uuid_of(1)}.1", f"{uuid_of(7)}.{VERSION}", f"{uuid_of(7)}.", "%00"],
)
def test_absent_objects_are_404_with_an_error_of_drs(client: FlaskClient, object_id: str) -> None:
    for path in (f"{ROOT}/objects/{object_id}", f"{ROOT}/objects/{object_id}/access/aws"):
        answer = client.get(path, headers={"Accept": "text/html"})
        assert (answer.status_code, answer.mimetype) == (404, "application/json")
        assert answer.json.keys() == {"msg", "status_code"}
        assert answer.json["status_code"] == 404


@pytest.mark.spec("DRS-02")
def test_withdrawn_bundles_are_404(client: FlaskClient, depositor: Depositor) -> None:
    bundle = depositor.bundle(1)
    assert client.get(object_path(bundle)).status_code == 200
    gone = client.delete(f"/v1/bundles/{bundle}?replica=gcp", json={"reason": "r"}, headers=INGEST)
    assert gone.status_code == 200
    assert client.get(object_path(bundle)).status_code == 404


@pytest.mark.spec("DRS-02")
def test_a_version_of_both_kinds_is_the_file(client: FlaskClient, depositor: Depositor) -> None:
    entry = depositor.file(1)
    assert depositor.put_bundle(entry["uuid"], [entry]).status_code == 201
    assert "access_methods" in client.get(object_path(entry["uuid"])).json


@pytest.mark.spec("DRS-07")
def test_a_pending_file_is_202_until_it_is_verified(
    client: FlaskClient, depositor: Depositor
) -> None:
    depositor.put_file(uuid_of(1))
    for path in (object_path(uuid_of(1)), f"{object_path(uuid_of(1))}/access/aws"):
        answer = client.get(path)
        assert (answer.status_code, answer.json["status_code"]) == (202, 202)
        assert int(answer.headers["Retry-After"]) > 0
    depositor.drain()
    assert client.get(object_path(uuid_of(1))).status_code == 200


@pytest.mark.spec("DRS-02")
def test_a_file_that_failed_its_verification_is_404(
    client: FlaskClient, depositor: Depositor, stores: Stores
) -> None:
    url = depositor.stage(DATA)
    key = stores.sources.resolve_area_key(url)
    assert key is not None
    info = stores.areas.head(key)
    stores.areas.delete(key)
    stores.areas.put(key, DATA.upper(), metadata=info.metadata)
    depositor.put_file(uuid_of(1), source=url)
    depositor.drain()
    assert client.get(object_path(uuid_of(1))).status_code == 404


# Access ------------------------------------------------------------------------------------


@pytest.mark.spec("DRS-08")
def test_access_is_a_url_that_needs_no_token(client: FlaskClient, depositor: Depositor) -> None:
    path = object_path(depositor.file(1)["uuid"])
    for replica in REPLICAS:
        url = client.get(f"{path}/access/{replica}").json["url"]
        assert client.get(url.removeprefix("http://localhost")).data == DATA
    for wrong in ("s3", "AWS", "a" * 300):
        assert client.get(f"{path}/access/{wrong}").status_code == 404
    bundle = object_path(depositor.bundle(2))
    assert client.get(f"{bundle}/access/aws").status_code == 404


@pytest.mark.spec("DRS-08")
def test_access_avoids_damaged_copies(
    client: FlaskClient, depositor: Depositor, stores: Stores
) -> None:
    path = object_path(depositor.file(1)["uuid"])
    damage(stores, "aws", keys.blob_key(SHA256), "last byte")
    url = client.get(f"{path}/access/aws").json["url"]
    assert client.get(url.removeprefix("http://localhost")).data == DATA
    damage(stores, "gcp", keys.blob_key(SHA256), "last byte")
    assert client.get(f"{path}/access/gcp").json["status_code"] == 500


@pytest.mark.spec("DRS-05", "DRS-08")
def test_cloud_buckets_are_access_methods_of_their_own(
    make: Make, depositor: Depositor, stores: Stores, tmp_path: Path
) -> None:
    path = object_path(depositor.file(1)["uuid"])
    key = keys.blob_key(SHA256)
    with patch.dict(os.environ, SIMULATED), running(tmp_path) as emulator:
        s3 = backend_s3.opened(lasting_s3(), "drs-aws")
        google = backend_gcs.opened(emulator.endpoint, "drs-gcp")
        client = make(
            on=replace(stores, replicas={"aws": s3, "gcp": google}),
            replica_aws="s3://drs-aws?region=eu-1",
        )
        methods = client.get(path).json["access_methods"]
    assert methods == [
        {"type": "https", "access_id": "aws", "region": "eu-1"},
        {"type": "s3", "access_url": {"url": f"s3://drs-aws/{key}"}, "region": "eu-1"},
        {"type": "https", "access_id": "gcp"},
        {"type": "gs", "access_url": {"url": f"gs://drs-gcp/{key}"}},
    ]


# Errors and permissions --------------------------------------------------------------------


@pytest.mark.spec("DRS-09")
def test_errors_have_the_form_of_drs(client: FlaskClient, depositor: Depositor) -> None:
    path = object_path(depositor.file(1)["uuid"])
    for answer, status in (
        (client.post(path, json={"passports": ["a"]}), 405),
        (client.get(f"{path}?expand=perhaps"), 400),
        (client.get(path, headers={"Authorization": "Bearer nobody"}), 401),
        (client.get(f"/v1{path}x"), 404),
        (client.get(f"{ROOT}/nothing"), 404),
    ):
        assert answer.status_code == status
        assert answer.mimetype == "application/json"
        assert (answer.json["status_code"], answer.json.keys()) == (
            status,
            {"msg", "status_code"},
        )


@pytest.mark.spec("DRS-10")
@pytest.mark.parametrize("closed", ["get_bundle", "get_file", "get_drs_object"])
def test_objects_are_as_closed_as_what_they_show(
    make: Make, depositor: Depositor, closed: str
) -> None:
    path = object_path(depositor.bundle(1))
    client = make(closed_operations=(closed,))
    assert client.get(path).status_code == 401
    assert client.get(path, headers=READER).status_code == 200


@pytest.mark.spec("DRS-10")
@pytest.mark.parametrize(
    ("action", "resource", "status"),
    [
        ("store:GetDrsObject", "objects/{fqid}", 403),
        ("store:GetFile", "files/{fqid}", 404),
        ("store:Get*", "{kind}/{fqid}", 403),
    ],
)
def test_policies_of_files_hold_for_objects(
    make: Make, depositor: Depositor, stores: Stores, action: str, resource: str, status: int
) -> None:
    uuid, other = depositor.file(1)["uuid"], depositor.file(2)["uuid"]
    fqid = f"{uuid}.{VERSION}"
    named = [
        f"arn:store:*:*:{resource.format(fqid=fqid, kind=kind)}" for kind in ("files", "bundles")
    ]
    user = AccountKey("user", PEOPLE["reader"].email)
    denied = parse_policy(document(statement("Deny", Action=action, Resource=named)))
    accounts.create_account(stores.catalog, NewAccount(user, denied), BY)
    client = make(closed_operations=("*",))
    assert client.get(object_path(uuid), headers=READER).status_code == status
    assert client.get(object_path(other), headers=READER).status_code == 200


@pytest.mark.spec("DRS-10")
def test_only_permitted_replicas_are_listed(
    make: Make, depositor: Depositor, stores: Stores
) -> None:
    uuid = depositor.file(1)["uuid"]
    denied = statement("Deny", Action="store:GetFile", Resource="arn:store:*:aws:files/*")
    user = AccountKey("user", PEOPLE["reader"].email)
    accounts.create_account(stores.catalog, NewAccount(user, parse_policy(document(denied))), BY)
    client = make(closed_operations=("*",))
    found = client.get(object_path(uuid), headers=READER).json
    assert [one["access_id"] for one in found["access_methods"]] == ["gcp"]
    assert client.get(f"{object_path(uuid)}/access/aws", headers=READER).status_code == 404
    assert client.get(f"{object_path(uuid)}/access/gcp", headers=READER).status_code == 200
