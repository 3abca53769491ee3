"""The search page: words, queries, facets, filters, paging and what to do with the results."""

import csv
import html
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import update

from config import Settings
from storage.catalog.tables.versions import bundles
from storage.errors import TimeLimitExceeded, Unavailable
from storage.protocols import SearchIndex, SearchPage
from storage.stores import Stores
from store_client.downloads.manifests import read_manifest
from tests.api.builders import VERSION, Depositor, uuid_of
from tests.api.conftest import verify
from tests.conftest import Outbox
from tests.peak_memory import memory_below
from tests.web.conftest import Visit, Visitor, text_of
from web.app import create_site_app
from web.search_query import FieldFilter, SearchRequest, parse_filters

ORGAN = "files.donor_json.organ"


@pytest.fixture
def deposited(depositor: Depositor) -> Depositor:
    """Fourteen bundles: nine livers, five kidneys; each has a title."""
    for number in range(14):
        content = {
            "title": f"Sample {number:02} <b>&",
            "organ": "liver" if number < 9 else "kidney: left",
            "age": number % 3,
            "living": number % 2 == 0,
        }
        source = depositor.stage(
            json.dumps(content).encode(), f"m{number}.json", "application/json"
        )
        depositor.put_file(uuid_of(0x100 + number), source=source)
    depositor.drain()
    for number in range(14):
        file = {"uuid": uuid_of(0x100 + number), "version": VERSION, "name": "donor.json"}
        version = f"2026-01-{number + 1:02}T000000.000000Z"
        depositor.put_bundle(uuid_of(number), [{**file, "indexed": True}], version=version)
    depositor.drain()
    return depositor


Reopen = Callable[..., Visitor]


@pytest.fixture
def reopen(keyed_settings: Settings, stores: Stores, job_queue: Outbox) -> Reopen:
    """Open the store with other settings, or with another `index`."""

    def refuse(_path: str, _form: Mapping[str, str]) -> Mapping[str, Any]:
        raise Unavailable("no authorization service in this test")

    def make_visitor(person: str = "", *, index: Any = None, **changes: Any) -> Visitor:
        opened = replace(stores, search={"aws": index, "gcp": index}) if index else stores
        changed = replace(keyed_settings, **changes)
        app = create_site_app(
            changed, opened, job_queue=job_queue, verify=verify, auth=None, post_form=refuse
        )
        return Visitor(app, person)

    return make_visitor


def titles(page) -> list[str]:
    return re.findall(r"Sample (\d\d)", text_of(page))


def links(page, text: str) -> list[str]:
    """Where the links lead whose text holds this."""
    found = re.findall(r'<a [^>]*?href="([^"]*)"[^>]*>(.*?)</a>', page.text, re.DOTALL)
    return [html.unescape(url) for url, inner in found if text in html.unescape(inner)]


def test_home_form_leads_to_results(visit: Visit, deposited) -> None:
    home = visit().get("/")
    assert '<form role="search" action="/search" method="get">' in home.text
    page = visit().get("/search?q=kidney")
    assert page.status_code == 200
    assert "5 bundles" in text_of(page)
    assert titles(page) == ["13", "12", "11", "10", "09"]
    assert "1 file" in text_of(page)
    assert "<b>&<" not in page.text
    assert "Sample 13 &lt;b&gt;&amp;" in page.text


def test_cards_show_chosen_fields(reopen: Reopen, deposited) -> None:
    fields = ("files.donor_json.age", "title")
    page = reopen(web_title_fields=("none", "organ"), web_card_fields=fields).get("/search?q=03")
    assert ">liver</a>" in page.text
    assert re.search("<dt>age</dt><dd>0</dd><dt>title</dt><dd>Sample 03", page.text)
    assert uuid_of(3) in reopen(web_title_fields=(), web_card_fields=()).get("/search?q=03").text


def test_cards_tell_older_versions(visit: Visit, deposited: Depositor) -> None:
    file = {"uuid": uuid_of(0x103), "version": VERSION, "name": "donor.json", "indexed": True}
    deposited.put_bundle(uuid_of(3), [file], version="2026-01-05T120000.000000Z")
    deposited.drain()
    page = visit().get("/search?q=03")
    newer, older = page.text.split(f"/bundles/{uuid_of(3)}?version=")[1:]
    assert newer.startswith("2026-01-05T120000")
    assert "older version" not in newer
    assert older.startswith("2026-01-04T000000")
    assert "older version" in older
    assert "older version" not in visit().get("/search?q=04").text


def test_large_document_is_not_unpacked_for_a_card(visit: Visit, depositor: Depositor) -> None:
    """Ten of them on one page would take hundreds of megabytes."""
    content = b'{"a": "' + b"b" * 10_000_000 + b'"}'
    source = depositor.stage(content, "m.json", "application/json")
    depositor.put_file(uuid_of(0x100), source=source)
    depositor.drain()
    file = {"uuid": uuid_of(0x100), "version": VERSION, "name": "m.json", "indexed": True}
    depositor.put_bundle(uuid_of(1), [file])
    depositor.drain()
    visitor = visit()
    visitor.get("/search")
    with memory_below(8_000_000):
        page = visitor.get("/search")
    assert uuid_of(1) in page.text


@pytest.mark.parametrize(
    ("q", "total"),
    [
        ("", 14),
        ("liver", 9),
        ("liver kidney", 0),
        ("liver | kidney", 14),
        ("liver -03", 8),
        ('"kidney left"', 5),
        ("kid*", 5),
        (f"{ORGAN}:kidney", 5),
        ("files.*.age:2 liver", 3),
        (json.dumps({"match": {ORGAN: "liver"}}), 9),
        ('{"query": {"range": {"files.donor_json.age": {"gte": 1}}}}', 9),
        ("{}", 14),
    ],
)
def test_finds_by_words_or_queries(visit: Visit, deposited, q: str, total: int) -> None:
    page = visit().get(f"/search?q={quote(q)}")
    assert page.status_code == 200
    assert f"{total} bundle" in text_of(page)


@pytest.mark.parametrize(
    ("q", "message"),
    [
        ("{", "no valid JSON"),
        ("{1}", "no valid JSON"),
        ('{"nonsense": {}}', "unknown clause"),
        ('{"query": {"match_all": {}}, "size": 1}', "cannot stand beside"),
        (f"{ORGAN}:(", "query_string"),
    ],
)
def test_rejects_invalid_query_at_its_field(visit: Visit, deposited, q: str, message: str) -> None:
    page = visit().get(f"/search?q={quote(q)}")
    assert page.status_code == 400
    assert message in html.unescape(page.text)
    assert 'aria-invalid="true"' in page.text
    assert html.escape(q, quote=True).replace("&quot;", "&#34;") in page.text


def test_facets_count_and_narrow_the_results(visit: Visit, deposited) -> None:
    page = visit().get("/search")
    assert "liver 9" in text_of(page)
    assert "kidney: left 5" in text_of(page)
    (url,) = links(page, "kidney: left")
    narrow = visit().get(url)
    assert titles(narrow) == ["13", "12", "11", "10", "09"]
    # The filtered facet still shows what else could be chosen.
    assert "liver 9" in text_of(narrow)
    (both,) = links(narrow, "liver")
    assert "14 bundles" in text_of(visit().get(both))
    remove = links(narrow, "Remove the filter")
    assert remove == ["/search"]


def test_facets_are_those_of_the_settings(reopen: Reopen, deposited) -> None:
    facets = ("files.donor_json.age", "files.donor_json.living", "files.nope")
    visitor = reopen(web_facets=facets)
    page = visitor.get("/search?q=liver")
    assert "0 3 1 3 2 3" in text_of(page)
    assert "true 5 false 4" in text_of(page)
    (url,) = links(page, "true")
    assert "5 bundles" in text_of(visitor.get(url))
    assert ">nope<" not in page.text


def test_numbers_filter_exactly(visit: Visit, deposited) -> None:
    page = visit().get("/search?filter=files.donor_json.age:2&filter=files.donor_json.living:true")
    assert titles(page) == ["08", "02"]
    assert len(links(page, "Remove the filter")) == 2


def test_pages_show_every_result_once(visit: Visit, deposited) -> None:
    first = visit().get("/search?sort=oldest")
    (url,) = links(first, "Next page")
    second = visit().get(url)
    assert titles(first) + titles(second) == [f"{number:02}" for number in range(14)]
    assert links(second, "Next page") == []
    assert links(second, "First page") == ["/search?sort=oldest"]


def test_rejects_page_token_of_another_search(visit: Visit, deposited) -> None:
    (url,) = links(visit().get("/search"), "Next page")
    assert visit().get(f"{url}&q=liver").status_code == 400


def test_wrong_field_says_which_are_nearest(visit: Visit, deposited) -> None:
    query = json.dumps({"match": {"files.donor_json.orgna": "liver"}})
    page = visit().get(f"/search?q={quote(query)}")
    assert "No field files.donor_json.orgna ; nearest: files.donor_json.organ" in text_of(page)
    bare = visit().get("/search?q=orgna:liver")
    assert "No field orgna ; nearest: files.donor_json.organ" in text_of(bare)
    for each in (page, bare):
        (mended,) = links(each, ORGAN)
        assert "9 bundles" in text_of(visit().get(mended))
    assert "No field" not in visit().get("/search?q=CL:0000236").text, "a term of an ontology"


def test_fault_is_a_page_with_the_request_id_and_no_details(reopen: Reopen) -> None:
    page = reopen(index=Away(RuntimeError("secret detail"))).get("/search")
    assert (page.status_code, page.mimetype) == (500, "text/html")
    assert page.headers["X-Request-Id"] in page.text
    assert "secret detail" not in page.text


def test_empty_store_says_so(visit: Visit) -> None:
    assert "Nothing is deposited yet." in text_of(visit().get("/search"))
    assert "No bundle matches." in text_of(visit().get("/search?q=liver"))


def test_jmespath_is_led_to_the_tester_of_subscriptions(visit: Visit, deposited) -> None:
    query = "files.donor_json[0].organ == 'liver'"
    (url,) = links(visit().get(f"/search?q={quote(query)}"), "Try it on the latest bundles")
    form = visit("ingest").get(url)
    assert html.escape(query).replace("&#x27;", "&#39;") in form.text


def test_commands_name_the_store_and_the_query(visit: Visit, deposited) -> None:
    shown = html.unescape(visit().get("/search?q=liver").text)
    query = '{"query": {"simple_query_string": {"query": "liver", "default_operator": "and"}}}'
    assert f"store download --es-query '{query}' --download-dir bundles --replica aws" in shown
    assert "--layout bundle --replica aws --url http" in shown


@pytest.mark.parametrize(
    "parameters",
    ["filter=organ", "filter=:x", "sort=best", "replica=azure", "&".join(["filter=a:b"] * 51)],
)
def test_rejects_malformed_parameters(visit: Visit, parameters: str) -> None:
    assert visit().get(f"/search?{parameters}").status_code == 400


class Away:
    """An index that fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def search(self, *_args: object, **_more: object) -> None:
        raise self.error

    count_facets = list_fields = search


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Unavailable("no route"), "The search engine does not answer now."),
        (TimeLimitExceeded("too slow"), "This search takes too long."),
    ],
)
def test_page_stays_while_the_engine_is_away(
    reopen: Reopen, error: Exception, message: str
) -> None:
    page = reopen(index=Away(error)).get("/search?q=liver&filter=a:b")
    assert page.status_code == 200
    assert message in text_of(page)
    assert 'value="liver"' in page.text
    assert len(links(page, "Remove the filter")) == 1


def test_manifest_lists_the_files_of_all_results(visit: Visit, deposited, tmp_path: Path) -> None:
    page = visit().get("/search?q=kidney")
    (url,) = links(page, "manifest.tsv")
    table = visit().get(url)
    assert table.mimetype == "text/tab-separated-values"
    assert "attachment" in table.headers["Content-Disposition"]
    rows = list(csv.DictReader(table.text.splitlines(), delimiter="\t"))
    assert [row["bundle_uuid"] for row in rows] == [uuid_of(n) for n in (13, 12, 11, 10, 9)]
    assert {row["file_name"] for row in rows} == {"donor.json"}
    manifest = tmp_path / "manifest.tsv"
    manifest.write_bytes(table.data)
    parsed = read_manifest(manifest).rows
    assert [row.uuid for row in parsed] == [uuid_of(0x100 + n) for n in (13, 12, 11, 10, 9)]
    assert {row.version for row in parsed} == {VERSION}
    empty = visit().get("/search/manifest?q=nowhere")
    assert len(empty.text.splitlines()) == 1


def test_manifest_says_so_while_the_engine_is_away(reopen: Reopen) -> None:
    assert reopen(index=Away(Unavailable("no route"))).get("/search/manifest").status_code == 503


class Crowded:
    """An index that finds more than it shows."""

    def __init__(self, index: SearchIndex, total: int) -> None:
        self.index, self.total = index, total

    def search(self, *args: Any, **more: Any) -> SearchPage:
        return replace(self.index.search(*args, **more), total=self.total)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.index, name)


def test_page_says_how_many_lines_the_manifest_has(visit: Visit, deposited, stores: Stores) -> None:
    assert "a table with 5 lines, one for each" in text_of(visit().get("/search?q=kidney"))
    with stores.catalog.write() as tx:
        tx.execute(update(bundles).values(file_count=200_001))
    page = visit().get("/search?q=kidney")
    assert "a table with 1,000,005 lines" in text_of(page)
    (url,) = links(page, "manifest.tsv")
    refused = visit().get(url)
    assert refused.status_code == 400
    assert "at most 1,000,000 lines, and these have 1,000,005 files." in text_of(refused)
    assert "store download --es-query" in text_of(refused)
    assert links(refused, "manifest.tsv") == []


def test_too_many_results_are_left_to_the_client(reopen: Reopen, deposited, stores: Stores) -> None:
    visitor = reopen(index=Crowded(stores.search["aws"], 10_001))
    page = visitor.get("/search?q=kidney")
    assert links(page, "manifest.tsv") == []
    assert "A manifest has at most 10,000 bundles. Add filters" in text_of(page)
    assert "store download --es-query" in text_of(page)
    refused = visitor.get("/search/manifest?q=kidney")
    assert refused.status_code == 400
    assert "at most 10,000 bundles, and 10,001 match." in text_of(refused)
    fewer = reopen(index=Crowded(stores.search["aws"], 10_000)).get("/search?q=kidney")
    assert "a table with a line for each of their files" in text_of(fewer)


def test_too_many_results_become_no_collection(reopen: Reopen, deposited, stores: Stores) -> None:
    visitor = reopen("ingest", index=Crowded(stores.search["aws"], 1_001))
    refused = visitor.post("/search/collection", q="kidney", replica="aws", name="Kidneys")
    assert refused.status_code == 400
    assert "A collection has at most 1,000 bundles: add filters first." in text_of(refused)


def test_results_become_a_collection(visit: Visit, deposited) -> None:
    visitor = visit("ingest")
    page = visitor.get("/search?q=kidney")
    assert 'action="/search/collection"' in page.text
    made = visitor.post("/search/collection", q="kidney", replica="aws", name="Kidneys")
    assert made.status_code == 303
    uuid = re.match(r"/collections/([0-9a-f-]{36})\?version=", made.headers["Location"])
    assert uuid
    headers = {"Authorization": "Bearer ingest"}
    found = visitor.client.get(f"/v1/collections/{uuid[1]}?replica=aws", headers=headers).json
    assert found["name"] == "Kidneys"
    assert len(found["contents"]) == 5
    assert found["details"]["search"]["query"]["simple_query_string"]["query"] == "kidney"


def test_collection_needs_a_name_a_login_and_results(visit: Visit, deposited) -> None:
    assert 'action="/search/collection"' not in visit().get("/search").text
    visitor = visit("ingest")
    unnamed = visitor.post("/search/collection", q="kidney", filter="a:b")
    assert unnamed.status_code == 400
    nothing = visitor.post("/search/collection", q="nowhere", name="x")
    assert (nothing.status_code, "No bundle matches." in nothing.text) == (400, True)
    assert visit("reader").post("/search/collection", q="kidney", name="x").status_code == 403


def test_subscription_is_prefilled_with_the_query(visit: Visit, deposited) -> None:
    page = visit().get(f"/search?q=liver&filter={ORGAN}:liver")
    (url,) = links(page, "Subscribe to this query")
    assert url.startswith("/subscriptions/new?es_query=%7B%22query%22")
    assert "&replica=aws" in url


@pytest.mark.parametrize(
    ("field", "value"),
    [("a.b", "x:y"), ("dc:title", "100%"), ("a%3Ab", "é ü"), ("a", ""), ("a", "<script>")],
)
def test_filters_survive_their_url(field: str, value: str) -> None:
    each = FieldFilter(field, value)
    assert parse_filters([each.as_parameter()]) == (each,)


def test_commands_quote_what_visitors_typed() -> None:
    request = SearchRequest("it's; rm -rf /", (), "aws")
    assert request.es_query() == {
        "query": {"simple_query_string": {"query": "it's; rm -rf /", "default_operator": "and"}}
    }
