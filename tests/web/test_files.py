"""Pages of a file, its download, and its preview in a sandboxed frame."""

import re

import pytest
from flask import Flask

from pipelines.previews import Preview
from storage import keys
from storage.stores import Stores
from tests.api.builders import VERSION, Depositor, uuid_of
from tests.damage import damage
from tests.web.conftest import Visit, text_of
from tests.web.test_bundles import put
from web.files import (
    FRAME_POLICY,
    MARKDOWN_CHARS_MAX,
    make_disposition,
    render_frame,
    render_markdown,
)

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


def stored(depositor: Depositor, data: bytes, content_type: str = "text/plain") -> str:
    uuid = uuid_of(1)
    source = depositor.stage(data, "f", content_type)
    assert depositor.put_file(uuid, source=source).status_code == 202
    depositor.drain()
    return uuid


def test_file_shows_facts_copies_and_bundles(visit: Visit, depositor: Depositor) -> None:
    bundle = depositor.bundle(7)
    file = uuid_of(0x700)
    page = visit().get(f"/files/{file}?name=raw/a.txt")
    text = text_of(page)
    assert page.status_code == 200
    assert "<h1>a.txt</h1>" in page.text
    assert f"/bundles/{bundle}?version={VERSION}" in page.text
    assert text.count("Bytes verified") == 2
    assert "SHA-256" in text
    assert "ingest@example.org" not in text
    assert "ingest@example.org" in visit("reader").get(f"/files/{file}").text
    assert re.search(r'<iframe class="preview" sandbox ', page.text)
    assert visit().get(f"/files/{uuid_of(99)}").status_code == 404


def test_bundles_of_a_file_have_titles(visit: Visit, depositor: Depositor) -> None:
    put(depositor, 7, {"a.json": b'{"title": "Liver & kidney"}'})
    assert "Liver &amp; kidney</a>" in visit().get(f"/files/{uuid_of(0x7000)}").text


def test_bundles_of_a_file_are_paged(visit: Visit, depositor: Depositor, monkeypatch) -> None:
    monkeypatch.setattr("web.files.BUNDLES_PER_PAGE", 2)
    entry = depositor.file(1)
    names = sorted(uuid_of(number) for number in (20, 21, 22))
    for name in names:
        assert depositor.put_bundle(name, [entry]).status_code == 201
    first = visit().get(f"/files/{uuid_of(1)}")
    assert names[1] in first.text
    assert names[2] not in first.text
    following = re.search(r'href="([^"]+)#bundles" rel="next"', first.text)
    assert following is not None
    second = visit().get(following[1].replace("&amp;", "&"))
    assert names[2] in second.text
    assert names[1] not in second.text
    assert visit().get(f"/files/{uuid_of(1)}?search_after=forged").status_code == 400


def test_download_redirects_to_signed_attachment(visit: Visit, depositor: Depositor) -> None:
    uuid = stored(depositor, b"<script>alert(1)</script>", "text/html")
    visitor = visit()
    answer = visitor.get(f"/files/{uuid}/download?name=raw/Käfer.html")
    assert answer.status_code == 303
    content = visitor.client.get(answer.headers["Location"].removeprefix("http://localhost"))
    assert content.data == b"<script>alert(1)</script>"
    assert content.headers["Content-Disposition"].startswith("attachment")
    assert "K%C3%A4fer.html" in content.headers["Content-Disposition"]


@pytest.mark.parametrize(
    ("name", "disposition"),
    [
        ("", "attachment"),
        ("a/b.txt", 'attachment; filename="b.txt"'),
        ('a";x="b', "attachment; filename=\"a';x='b\""),
        ("a\r\nSet-Cookie: x", "attachment"),
    ],
)
def test_names_cannot_change_disposition(name: str, disposition: str) -> None:
    assert make_disposition(name) == disposition


HOSTILE = [
    (b"<script>alert(1)</script>", "text/html", "a.html"),
    (b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", "image/svg+xml", "a.svg"),
    (
        b"# hi\n<script>alert(1)</script>\n[x](javascript:alert(1)) ![y](http://e.org/y.png)",
        "text/markdown",
        "a.md",
    ),
    (b"a,b\n<script>alert(1)</script>,=1+1\n", "text/csv", "a.csv"),
    (b'{"a": "</pre><script>alert(1)</script>"}', "application/json", "a.json"),
]


@pytest.mark.parametrize(("data", "content_type", "name"), HOSTILE)
def test_preview_is_text_in_sandbox(
    visit: Visit, depositor: Depositor, data: bytes, content_type: str, name: str
) -> None:
    uuid = stored(depositor, data, content_type)
    frame = visit().get(f"/preview/files/{uuid}?name={name}")
    assert frame.status_code == 200
    assert frame.mimetype == "text/html"
    assert frame.headers["Content-Security-Policy"] == FRAME_POLICY
    assert FRAME_POLICY.startswith("sandbox; default-src 'none';")
    assert frame.headers["X-Content-Type-Options"] == "nosniff"
    assert frame.headers["X-Frame-Options"] == "SAMEORIGIN"
    for harm in ("<script", "<svg", "<img", 'href="javascript', 'http://e.org"'):
        assert harm not in frame.text


def test_image_is_part_of_its_document(visit: Visit, depositor: Depositor) -> None:
    frame = visit().get(f"/preview/files/{stored(depositor, PNG, 'text/html')}?name=a.html")
    assert '<img src="data:image/png;base64,iVBORw0K' in frame.text


def test_preview_of_damaged_file_says_so(
    visit: Visit, depositor: Depositor, stores: Stores
) -> None:
    uuid = stored(depositor, b"content")
    sha256 = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"
    damage(stores, "aws", keys.blob_key(sha256), "first byte")
    assert "content</pre>" in visit().get(f"/preview/files/{uuid}").text
    damage(stores, "gcp", keys.blob_key(sha256), "first byte")
    frame = visit().get(f"/preview/files/{uuid}")
    assert frame.status_code == 200
    assert "cannot be read now" in frame.text


def test_markdown_keeps_structure_only() -> None:
    html = render_markdown("# T\n\n| a |\n|---|\n| b |\n\n<b onclick=x>c</b> [d](https://e.org)")
    assert "<h1>T</h1>" in html
    assert "<td>b</td>" in html
    assert "<b" not in html.replace("<blockquote", "")
    assert "href" not in html
    assert "d" in html


def test_long_markdown_is_shown_as_text(app: Flask) -> None:
    """Rendering it could take seconds: some texts take a time square in their length."""
    with app.test_request_context():
        page = render_frame(Preview("markdown", "[\n" * MARKDOWN_CHARS_MAX), "a.md")
    assert "<pre>[\n" in page.get_data(as_text=True)


def test_large_markdown_table_is_shown_as_text(app: Flask) -> None:
    """Short rows are filled up to the length of the first: 15 KB would become millions of cells."""
    table = "|a" * 2_000 + "\n" + "|-" * 2_000 + "\n" + "x\n" * 3_500
    assert len(table) <= MARKDOWN_CHARS_MAX
    with app.test_request_context():
        page = render_frame(Preview("markdown", table), "a.md")
        small = render_frame(Preview("markdown", "|a|b|\n|-|-|\n|1|"), "a.md")
    assert len(page.get_data()) < 3 * MARKDOWN_CHARS_MAX
    assert "<td>" in small.get_data(as_text=True)


def test_downloaded_name_has_no_directional_controls() -> None:
    assert make_disposition("\u202egnp.exe") == 'attachment; filename="_gnp.exe"'
