"""Pages of collections: list, create, edit, delete; only for their owner."""

import re
import time

import pytest

from tests.api.builders import VERSION, Depositor, uuid_of
from tests.web.conftest import Visit, Visitor, text_of
from tests.web.test_bundles import put
from web.collections import parse_links
from web.pages import FormErrors


def create(visitor: Visitor, name: str = "Fish", **form: str) -> str:
    """A new collection's uuid."""
    made = visitor.post("/collections", name=name, **form)
    assert made.status_code == 303, made.text
    return str(made.headers["Location"]).rpartition("/")[2]


def version_of(visitor: Visitor, uuid: str) -> str:
    """The latest version that the page of a collection shows."""
    found = re.search(r"/edit\?version=([^&]+)&", visitor.get(f"/collections/{uuid}").text)
    assert found is not None
    return found[1]


def test_collection_is_created_listed_and_shown_to_its_owner(visit: Visit) -> None:
    visitor = visit("ingest")
    assert "You have no collections yet." in visitor.get("/collections").text
    uuid = create(visitor, "<b>Fish</b>", description="of *2026*\r\nlines")
    listed = visitor.get("/collections")
    assert "&lt;b&gt;Fish&lt;/b&gt;" in listed.text
    page = visitor.get(f"/collections/{uuid}")
    assert "of <em>2026</em>\nlines" in page.text
    assert "0 links" in text_of(page)
    assert "Fish" not in visit("other").get("/collections").text
    for path in ("", "/edit", "/delete"):
        assert visit("other").get(f"/collections/{uuid}{path}").status_code == 403
        assert visit().get(f"/collections/{uuid}{path}").status_code == 303
        assert visitor.get(f"/collections/{uuid_of(9)}{path}").status_code == 404


def test_rejects_collection_without_name(visit: Visit) -> None:
    refused = visit("ingest").post("/collections", description="kept text")
    assert refused.status_code == 400
    assert "kept text" in refused.text
    assert visit("reader").post("/collections", name="x").status_code == 403


def test_edit_writes_new_version(visit: Visit, depositor: Depositor) -> None:
    first, second = depositor.bundle(5), depositor.bundle(6)
    visitor = visit("ingest")
    uuid = create(visitor)
    base = version_of(visitor, uuid)
    where = f"/collections/{uuid}/edit?version={base}"
    lines = f"bundle {first}.{VERSION}\r\n\r\n{second}.{VERSION}\r\nfile {uuid_of(0x500)}.{VERSION}"
    assert visitor.post(where, name="Renamed", description="d", add=lines).status_code == 303
    page = visitor.get(f"/collections/{uuid}")
    assert "<h1>Renamed</h1>" in page.text
    assert "3 links" in text_of(page)
    assert f"/bundles/{first}?version={VERSION}" in page.text
    assert f"/files/{uuid_of(0x500)}?version={VERSION}" in page.text
    after = version_of(visitor, uuid)
    assert after > base
    links = re.findall(
        r'name="remove" value="(\d+)" aria-label="Remove bundle ([^"]+)"',
        visitor.get(f"/collections/{uuid}/edit?version={after}").text,
    )
    place = next(place for place, target in links if target == first)
    visitor.post(f"/collections/{uuid}/edit?version={after}", name="Renamed", remove=place)
    newest = visitor.get(f"/collections/{uuid}")
    assert "2 links" in text_of(newest)
    assert f"/bundles/{first}?" not in newest.text
    assert "3 links" in text_of(visitor.get(f"/collections/{uuid}?version={after}"))


@pytest.mark.parametrize(
    "line", ["nonsense", f"area {uuid_of(1)}.{VERSION}", f"{uuid_of(1)}.yesterday", uuid_of(1)]
)
def test_rejects_bad_link_at_its_field(visit: Visit, line: str) -> None:
    visitor = visit("ingest")
    uuid = create(visitor)
    base = version_of(visitor, uuid)
    refused = visitor.post(f"/collections/{uuid}/edit?version={base}", name="n", add=f"\n{line}")
    assert refused.status_code == 400
    assert "Line 2" in text_of(refused)
    assert version_of(visitor, uuid) == base


def test_rejects_link_to_absent_bundle(visit: Visit) -> None:
    visitor = visit("ingest")
    uuid = create(visitor)
    where = f"/collections/{uuid}/edit?version={version_of(visitor, uuid)}"
    refused = visitor.post(where, name="n", add=f"bundle {uuid_of(77)}.{VERSION}")
    assert refused.status_code == 400
    assert f"{uuid_of(77)}.{VERSION}" in refused.text


def test_form_names_version_that_it_changes(visit: Visit) -> None:
    visitor = visit("ingest")
    uuid = create(visitor)
    assert visitor.post(f"/collections/{uuid}/edit", name="x").status_code == 400


def test_second_editor_of_a_version_changes_nothing(visit: Visit) -> None:
    visitor = visit("ingest")
    uuid = create(visitor)
    where = f"/collections/{uuid}/edit?version={version_of(visitor, uuid)}"
    assert visitor.post(where, name="first").status_code == 303
    late = visitor.post(where, name="second", description="my words")
    assert late.status_code == 409
    assert "was changed meanwhile" in late.text
    assert "my words" in late.text
    assert "<h1>first</h1>" in visitor.get(f"/collections/{uuid}").text


def test_huge_number_of_a_link_removes_nothing(visit: Visit) -> None:
    visitor = visit("ingest")
    uuid = create(visitor)
    where = f"/collections/{uuid}/edit?version={version_of(visitor, uuid)}"
    assert visitor.post(where, name="n", remove="9" * 5000).status_code == 303


def test_bundle_is_added_to_own_collection(visit: Visit, depositor: Depositor) -> None:
    bundle = depositor.bundle(5)
    visitor, where = (
        visit("ingest"),
        f"/bundles/{depositor and uuid_of(5)}/collect?version={VERSION}",
    )
    uuid = create(visitor)
    added = visitor.post(where, collection=uuid)
    assert added.headers["Location"] == f"/collections/{uuid}"
    assert bundle in visitor.get(f"/collections/{uuid}").text
    assert visit("other").post(where, collection=uuid).status_code == 403
    assert visitor.post(where).status_code == 400


def test_description_is_shown_as_sanitized_markdown(visit: Visit) -> None:
    visitor = visit("ingest")
    text = (
        "# Release\nof *spring*\nand summer\n\n- one\n\n[site](https://example.org/a?b=1&c=2)"
        " [evil](javascript:alert(1)) [here](/account) [data](data:text/html,x)"
        "\n\n<script>alert(1)</script> <img src=x onerror=alert(1)> ![i](https://example.org/i.png)"
        "\n\n###### deep"
    )
    uuid = create(visitor, description=text)
    page = visitor.get(f"/collections/{uuid}").text
    assert page.count("<h1") == 1
    assert "<h2>Release</h2>" in page
    assert "<h6>deep</h6>" in page
    assert "<em>spring</em>" in page
    assert "<li>one</li>" in page
    rel = 'rel="nofollow noopener noreferrer"'
    assert f'<a href="https://example.org/a?b=1&amp;c=2" {rel}>site</a>' in page
    shown = page[page.index("<h2>Release") : page.index("<h6>deep")]
    assert "<script" not in shown
    assert "<img" not in shown
    assert re.findall('href="([^"]*)"', shown) == ["https://example.org/a?b=1&amp;c=2"]
    edited = visitor.get(f"/collections/{uuid}/edit?version={version_of(visitor, uuid)}").text
    assert "# Release" in edited


@pytest.mark.parametrize(
    "text", ["[\n" * 20_000, "|a" * 2_000 + "\n" + "|-" * 2_000 + "\n" + "x\n" * 3_500]
)
def test_description_that_takes_long_to_render_is_text(visit: Visit, text: str) -> None:
    visitor = visit("ingest")
    uuid = create(visitor, description=text)
    began = time.monotonic()
    page = visitor.get(f"/collections/{uuid}").text
    assert time.monotonic() - began < 2
    assert '<p class="deposited"><bdi>' in page


def test_deleted_collection_is_gone(visit: Visit) -> None:
    visitor = visit("ingest")
    uuid = create(visitor)
    assert "cannot be undone" in visitor.get(f"/collections/{uuid}/delete").text
    assert visit("other").post(f"/collections/{uuid}/delete").status_code == 403
    assert visitor.post(f"/collections/{uuid}/delete").headers["Location"] == "/collections"
    assert visitor.get(f"/collections/{uuid}").status_code == 404
    assert "You have no collections yet." in visitor.get("/collections").text


def test_collections_and_links_are_paged(visit: Visit, depositor: Depositor, monkeypatch) -> None:
    monkeypatch.setattr("web.collections.COLLECTIONS_PER_PAGE", 2)
    monkeypatch.setattr("web.collections.LINKS_PER_PAGE", 1)
    visitor = visit("ingest")
    names = {f"number {number}" for number in range(3)}
    uuids = [create(visitor, name) for name in names]
    page = visitor.get("/collections")
    following = re.search(r'href="([^"]+)" rel="next"', page.text)
    assert following is not None
    seen = page.text + visitor.get(following[1].replace("&amp;", "&")).text
    assert {name for name in names if name in seen} == names
    lines = "\n".join(f"{depositor.bundle(number)}.{VERSION}" for number in (5, 6))
    where = f"/collections/{uuids[0]}/edit?version={version_of(visitor, uuids[0])}"
    assert visitor.post(where, name="n", add=lines).status_code == 303
    shown = visitor.get(f"/collections/{uuids[0]}")
    assert "2 links" in text_of(shown)
    assert shown.text.count('href="/bundles/') == 1
    assert 'rel="next"' in shown.text


def test_number_of_links_is_bounded() -> None:
    with pytest.raises(FormErrors):
        parse_links(f"{uuid_of(1)}.{VERSION}\n" * 1001)


def test_contents_show_titles_of_bundles(visit: Visit, depositor: Depositor) -> None:
    uuid = put(depositor, 7, {"a.json": b'{"title": "Liver & kidney"}'})
    plain = depositor.bundle(8)
    visitor = visit("ingest")
    collection = create(visitor)
    where = f"/collections/{collection}/edit?version={version_of(visitor, collection)}"
    lines = f"bundle {uuid}.{VERSION}\nbundle {plain}.{VERSION}"
    assert visitor.post(where, name="Both", add=lines).status_code == 303
    page = visitor.get(f"/collections/{collection}").text
    where = f"/collections/{collection}/edit"
    assert "Liver &amp; kidney</a>" in page
    assert f"<code>{uuid}</code></small>" in page
    assert f"<code>{plain}</code></a>" in page
    assert "Liver &amp; kidney</a>" in visitor.get(where).text
