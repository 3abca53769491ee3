"""What all pages share: access, CSRF, headers, errors, static files and flash messages."""

import io
import re
import zipfile
from pathlib import Path

import pytest

from api.app import OPERATIONS
from tests.web.conftest import Visit, text_of
from web.app import static_url
from web.pages import FLASH_COOKIE, list_pages

ROOT = Path(__file__).parent.parent.parent


def test_home_shows_counts_and_latest_bundles(visit: Visit, depositor) -> None:
    depositor.bundle(1)
    page = visit().get("/")
    assert page.status_code == 200
    assert "Bundles 1" in text_of(page)
    assert re.search(r'href="/bundles/[0-9a-f-]{36}\?version=', page.text)


def test_pages_forbid_inline_scripts_and_framing(visit: Visit) -> None:
    page = visit().get("/")
    policy = page.headers["Content-Security-Policy"]
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["Cache-Control"] == "no-store"
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=", page.text)


def test_browsers_get_error_pages_with_request_id(visit: Visit) -> None:
    page = visit().get("/nowhere", **{"X-Request-Id": "my-id"})
    assert page.status_code == 404
    assert page.mimetype == "text/html"
    assert "my-id" in page.text


def test_programs_get_problems(visit: Visit) -> None:
    problem = visit().client.get("/v1/nowhere", headers={"Accept": "application/json"})
    assert problem.mimetype == "application/problem+json"


def test_rejects_form_without_csrf_token(visit: Visit) -> None:
    for token in ("", "x", visit("reader").site.csrf_token(visit("other").session)):
        page = visit("reader").post("/logout", csrf=token)
        assert page.status_code == 403
        assert "Set-Cookie" not in page.headers


def test_forms_carry_another_token_each_time(visit: Visit) -> None:
    pages = [visit("reader").get("/").text for _ in range(2)]
    first, second = (re.search(r'name="csrf" value="([^"]+)"', text)[1] for text in pages)
    assert first != second
    for token in (first, second):
        assert visit("reader").site.is_csrf_token(visit("reader").session, token)


def test_rejects_form_of_another_site(visit: Visit) -> None:
    visitor = visit("reader")
    form = {"csrf": visitor.site.csrf_token(visitor.session)}
    page = visitor.client.post("/logout", data=form, headers={"Sec-Fetch-Site": "cross-site"})
    assert page.status_code == 403


def test_refuses_anonymous_form(visit: Visit) -> None:
    page = visit().post("/logout")
    assert page.status_code == 401
    assert "Log in" in page.text


def test_static_files_may_be_cached_by_their_digest(visit: Visit) -> None:
    current = visit().get(static_url("store.css"))
    assert current.status_code == 200
    assert "immutable" in current.headers["Cache-Control"]
    assert visit().get("/static/store.css").headers["Cache-Control"] == "no-cache"


@pytest.mark.parametrize(
    "name", ["../app.py", "..%2Fapp.py", "vendor/../../app.py", "vendor", "", "/etc/passwd"]
)
def test_static_files_stay_in_their_folder(visit: Visit, name: str) -> None:
    page = visit().get(f"/static/{name}")
    assert page.status_code in (404, 308)
    assert "def " not in page.text


def test_forged_flash_is_not_shown(visit: Visit) -> None:
    visitor = visit()
    visitor.client.set_cookie(FLASH_COOKIE, "forged")
    assert "forged" not in visitor.get("/").text


@pytest.mark.spec("DEF-08")
def test_reference_lists_operations_and_loads_swagger_ui(visit: Visit) -> None:
    page = visit().get("/docs")
    for one in OPERATIONS:
        assert f"{one.method} /v1{one.path}</code>" in page.text
    assert "swagger-ui-bundle.js" in page.text
    assert visit().get("/openapi.json").json["openapi"].startswith("3.0")


def test_reference_gives_visitor_their_own_token_only(visit: Visit) -> None:
    assert visit("reader").get("/docs/token").text == "reader"
    assert visit().get("/docs/token").status_code == 303


@pytest.mark.parametrize("person", ["", "reader", "other", "ingest", "admin"])
def test_every_page_without_parameters_answers_every_caller(visit: Visit, person: str) -> None:
    """A page never fails: it is shown, redirects to the login, or says what is missing."""
    for one in list_pages():
        if one.method == "GET" and "<" not in one.path:
            page = visit(person).get(one.path)
            assert page.status_code in (200, 303, 400, 403), (one.path, page.status_code)
            if one.login and not person:
                assert page.headers["Location"].startswith("/login?next=")


def test_every_form_needs_a_session_and_its_token(visit: Visit) -> None:
    """No form does anything for anonymous callers, or without the session's token."""
    uuid = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
    for one in list_pages():
        if one.method == "POST":
            path = re.sub(r"<[^>]+>", uuid, one.path)
            assert visit().post(path).status_code == 401, path
            assert visit("admin").post(path, csrf="wrong").status_code == 403, path


def test_client_archive_has_the_whole_package(visit: Visit) -> None:
    answer = visit().get("/client.zip")
    names = zipfile.ZipFile(io.BytesIO(answer.data)).namelist()
    assert "client/pyproject.toml" in names
    shipped = {
        str(path.relative_to(ROOT)) for path in (ROOT / "client/store_client").rglob("*.py*")
    }
    assert {name for name in shipped if "__pycache__" not in name} <= set(names)
    assert not [name for name in names if "__pycache__" in name or "tests" in name]
