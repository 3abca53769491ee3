from tests.api.builders import INGEST, VERSION, Depositor, uuid_of

LATER = "2026-02-01T000000.000000Z"


def test_a_new_bundle_is_201_and_answers_its_manifest(depositor: Depositor) -> None:
    entry = depositor.file(1)
    answer = depositor.put_bundle(uuid_of(9), [entry])
    assert answer.status_code == 201
    assert answer.json["version"] == VERSION
    (file,) = answer.json["manifest"]["files"]
    assert file["name"] == "f1.txt"
    assert file["size"] == len(b"content")


def test_the_same_content_again_in_another_order_is_200(depositor: Depositor) -> None:
    entries = [depositor.file(1), depositor.file(2)]
    assert depositor.put_bundle(uuid_of(9), entries).status_code == 201
    assert depositor.put_bundle(uuid_of(9), entries[::-1]).status_code == 200


def test_other_content_is_409(depositor: Depositor) -> None:
    entries = [depositor.file(1), depositor.file(2)]
    depositor.put_bundle(uuid_of(9), entries)
    answer = depositor.put_bundle(uuid_of(9), entries[:1])
    assert (answer.status_code, answer.json["code"]) == (409, "bundle_already_exists")


def test_absent_files_are_named(depositor: Depositor) -> None:
    absent = {"uuid": uuid_of(77), "version": VERSION, "name": "a", "indexed": False}
    answer = depositor.put_bundle(uuid_of(9), [depositor.file(1), absent])
    assert (answer.status_code, answer.json["code"]) == (400, "file_missing")
    assert uuid_of(77) in answer.json["detail"]
    assert "/files/1" in answer.json["errors"]


def test_a_file_that_is_still_being_verified_is_409_with_retry_after(depositor, settings) -> None:
    depositor.put_file(uuid_of(1))
    entry = {"uuid": uuid_of(1), "version": VERSION, "name": "a", "indexed": False}
    answer = depositor.put_bundle(uuid_of(9), [entry], headers={"Prefer": "respond-async"})
    assert (answer.status_code, answer.json["code"]) == (409, "file_pending")
    assert int(answer.headers["Retry-After"]) > 0


def test_the_way_of_a_bundle_through_put_get_and_delete(depositor, client) -> None:
    uuid = depositor.bundle(1, files=2)
    for replica in ("aws", "gcp"):
        read = client.get(f"/v1/bundles/{uuid.upper()}?replica={replica}")
        assert read.status_code == 200
        assert read.json["bundle"]["uuid"] == uuid
        assert [file["name"] for file in read.json["bundle"]["files"]] == ["f256.txt", "f257.txt"]
    gone = client.delete(
        f"/v1/bundles/{uuid}?replica=aws", json={"reason": "mistake"}, headers=INGEST
    )
    assert (gone.status_code, gone.json) == (200, {})
    for replica in ("aws", "gcp"):
        assert client.get(f"/v1/bundles/{uuid}?replica={replica}").status_code == 404


def test_the_same_reason_again_is_200_and_another_409(depositor, client) -> None:
    path = f"/v1/bundles/{depositor.bundle(1)}?replica=aws"
    for reason, status in (("a", 200), ("a", 200), ("b", 409)):
        answer = client.delete(path, json={"reason": reason}, headers=INGEST)
        assert answer.status_code == status
    again = depositor.put_bundle(uuid_of(1), [depositor.file(0x100)], version=LATER)
    assert (again.status_code, again.json["code"]) == (409, "bundle_tombstone_already_exists")


def test_the_reason_may_come_in_the_query_but_not_twice_and_different(depositor, client) -> None:
    path = f"/v1/bundles/{depositor.bundle(1)}?replica=aws&reason=a"
    assert client.delete(path, json={"reason": "b"}, headers=INGEST).status_code == 400
    assert client.delete(path, headers=INGEST).status_code == 200
    assert client.delete(path, json={"reason": "a"}, headers=INGEST).status_code == 200


def test_files_come_in_pages_that_pin_the_version(depositor, client) -> None:
    uuid = depositor.bundle(1, files=3)
    first = client.get(f"/v1/bundles/{uuid}?replica=aws&per_page=2&extra=x")
    assert first.status_code == 206
    assert first.headers["X-OpenAPI-Paginated-Content-Key"] == "bundle.files"
    link = first.headers["Link"]
    for part in ("replica=aws", "per_page=2", "start_at=2", f"version={VERSION}", "extra=x"):
        assert part in link
    assert link.startswith("<http://localhost/v1/bundles/")
    assert link.endswith('; rel="next"')
    second = client.get(link.partition(">")[0].removeprefix("<http://localhost"))
    assert second.status_code == 200
    assert "Link" not in second.headers
    assert [file["name"] for file in second.json["bundle"]["files"]] == ["f258.txt"]


def test_a_page_that_ends_exactly_with_the_manifest_is_the_last(depositor, client) -> None:
    uuid = depositor.bundle(1, files=2)
    assert client.get(f"/v1/bundles/{uuid}?replica=aws&per_page=2").status_code == 200


def test_presigned_urls_serve_the_bytes_and_direct_ones_are_refused(depositor, client) -> None:
    uuid = depositor.bundle(1)
    read = client.get(f"/v1/bundles/{uuid}?replica=gcp&presignedurls=True")
    url = read.json["bundle"]["files"][0]["url"]
    assert client.get(url.removeprefix("http://localhost")).data == b"content"
    refused = client.get(f"/v1/bundles/{uuid}?replica=aws&directurls=1")
    assert (refused.status_code, refused.json["code"]) == (400, "illegal_arguments")
    both = client.get(f"/v1/bundles/{uuid}?replica=aws&directurls=1&presignedurls=1")
    assert (both.status_code, both.json["code"]) == (400, "only_one_urltype")


def test_a_walk_over_the_listing_sees_every_bundle_once_in_order(depositor, client) -> None:
    made = sorted(depositor.bundle(number) for number in range(1, 8))
    seen, path = [], "/v1/bundles/all?replica=gcp&per_page=3"
    sizes = []
    while path:
        page = client.get(path)
        seen += [bundle["uuid"] for bundle in page.json["bundles"]]
        sizes.append((page.status_code, page.json["page_count"], page.json["has_more"]))
        link = page.headers.get("Link", "")
        path = link.partition(">")[0].removeprefix("<http://localhost")
    assert seen == made
    assert sizes == [(206, 3, True), (206, 3, True), (200, 1, False)]


def test_a_prefix_is_lower_cased_and_narrows_the_listing(depositor, client) -> None:
    uuid = depositor.bundle(0xA)
    depositor.bundle(0xB)
    page = client.get(f"/v1/bundles/all?replica=aws&prefix={uuid.upper()[:36]}")
    assert [bundle["uuid"] for bundle in page.json["bundles"]] == [uuid]


def test_what_a_write_left_to_do_is_sent_under_the_request_id(depositor, chains) -> None:
    entry = depositor.file(1)
    chains.sent.clear()
    depositor.put_bundle(uuid_of(9), [entry], headers={"X-Request-Id": "traced-1"})
    assert {step.step for step, _ in chains.sent} >= {"index", "match", "sync"}
    assert {request_id for _, request_id in chains.sent} == {"traced-1"}
