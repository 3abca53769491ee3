"""Changes of policies, roles, groups and statuses take effect on the next request."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from ops.procfile import ROOT
from tests.api.builders import INGEST, VERSION
from tests.api.permissions.deployment import LATER, PEOPLE, World

ALLOW, DENY = "Allow", "Deny"
EVERYWHERE = "arn:store:local:*"


def statement(effect: str, action: str, resource: str) -> Mapping[str, Any]:
    return {"Effect": effect, "Action": [action], "Resource": [resource]}


def policy(*statements: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def all_but(action: str, resource: str) -> Mapping[str, Any]:
    """All of the store's, without one action on one thing."""
    return policy(statement(ALLOW, "store:*", EVERYWHERE), statement(DENY, action, resource))


WRITING = policy(statement(ALLOW, "store:PostArea", EVERYWHERE))


def opens(world: World, email: str) -> int:
    """A request that wants a right that not everybody has."""
    return world.ask(world.store, email, "POST", f"/v1/area/{world.fresh()}")


def to_user(world: World, email: str, action: str) -> None:
    world.admin("PUT", f"/v1/user/{email}/roles?action={action}", {"roles": ["store_ingest"]})


def to_group(world: World, email: str, action: str) -> None:
    group = f"of-{email.partition('@')[0]}"
    if action == "add":
        world.admin("POST", "/v1/group", {"group_id": group, "roles": ["store_ingest"]})
    world.admin("PUT", f"/v1/user/{email}/groups?action={action}", {"groups": [group]})


def of_group(world: World, email: str, action: str) -> None:
    group = f"for-{email.partition('@')[0]}"
    if action == "add":
        world.admin("POST", "/v1/group", {"group_id": group})
        world.admin("PUT", f"/v1/group/{group}/users?action=add", {"users": [email]})
    given = WRITING if action == "add" else None
    world.admin("PUT", f"/v1/group/{group}/policy", {"policy": given})


def by_group(world: World, email: str, action: str) -> None:
    group = f"by-{email.partition('@')[0]}"
    if action == "add":
        world.admin("POST", "/v1/group", {"group_id": group, "roles": ["store_ingest"]})
        world.admin("PUT", f"/v1/group/{group}/users?action=add", {"users": [email]})
    else:
        world.admin("DELETE", f"/v1/group/{group}")


def of_role(world: World, email: str, action: str) -> None:
    role = f"can-{email.partition('@')[0]}"
    other = policy(statement(ALLOW, "store:GetTask", EVERYWHERE))
    if action == "add":
        world.admin("POST", "/v1/role", {"role_id": role, "policy": other})
        world.admin("PUT", f"/v1/user/{email}/roles?action=add", {"roles": [role]})
    given = WRITING if action == "add" else other
    world.admin("PUT", f"/v1/role/{role}/policy", {"policy": given})


def own(world: World, email: str, action: str) -> None:
    given = WRITING if action == "add" else None
    world.admin("PUT", f"/v1/user/{email}/policy", {"policy": given})


@pytest.mark.spec("WHO-11")
@pytest.mark.parametrize("right", [to_user, to_group, of_group, by_group, of_role, own])
def test_granted_and_revoked_rights_apply_to_next_request(world: World, right: Any) -> None:
    email = world.person()
    assert opens(world, email) == 403
    right(world, email, "add")
    assert opens(world, email) == 201
    right(world, email, "remove")
    assert opens(world, email) == 403


@pytest.mark.spec("WHO-11")
def test_disabled_user_is_rejected_even_on_open_operations(
    world: World,
) -> None:
    email = world.person(roles=["store_ingest"])
    read = f"/v1/bundles/{world.things['bundle']}?replica=aws"

    def answers() -> list[int]:
        return [opens(world, email), world.ask(world.store, email, "GET", read)]

    assert answers() == [201, 200]
    world.admin("PUT", f"/v1/user/{email}?status=disabled")
    assert answers() == [403, 403]
    assert world.ask(world.auth, email, "GET", f"/v1/user/{email}") == 403
    assert world.ask(world.auth, email, "GET", "/v1/policies/version") == 403
    world.admin("PUT", f"/v1/user/{email}?status=enabled")
    assert answers() == [201, 200]


@pytest.mark.spec("WHO-12")
def test_an_administrator_of_the_settings_may_all_until_disabled(world: World) -> None:
    email = world.person()
    named = world.opened(administrators=(email,))
    assert world.ask(world.store, email, "GET", "/metrics") == 403
    assert world.ask(named, email, "GET", "/metrics") == 200
    world.admin("PUT", f"/v1/user/{email}?status=disabled")
    assert world.ask(named, email, "GET", "/metrics") == 403


@pytest.mark.spec("WHO-12")
def test_claimed_groups_give_only_configured_roles(world: World) -> None:
    world.tokens["claims"] = world.token("claims@example.org", "team", "curators")
    assert opens(world, "claims") == 403
    chosen = world.opened(ingest_groups=("curators",))
    path = f"/v1/area/{world.fresh()}"
    assert world.ask(chosen, "claims", "POST", path) == 201
    assert world.ask(chosen, "other", "POST", f"/v1/area/{world.fresh()}") == 403


@pytest.mark.spec("SUB-12")
def test_subscribing_requires_authorized_domain_and_allowed_action(world: World) -> None:
    here = world.opened(authorized_domains=("example.org",))
    there = world.opened(authorized_domains=("example.com",))
    path, body = "/v1/subscriptions?replica=aws", {"callback_url": "http://127.0.0.1:9/told"}
    email = world.person()
    assert world.ask(here, email, "PUT", path, json=body) == 201
    assert world.ask(there, email, "PUT", path, json=body) == 403
    assert world.ask(there, "admin", "PUT", path, json=body) == 403
    refused = world.person(policy=all_but("store:PutSubscription", "*"))
    assert world.ask(here, refused, "PUT", path, json=body) == 403


@pytest.fixture
def versions(world: World) -> Mapping[str, str]:
    """A bundle, a file and a collection of two versions each, by their kinds."""
    bundle, file, collection = (world.fresh() for _ in range(3))
    client = world.depositor.client
    body = {"name": "n", "description": "d", "details": {}, "contents": []}
    for version in (VERSION, LATER):
        entries = [world.depositor.file(0x30)]
        world.depositor.put_bundle(bundle, entries, version=version)
        world.depositor.put_file(file, version.encode(), version=version)
        query = f"uuid={collection}&version={version}&replica=aws"
        made = client.put(f"/v1/collections?{query}", json=body, headers=INGEST)
        assert made.status_code == 201, made.text
        world.drain()
    return {"bundles": bundle, "files": file, "collections": collection}


READS = [
    ("bundles", "store:GetBundle", "GET", "/v1/bundles/{uuid}", 200),
    ("bundles", "store:PostBundlesCheckout", "POST", "/v1/bundles/{uuid}/checkout", 200),
    ("files", "store:GetFile", "GET", "/v1/files/{uuid}", 302),
    ("files", "store:HeadFile", "HEAD", "/v1/files/{uuid}", 200),
    ("collections", "store:GetCollection", "GET", "/v1/collections/{uuid}", 200),
]


@pytest.mark.spec("WHO-10")
@pytest.mark.parametrize(("kind", "action", "method", "path", "fine"), READS)
@pytest.mark.parametrize("spelled", [str.lower, str.upper])
def test_read_of_latest_version_is_authorized_for_that_version(
    world: World,
    versions: Any,
    kind: str,
    action: str,
    method: str,
    path: str,
    fine: int,
    spelled: Any,
) -> None:
    uuid = versions[kind]
    path = path.format(uuid=spelled(uuid))

    def answers(denied: str) -> list[int]:
        given = {"policy": all_but(action, f"arn:store:local:{denied}")}
        world.admin("PUT", f"/v1/user/{PEOPLE['ingester']}/policy", given)
        queries = ("replica=aws", *(f"replica=aws&version={one}" for one in (VERSION, LATER)))
        return [world.ask(world.closed, "ingester", method, f"{path}?{one}") for one in queries]

    try:
        assert answers(f"*:{kind}/{uuid}.{LATER}") == [403, fine, 403]
        assert answers(f"*:{kind}/{uuid}.{VERSION}") == [fine, 403, fine]
        assert answers(f"*:{kind}/{uuid}.*") == [403, 403, 403]
        assert answers(f"gcp:{kind}/{uuid}.*") == [fine, fine, fine]
        assert answers(f"aws:{kind}/*") == [403, 403, 403]
    finally:
        world.admin("PUT", f"/v1/user/{PEOPLE['ingester']}/policy", {"policy": None})


@pytest.mark.spec("WHO-10")
def test_the_version_that_is_read_is_the_one_that_is_left(world: World, versions: Any) -> None:
    uuid = versions["bundles"]
    email = world.person(policy=all_but("store:GetBundle", f"*:bundles/{uuid}.{LATER}"))
    path = f"/v1/bundles/{uuid}?replica=aws"
    assert world.ask(world.closed, email, "GET", path) == 403
    buried = world.ask(
        world.store, "admin", "DELETE", f"{path}&version={LATER}", json={"reason": "r"}
    )
    assert buried == 200
    assert world.ask(world.closed, email, "GET", path) == 200


@pytest.mark.spec("WHO-10")
def test_absent_object_is_404_for_possible_readers_and_403_for_others(
    world: World,
) -> None:
    absent = world.fresh()
    email = world.person(policy=all_but("store:GetBundle", f"*:bundles/{absent}.*"))
    path = f"/v1/bundles/{absent}?replica=aws"
    assert world.ask(world.closed, "reader", "GET", path) == 404
    assert world.ask(world.closed, email, "GET", path) == 403


@pytest.mark.spec("WHO-10")
def test_status_of_pending_file_is_authorized_for_its_version(
    world: World,
) -> None:
    file = world.fresh()
    assert world.depositor.put_file(file).status_code == 202
    email = world.person(policy=all_but("store:*File", f"*:files/{file}.{VERSION}"))
    for method, known in (("GET", 301), ("HEAD", 301)):
        path = f"/v1/files/{file}?replica=aws"
        assert world.ask(world.closed, "reader", method, path) == known
        assert world.ask(world.closed, email, method, path) == 403


@pytest.mark.spec("CHK-03", "WHO-10")
def test_checkout_to_destination_is_authorized_for_copied_version(
    world: World, versions: Any
) -> None:
    uuid = versions["bundles"]
    denied = all_but("store:PostBundlesCheckoutElsewhere", f"*:bundles/{uuid}.{LATER}")
    email = world.person(policy=denied)
    for store in (world.store, world.closed):
        for version, status in (
            ("", 403),
            (f"&version={LATER}", 403),
            (f"&version={VERSION}", 200),
        ):
            path = f"/v1/bundles/{uuid}/checkout?replica=aws{version}"
            body = {"destination": "lab-1"}
            assert world.ask(store, email, "POST", path, json=body) == status
            assert world.ask(store, email, "POST", path) == 200


@pytest.mark.spec("WHO-10")
def test_deposit_is_authorized_for_its_replica(world: World) -> None:
    email = world.person(policy=all_but("store:PutFile", "arn:store:local:gcp:*"))
    own = world.staged(email)
    for source, replica, status in (
        ("gs://bucket/key", "", 403),
        (own, "", 202),
        (own, "&replica=aws", 202),
        (own, "&replica=gcp", 403),
    ):
        path = f"/v1/files/{world.fresh()}?version={VERSION}{replica}"
        body = {"source_url": source, "creator_uid": 7}
        assert world.ask(world.store, email, "PUT", path, json=body) == status


@pytest.mark.spec("FIL-43")
def test_put_files_requires_permission_for_each_file(world: World) -> None:
    forbidden, allowed = world.fresh(), world.fresh()
    email = world.person(policy=all_but("store:PutFile", f"*:files/{forbidden}.*"))
    source = world.staged(email)

    def status(*uuids: str) -> int:
        one = {"version": VERSION, "source_url": source, "creator_uid": 7}
        body = {"files": [{"uuid": uuid, **one} for uuid in uuids]}
        return world.ask(world.store, email, "PUT", "/v1/files?replica=aws", json=body)

    assert status(allowed, forbidden) == 403
    assert world.depositor.client.head(f"/v1/files/{allowed}?replica=aws").status_code == 404
    assert status(allowed) == 200


@pytest.mark.spec("WHO-09")
def test_unnamed_values_are_wildcards_in_resource(world: World, versions: Any) -> None:
    """Who denies deletions of one version lets the whole bundle be deleted; who denies those of
    any, does not."""
    uuid = versions["bundles"]
    one = world.person(policy=all_but("store:DeleteBundle", f"*:bundles/{uuid}.{LATER}"))
    any_of_it = world.person(policy=all_but("store:DeleteBundle", f"*:bundles/{uuid}.*"))
    path, body = f"/v1/bundles/{uuid}?replica=aws", {"reason": "r"}
    assert world.ask(world.store, any_of_it, "DELETE", path, json=body) == 403
    late = f"{path}&version={LATER}"
    assert world.ask(world.store, any_of_it, "DELETE", late, json=body) == 403
    assert world.ask(world.store, one, "DELETE", late, json=body) == 403
    assert world.ask(world.store, one, "DELETE", path, json=body) == 200


@pytest.mark.spec("WHO-13")
def test_policy_of_permissions_page_works_as_documented(world: World) -> None:
    page = (ROOT / "docs" / "permissions.md").read_text(encoding="utf-8")
    (printed,) = re.findall(r"^```json\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    email = world.person(policy=json.loads(printed))
    (uuid,) = set(re.findall(r"bundles/([0-9a-f-]{36})\.", printed))

    def status(method: str, path: str, body: Any = None) -> int:
        return world.ask(world.closed, email, method, f"/v1/{path}", json=body)

    source = {"source_url": world.staged(email), "creator_uid": 7}
    for replica, filed, bundled in (("gcp", 403, 403), ("aws", 202, 201)):
        file = f"files/{world.fresh()}?version={VERSION}&replica={replica}"
        assert status("PUT", file, source) == filed
        body = {"creator_uid": 7, "files": [world.things["entry"]]}
        for version in (VERSION, LATER):
            bundle = f"bundles/{uuid}?version={version}&replica={replica}"
            assert status("PUT", bundle, body) == bundled
    at = f"bundles/{uuid}?replica=aws"
    assert status("GET", at) == status("GET", f"{at}&version={LATER}") == 403
    assert status("POST", at.replace("?", "/checkout?")) == 403
    assert status("GET", f"{at}&version={VERSION}") == 200
    assert status("DELETE", at, {"reason": "r"}) == status("GET", "collections") == 403


@pytest.mark.spec("ARU-51")
def test_whoever_may_not_put_parts_gets_no_url_for_them(world: World) -> None:
    email = world.person(policy=all_but("store:PutAreaPart", "*:areas/*"))
    area = f"/v1/area/{world.fresh()}"
    assert world.ask(world.store, email, "POST", area) == 201
    shown = world.shown(email)
    begun = world.store.post(f"{area}/uploads/u.txt", headers=shown, json={"size": 1}).json
    wanted = {"upload_id": (begun or {})["upload_id"], "part": 1, "crc32c": "4f1dab61"}
    answer = world.store.post(f"{area}/parts/u.txt", headers=shown, json=wanted)
    assert answer.status_code == 403
    assert "PutAreaPart" in answer.text
