"""Lists of new bundles: Atom, read by feedparser, and DCAT, read by rdflib."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import feedparser
import pytest
from rdflib import DCAT, DCTERMS, FOAF, RDF, Graph, Literal, Namespace, URIRef

from config import Settings
from pipelines.archives import ARCHIVE_FORMATS
from pipelines.linked_data import CatalogDataset, Download, Publisher, describe_catalog
from storage.model import FQID
from tests.api.builders import INGEST, VERSION, Depositor, uuid_of
from tests.web.conftest import Visit, Visitor
from tests.web.test_bundles import put
from web import exports

LICENSE = "https://creativecommons.org/licenses/by/4.0/"
FEED = "/feed.atom"
DCAT_VERSION = URIRef("http://www.w3.org/ns/dcat#version")
"""New in DCAT 3, which rdflib does not know yet."""
HYDRA = Namespace("http://www.w3.org/ns/hydra/core#")
CLASSES = {
    DCAT.landingPage: FOAF.Document,
    DCAT.mediaType: DCTERMS.MediaType,
    DCTERMS.format: DCTERMS.MediaTypeOrExtent,
    DCTERMS.license: DCTERMS.LicenseDocument,
    DCTERMS.publisher: FOAF.Agent,
    DCTERMS.rights: DCTERMS.RightsStatement,
    FOAF.homepage: FOAF.Document,
}
"""Classes that the shapes of DCAT-AP 3.0.1 ask of values, by property."""


@pytest.fixture
def keyed_settings(keyed_settings: Settings) -> Settings:
    """Settings of a store that names the license of its data."""
    return replace(keyed_settings, data_license=LICENSE, web_name="Atlas & <Co>")


def read(visitor: Visitor, path: str = FEED) -> Any:
    """Parse a page of the feed, which must be well-formed."""
    answer = visitor.get(path)
    assert answer.status_code == 200
    assert answer.content_type == "application/atom+xml; charset=utf-8"
    parsed = feedparser.parse(answer.data)
    assert (parsed.bozo, parsed.version) == (False, "atom10")
    return parsed


def walk(visitor: Visitor) -> Iterator[Any]:
    """Yield the entries of all pages."""
    path = FEED
    while path:
        parsed = read(visitor, path)
        yield from parsed.entries
        path = next((one.href for one in parsed.feed.links if one.rel == "next"), "")
        path = path.removeprefix("http://localhost")


def test_feed_has_the_new_bundles_latest_first(visit: Visit, depositor: Depositor) -> None:
    title = "Liver <b>of</b> \u0001]]> mice"
    first = put(depositor, 1, {"sample.json": json.dumps({"title": title}).encode()})
    second = depositor.bundle(2)
    parsed = read(visit())
    assert [one.link for one in parsed.entries] == [
        f"http://localhost/bundles/{uuid}?version={VERSION}&replica=aws" for uuid in (second, first)
    ]
    assert parsed.entries[0].title == f"Bundle {second}"
    assert parsed.entries[0].summary == f"Version {VERSION}, 1 file"
    assert parsed.feed.title == "New bundles of Atlas & <Co>"
    assert (parsed.feed.author, parsed.feed.rights) == ("Atlas & <Co>", LICENSE)
    # A second can have several bundles.
    assert all(re.search(r":\d\d\.\d{6}Z$", one.updated) for one in parsed.entries)
    assert parsed.feed.updated == parsed.entries[0].updated
    assert len({one.id for one in parsed.entries}) == 2
    assert all(one.id.startswith("urn:uuid:") for one in parsed.entries)
    shown = "<title>Liver &lt;b&gt;of&lt;/b&gt; [U+0001]]]&gt; mice</title>"
    assert shown in visit().get(FEED).text
    for one in parsed.entries:
        assert visit().get(one.link.removeprefix("http://localhost")).status_code == 200


def test_feed_comes_in_pages_without_gaps_or_repeats(
    visit: Visit, depositor: Depositor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "ENTRIES", 2)
    bundles = [depositor.bundle(number) for number in (1, 2, 3, 4, 5)]
    walked = walk(visit())
    seen = [next(walked).link]
    # A bundle that comes meanwhile is in the first page only, which was read.
    depositor.bundle(6)
    seen += [one.link for one in walked]
    assert [link.partition("?")[0].rpartition("/")[2] for link in seen] == bundles[::-1]


def read_catalog(visitor: Visitor, path: str) -> tuple[Graph, str]:
    """Parse a page of the catalogue; return the path of the next one, too."""
    answer = visitor.get(path)
    assert (answer.status_code, answer.content_type) == (200, "application/ld+json")
    graph = Graph().parse(data=answer.text, format="json-ld")
    (following,) = [*graph.objects(None, HYDRA.next)] or [None]
    link = f'<{following}>; rel="next"' if following else None
    assert answer.headers.get("Link") == link
    return graph, str(following or "").removeprefix("http://localhost")


@pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated")  # rdflib's own use
def test_catalogue_has_all_bundles_in_dcat(
    visit: Visit, depositor: Depositor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "ENTRIES", 2)
    title = "</script> \u2028 Liver"
    titled = put(depositor, 9, {"sample.json": json.dumps({"title": title}).encode()})
    bundles = [titled, *(depositor.bundle(number) for number in (1, 2, 3))]
    whole, path = Graph(), "/catalog.jsonld"
    while path:
        page, path = read_catalog(visit(), path)
        whole += page
    catalog = URIRef("http://localhost/catalog.jsonld")
    assert (catalog, RDF.type, DCAT.Catalog) in whole
    assert [str(one) for one in whole.objects(catalog, DCTERMS.title)] == ["Atlas & <Co>"]
    assert len([*whole.objects(catalog, DCTERMS.description)]) == 1
    (publisher,) = whole.objects(catalog, DCTERMS.publisher)
    datasets = {
        URIRef(f"http://localhost/bundles/{uuid}?version={VERSION}"): uuid for uuid in bundles
    }
    assert {*whole.objects(catalog, DCAT.dataset)} == {*datasets}
    for dataset, uuid in datasets.items():
        assert (dataset, RDF.type, DCAT.Dataset) in whole
        assert (dataset, DCTERMS.identifier, Literal(f"{uuid}.{VERSION}")) in whole
        assert (dataset, DCTERMS.license, URIRef(LICENSE)) in whole
        assert (dataset, DCAT_VERSION, Literal(VERSION)) in whole
        (issued,) = whole.objects(dataset, DCTERMS.issued)
        assert isinstance(issued, Literal)
        assert issued.toPython() == datetime.fromisoformat(VERSION)
        assert [*whole.objects(dataset, DCTERMS.publisher)] == [publisher]
        described = Literal(f"Version {VERSION} of the bundle {uuid} of Atlas & <Co>: 1 file.")
        assert [*whole.objects(dataset, DCTERMS.description)] == [described]
        distributions = [*whole.objects(dataset, DCAT.distribution)]
        names = {str(whole.value(one, DCTERMS.title)) for one in distributions}
        assert names == {"Manifest", *ARCHIVE_FORMATS}
        for one in distributions:
            url = str(whole.value(one, DCAT.downloadURL))
            answer = visit().get(url.removeprefix("http://localhost"))
            media_type = str(whole.value(one, DCAT.mediaType))
            assert (answer.status_code, media_type.rpartition("assignments/media-types/")[2]) == (
                200,
                # IANA has no type for tar.
                answer.mimetype if answer.mimetype != "application/x-tar" else "None",
            )
            assert (one, DCTERMS.license, URIRef(LICENSE)) in whole
            answer.close()
    (shown,) = whole.objects(
        URIRef(f"http://localhost/bundles/{titled}?version={VERSION}"), DCTERMS.title
    )
    assert str(shown) == "</script> Liver"


@pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated")  # rdflib's own use
@pytest.mark.parametrize("license_", ["", LICENSE, "Ask us."])
def test_values_in_the_catalogue_have_the_classes_of_dcat_ap(license_: str) -> None:
    base = "https://store.example"
    tar = Download("tar", "application/x-tar", {"format": "tar"})
    described = describe_catalog(
        Publisher("Atlas", base, license_),
        "aws",
        [CatalogDataset(FQID(uuid_of(1), VERSION), "Liver", 1, [tar])],
        first_url=f"{base}/catalog.jsonld",
        self_url=f"{base}/catalog.jsonld",
        next_url=None,
    )
    graph = Graph().parse(data=json.dumps(described), format="json-ld")
    found = {(name, value) for _, name, value in graph if name in CLASSES}
    assert all((value, RDF.type, CLASSES[name]) in graph for name, value in found)
    optional = {DCTERMS.license, DCTERMS.rights}
    stated = {DCTERMS.license if license_ == LICENSE else DCTERMS.rights} if license_ else set()
    assert {name for name, _ in found} == ({*CLASSES} - optional) | stated
    # An organization is no document: FOAF's classes are disjoint.
    assert not {*graph.subjects(RDF.type, FOAF.Agent)} & {*graph.subjects(RDF.type, FOAF.Document)}


def test_withdrawn_bundles_leave_the_feed(visit: Visit, depositor: Depositor) -> None:
    depositor.bundle(1)
    gone = depositor.bundle(2)
    before = visit().get(FEED)
    tag = before.headers["ETag"]
    assert before.headers["Last-Modified"].endswith(" GMT")
    same = visit().get(FEED, **{"If-None-Match": tag})
    assert (same.status_code, same.data) == (304, b"")
    path = f"/v1/bundles/{gone}?replica=aws&version={VERSION}"
    assert depositor.client.delete(path, json={"reason": "r"}, headers=INGEST).status_code == 200
    changed = visit().get(FEED, **{"If-None-Match": tag})
    assert changed.status_code == 200
    assert gone not in changed.text
    assert len(read(visit()).entries) == 1


@pytest.mark.spec("WHO-30")
def test_open_feed_ignores_other_schemes_of_authorization(visit: Visit) -> None:
    assert visit().get(FEED, Authorization="Basic cmVhZGVyOg==").status_code == 200
    assert visit().get(FEED, Authorization="Bearer nobody").status_code == 401


def test_empty_feed_is_valid(visit: Visit) -> None:
    parsed = read(visit())
    assert parsed.entries == []
    assert parsed.feed.updated == "1970-01-01T00:00:00.000000Z"


@pytest.mark.parametrize("path", [FEED, "/catalog.jsonld"])
@pytest.mark.parametrize("query", ["replica=nowhere", "after=x", f"after={uuid_of(1)}"])
def test_rejects_bad_parameters(visit: Visit, path: str, query: str) -> None:
    assert visit().get(f"{path}?{query}").status_code == 400


def test_pages_name_the_feed(visit: Visit) -> None:
    link = '<link rel="alternate" href="/feed.atom" type="application/atom+xml"'
    assert link in visit().get("/").text
