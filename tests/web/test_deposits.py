"""Bundles that are made of an upload area in the pages."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from werkzeug.datastructures import MultiDict
from werkzeug.test import TestResponse

from pipelines import deposits
from storage.metadata_schemas import open_metadata_schemas
from storage.stores import Stores
from tests.api.builders import Depositor
from tests.conftest import Outbox, draining
from tests.web.conftest import BROWSER, Visit, Visitor, text_of
from tests.web.test_areas import new_area, upload

Drain = Callable[[], int]


@pytest.fixture
def owner(visit: Visit) -> Visitor:
    """Somebody who may deposit."""
    return visit("ingest")


@pytest.fixture
def area(owner: Visitor, drain: Drain) -> str:
    """The path of an area with checked files, and one that is not valid."""
    path = new_area(owner)
    upload(owner, path, [("a.json", b'{"a": 1}'), ("bad.json", b"{"), ("d/x.txt", b"text")])
    drain()
    return path


def make(
    owner: Visitor, area: str, names: dict[str, str], indexed: str = "", **more: str
) -> TestResponse:
    """The answer to the form; `names` has the taken files' names by file."""
    form: MultiDict[str, Any] = MultiDict()
    form.add("csrf", owner.site.csrf_token(owner.session))
    for place, source in enumerate(("a.json", "bad.json", "d/x.txt")):
        form.add("file", source)
        form.add("name", names.get(source, source))
        if source in names:
            form.add("take", str(place))
        if source == indexed:
            form.add("indexed", str(place))
    for name, value in {"replica": "aws", **more}.items():
        form.add(name, value)
    return owner.client.post(f"{area}/bundle", data=form, headers=BROWSER)


def test_form_proposes_checked_files_and_indexes_json(owner: Visitor, area: str) -> None:
    page = owner.get(f"{area}/bundle").text
    rows = re.findall(r'<td><input type="hidden" name="file".*?</tr>', page, re.S)
    chosen = [
        (
            re.search(r'name="take"[^>]* checked', row),
            re.search(r'name="indexed"[^>]* checked', row),
        )
        for row in rows
    ]
    assert [(bool(take), bool(index)) for take, index in chosen] == [
        (True, True),
        (False, True),
        (True, False),
    ]
    assert "It is not readable JSON" in page


def test_makes_bundle(owner: Visitor, area: str, drain: Drain) -> None:
    made = make(owner, area, {"a.json": "meta.json", "d/x.txt": "x.txt"}, "a.json")
    assert made.status_code == 303
    path = made.headers["Location"]
    before = owner.get(path)
    assert f'data-live="{path}" data-pending>' in before.text
    assert "0 of 2 files verified" in text_of(before)
    drain()
    part = owner.get(path)
    assert "data-pending" not in part.text
    assert "2 of 2 files verified" in text_of(part)
    link = re.search(r'id="deposited-bundle" href="([^"]+)"', part.text)
    assert link is not None
    bundle = owner.get(link[1].replace("&amp;", "&"))
    assert bundle.status_code == 200
    assert "meta.json" in bundle.text
    listed = text_of(owner.get("/deposits"))
    assert "bundle written 2" in listed
    assert "Withdraw" in listed


def test_form_that_is_sent_twice_makes_one_bundle(
    owner: Visitor, area: str, drain: Drain, stores: Stores
) -> None:
    """As by a double click: the second answer leads to the same deposit."""
    given = re.search(r'name="deposit" value="([^"]+)"', owner.get(f"{area}/bundle").text)
    assert given is not None
    answers = [make(owner, area, {"a.json": "a.json"}, deposit=given[1]) for _ in range(2)]
    drain()
    answers.append(make(owner, area, {"a.json": "a.json"}, deposit=given[1]))
    drain()
    assert {one.headers["Location"] for one in answers} == {f"/deposits/{given[1]}"}
    assert text_of(owner.get("/deposits")).count("bundle written") == 1
    assert make(owner, area, {"a.json": "a.json"}, deposit="x").status_code == 400


def test_deposit_outlives_its_area(owner: Visitor, area: str, drain: Drain) -> None:
    path = make(owner, area, {"a.json": "a.json"}).headers["Location"]
    drain()
    assert owner.post(f"{area}/delete").status_code == 303
    drain()
    assert owner.get(area).status_code == 404
    assert "1 of 1 file verified" in text_of(owner.get(path))
    assert owner.get("/deposits").status_code == 200


def test_given_uuid_makes_new_version(
    owner: Visitor, area: str, drain: Drain, stores: Stores
) -> None:
    uuids = set()
    for _ in range(2):
        path = make(owner, area, {"a.json": "a.json"}, uuid="6ba7b810-9dad-11d1-80b4-00c04fd430c8")
        ident = path.headers["Location"].rpartition("/")[2]
        deposit = deposits.find_owned(stores, ident, "ingest@example.org")
        uuids.add((deposit.uuid, deposit.entries[0][2]))
        drain()
    assert len(uuids) == 1
    listed = text_of(owner.get("/deposits"))
    assert listed.count("bundle written") == 2


def test_errors_are_at_their_fields_and_input_is_kept(owner: Visitor, area: str) -> None:
    page = make(owner, area, {"a.json": "/root", "d/x.txt": "kept.txt"}, uuid="6ba7")
    assert page.status_code == 400
    assert 'value="kept.txt"' in page.text
    assert 'value="6ba7"' in page.text
    assert 'href="#f-uuid"' in page.text
    page = make(owner, area, {"d/x.txt": "/root"})
    assert page.status_code == 400
    assert re.search(r'id="f-name-2"[^>]*aria-invalid="true"', page.text)
    page = make(owner, area, {})
    assert page.status_code == 400
    assert "Choose between 1 and 5,000 files." in page.text
    page = make(owner, area, {"a.json": "a"}, creator_uid="-1")
    assert 'href="#f-creator_uid"' in page.text
    assert "You have made no deposits" in text_of(owner.get("/deposits"))


def test_rejects_file_that_is_not_checked(owner: Visitor, area: str) -> None:
    upload(owner, area, [("a.json", b"{}")])
    owner.site.services.stores.areas.put(
        f"areas/{area.rpartition('/')[2]}/d/x.txt", b"changed", replace=True
    )
    page = make(owner, area, {"a.json": "a.json", "d/x.txt": "x"})
    assert page.status_code == 400
    assert "It is not registered: wait for its checks, or leave it out." in page.text


def test_failed_deposit_names_files_and_can_be_tried_again(
    owner: Visitor, area: str, drain: Drain, stores: Stores
) -> None:
    made = make(owner, area, {"a.json": "a.json", "d/x.txt": "x.txt"}).headers["Location"]
    key = f"areas/{area.rpartition('/')[2]}/d/x.txt"
    stores.areas.delete(key)
    drain()
    page = owner.get(made)
    assert "failed" in text_of(page)
    assert 'id="retry-deposit"' in page.text
    assert re.search(r"<bdi>x.txt</bdi><br><small class=\"message\">[^<]+", page.text)
    upload(owner, area, [("d/x.txt", b"text")])
    drain()
    assert owner.post(f"{made}/retry").status_code == 303
    drain()
    assert "2 of 2 files verified" in text_of(owner.get(made))


def test_deposits_are_their_owners(owner: Visitor, visit: Visit, area: str) -> None:
    made = make(owner, area, {"a.json": "a.json"}).headers["Location"]
    assert visit("other").get(made).status_code == 403
    assert visit().get(made).status_code == 303
    assert visit("other").post(f"{made}/retry").status_code == 403
    assert made not in visit("other").get("/deposits").text
    assert visit("other").post(f"{area}/bundle", replica="aws").status_code == 403


def test_area_with_many_files_is_taken_whole(
    owner: Visitor, area: str, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("web.deposits.LISTED_FILES", 2)
    page = owner.get(f"{area}/bundle")
    assert "more than 2 files" in text_of(page)
    assert 'name="file"' not in page.text
    made = owner.post(f"{area}/bundle", replica="aws").headers["Location"]
    drain()
    assert "2 of 2 files verified" in text_of(owner.get(made))


def test_unfinished_files_are_listed(owner: Visitor, depositor: Depositor, drain: Drain) -> None:
    depositor.put_file("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
    assert "Files that are not verified" in text_of(owner.get("/deposits"))
    drain()
    assert "Files that are not verified" not in text_of(owner.get("/deposits"))


def test_lists_show_titles_of_bundles(owner: Visitor, drain: Drain) -> None:
    area = new_area(owner)
    upload(owner, area, [("a.json", b'{"title": "Fins of <b>zebrafish</b>"}')])
    drain()
    path = make(owner, area, {"a.json": "a.json"}, "a.json").headers["Location"]
    drain()
    deposit = deposits.find_owned(
        owner.site.services.stores, path.rpartition("/")[2], "ingest@example.org"
    )
    listed = owner.get("/deposits")
    assert listed.text.count("Fins of &lt;b&gt;zebrafish&lt;/b&gt;</a>") == 2
    assert listed.text.count(f"<code>{deposit.uuid}</code>") == 2


def test_page_names_metadata_that_the_schemas_refuse(
    owner: Visitor, area: str, stores: Stores, job_queue: Outbox, tmp_path: Path
) -> None:
    (tmp_path / "name.json").write_text('{"required": ["name"]}')
    (tmp_path / "patterns.json").write_text('{"*.json": "name.json"}')
    opened = open_metadata_schemas(str(tmp_path / "patterns.json"))
    answer = make(owner, area, {"a.json": "a.json", "d/x.txt": "x.txt"}, indexed="a.json")
    draining(replace(stores, metadata_schemas=opened), job_queue)()
    page = text_of(owner.get(answer.headers["Location"]))
    assert "The metadata does not satisfy the schemas of this store: a.json." in page
    assert "&#34;name&#34; is a required property failed" in page
    assert "Upload corrected files into the area , and make another bundle of them." in page
    assert "1 of 2 files verified, 1 failed" in page
