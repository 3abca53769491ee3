"""Pages of upload areas: create, fill, look at, lock, delete."""

import io
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from werkzeug.datastructures import MultiDict
from werkzeug.test import TestResponse

from storage import keys
from storage.stores import Stores
from tests.web.conftest import BROWSER, Visit, Visitor, text_of

Drain = Callable[[], int]


def new_area(visitor: Visitor) -> str:
    """The path of a new area."""
    page = visitor.post("/areas")
    assert page.status_code == 303
    return str(page.headers["Location"])


def upload(visitor: Visitor, path: str, files: Iterable[tuple[str, bytes]]) -> TestResponse:
    """The answer to the form with files; CSRF comes first, as browsers keep the form's order."""
    form: MultiDict[str, Any] = MultiDict()
    form.add("csrf", visitor.site.csrf_token(visitor.session))
    for name, data in files:
        form.add("files", (io.BytesIO(data), name))
    return visitor.client.post(
        f"{path}/files", data=form, content_type="multipart/form-data", headers=BROWSER
    )


@pytest.fixture
def owner(visit: Visit) -> Visitor:
    """Somebody who may deposit."""
    return visit("ingest")


def test_new_area_is_listed_with_its_files(owner: Visitor) -> None:
    path = new_area(owner)
    assert upload(owner, path, [("a.json", b"{}"), ("b/c.txt", b"12345")]).status_code == 303
    page = owner.get("/areas")
    assert f'href="{path}"' in page.text
    assert "open 2 7 bytes" in text_of(page)
    assert "Make a bundle" in text_of(page)


def test_only_own_areas_are_listed(owner: Visitor, visit: Visit) -> None:
    path = new_area(owner)
    assert path not in visit("other").get("/areas").text
    for page in (path, f"{path}/delete", f"{path}/bundle"):
        assert visit("other").get(page).status_code == 403


def test_list_of_areas_has_pages(owner: Visitor) -> None:
    paths = [new_area(owner) for _ in range(21)]
    first = owner.get("/areas").text
    following = re.search(r'href="([^"]+)" rel="next"', first)
    assert following is not None
    second = owner.get(following[1].replace("&amp;", "&")).text
    assert [(path in first, path in second) for path in paths] == [
        (False, True),
        *[(True, False)] * 20,
    ]


def test_403_names_the_role(visit: Visit) -> None:
    for path in ("/areas", "/deposits"):
        page = visit("reader").get(path)
        assert page.status_code == 403
        assert "store_ingest" in page.text
    assert visit("reader").post("/areas").status_code == 403


def test_shows_how_far_checks_are(owner: Visitor, drain: Drain) -> None:
    path = new_area(owner)
    upload(owner, path, [("good.json", b"{}"), ("bad.json", b"{"), ("x.txt", b"x")])
    page = owner.get(path)
    assert f'data-live="{path}" data-pending>' in page.text
    assert "3 files, 2 being checked" in text_of(page)
    assert "file://" not in page.text
    drain()
    part = owner.get(path)
    assert "data-pending" not in part.text
    assert "1 refused or not valid" in text_of(part)
    assert "It is not readable JSON" in text_of(part)
    assert "checked" in text_of(part)


def test_names_of_files_are_text_only(owner: Visitor) -> None:
    path = new_area(owner)
    name = "<img src=x onerror=alert(1)>.txt"
    assert upload(owner, path, [(name, b"x")]).status_code == 303
    for page in (path, f"{path}/bundle"):
        text = owner.get(page).text
        assert "<img src=x" not in text
        assert "&lt;img src=x" in text


def test_stores_form_without_holding_it(owner: Visitor, stores: Stores) -> None:
    """A file of several blocks, whose bytes look like a form's."""
    path = new_area(owner)
    data = b"\r\n--boundary\r\n" * 30_000
    assert upload(owner, path, [("large.bin", data), ("empty", b"")]).status_code == 303
    area = path.rpartition("/")[2]
    info = stores.areas.head(keys.area_file_key(area, "large.bin"))
    assert b"".join(stores.areas.read(info.key, pin=info.pin)) == data
    assert stores.areas.head(keys.area_file_key(area, "empty")).size == 0


def test_refused_file_has_its_message_and_the_others_are_stored(owner: Visitor) -> None:
    path = new_area(owner)
    page = upload(owner, path, [("../up", b"1"), ("fine.txt", b"2"), ("a//b", b"3")])
    assert page.status_code == 400
    text = text_of(page)
    assert "../up : A name must not have empty" in text
    assert "a//b : A name must not" in text
    assert "<bdi>fine.txt</bdi></th>" in page.text.replace("\n", "")
    assert "1 file" in text


def test_refuses_file_beyond_limit(owner: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    path = new_area(owner)
    limited = owner.site.services.settings
    object.__setattr__(limited, "max_upload_bytes", 10)
    page = upload(owner, path, [("large", b"x" * 11), ("small", b"x" * 10)])
    assert page.status_code == 400
    assert "large : A file has at most 10 bytes." in text_of(page)
    assert "<bdi>small</bdi></th>" in page.text


def test_asks_for_files(owner: Visitor) -> None:
    page = upload(owner, new_area(owner), [("", b"")])
    assert page.status_code == 400
    assert "Choose at least one file." in page.text


@pytest.mark.parametrize("csrf", ["wrong", None])
def test_refuses_upload_without_csrf_token(owner: Visitor, csrf: str | None) -> None:
    path = new_area(owner)
    form: dict[str, Any] = {} if csrf is None else {"csrf": csrf}
    form["files"] = (io.BytesIO(b"x"), "a.txt")
    page = owner.client.post(
        f"{path}/files", data=form, content_type="multipart/form-data", headers=BROWSER
    )
    assert page.status_code == 403
    assert "a.txt" not in owner.get(path).text


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--b",
        b'--b\r\nContent-Disposition: form-data; name="csrf"\r\n\r\n',
        b"--b\r\n" + b"x" * 200_000,
        b"--b\r\nContent-Type: text/plain\r\n\r\nx\r\n--b--\r\n",
    ],
)
def test_refuses_malformed_form(owner: Visitor, body: bytes) -> None:
    page = owner.client.post(
        f"{new_area(owner)}/files",
        data=body,
        content_type="multipart/form-data; boundary=b",
        headers=BROWSER,
    )
    assert page.status_code in (400, 403)


def test_form_that_breaks_off_leaves_no_file(owner: Visitor) -> None:
    path = new_area(owner)
    token = owner.site.csrf_token(owner.session)
    body = (
        f'--b\r\nContent-Disposition: form-data; name="csrf"\r\n\r\n{token}\r\n'
        '--b\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n\r\nhalf'
    )
    page = owner.client.post(
        f"{path}/files",
        data=body.encode(),
        content_type="multipart/form-data; boundary=b",
        headers=BROWSER,
    )
    assert page.status_code == 400
    assert "<bdi>a.txt</bdi></th>" not in owner.get(path).text


def test_locked_area_takes_no_files(owner: Visitor) -> None:
    path = new_area(owner)
    assert owner.post(f"{path}/state", state="LOCKED").status_code == 303
    page = owner.get(path)
    assert "This area is locked" in page.text
    assert 'id="upload"' not in page.text
    assert upload(owner, path, [("a", b"a")]).status_code == 409
    assert owner.post(f"{path}/state", state="OPEN").status_code == 400
    owner.post(f"{path}/state", state="UNLOCKED")
    assert upload(owner, path, [("a", b"a")]).status_code == 303


def test_deletion_asks_first(owner: Visitor, drain: Drain) -> None:
    path = new_area(owner)
    upload(owner, path, [("a", b"a")])
    asked = owner.get(f"{path}/delete")
    assert "cannot be undone" in asked.text
    assert "1 file" in text_of(asked)
    assert owner.get(path).status_code == 200
    assert owner.post(f"{path}/delete").headers["Location"] == "/areas"
    drain()
    assert owner.get(path).status_code == 404
    assert owner.post(f"{path}/delete").status_code == 303


def test_registers_files_that_came_directly(owner: Visitor, stores: Stores, drain: Drain) -> None:
    path = new_area(owner)
    stores.areas.put(keys.area_file_key(path.rpartition("/")[2], "direct.txt"), b"x")
    assert "not registered" in text_of(owner.get(path))
    assert owner.post(f"{path}/register").status_code == 303
    drain()
    assert "1 file, all checked" in text_of(owner.get(path))


def test_list_of_files_has_pages(owner: Visitor) -> None:
    path = new_area(owner)
    upload(owner, path, [(f"{number:03}.txt", b"x") for number in range(101)])
    first = owner.get(path).text
    following = re.search(r'href="([^"]+)" rel="next"', first)
    assert following is not None
    second = owner.get(following[1]).text
    assert ("099.txt" in first, "100.txt" in first) == (True, False)
    assert ("099.txt" in second, "100.txt" in second) == (False, True)
    refreshed = re.search(r'data-live="([^"]+)"', second)
    assert refreshed is not None
    assert "100.txt" in owner.get(refreshed[1]).text
