"""The command search: words, fields, filters, facets, and what is done with the results."""

import csv
import io
import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.client.cli.people import Typist
from tests.client.download.deposits import VERSION
from tests.client.end_to_end.people import contents
from tests.client.nouns.conftest import LATER, READS, Shelf, rows
from tests.waiting import until

pytestmark = pytest.mark.spec("CLI-152")


def found(admin: Typist, *words: str) -> set[tuple[str, str]]:
    """The bundles that a search finds."""
    done = admin.types("search", *words)
    assert done.exit_code == 0, done.output
    return {(row["uuid"], row["version"]) for row in rows(done.stdout)}


@pytest.fixture
def livers(shelf: Shelf) -> set[tuple[str, str]]:
    """Both versions of the liver."""
    return {(shelf.liver, VERSION), (shelf.liver, LATER)}


@pytest.fixture
def hearts(shelf: Shelf) -> set[tuple[str, str]]:
    return {(shelf.heart, VERSION)}


def test_all_words_must_occur(
    admin: Typist, livers: set[tuple[str, str]], hearts: set[tuple[str, str]]
) -> None:
    assert found(admin, "danio", "liver") == livers
    assert found(admin, "danio liver") == set(), "several words in one argument are a phrase"
    assert found(admin, "danio", "male") == hearts
    assert found(admin, "danio", "kidney") == set()
    assert found(admin, "LIVER") == livers
    assert found(admin) >= livers | hearts


def test_phrases_exclusions_and_terms(
    admin: Typist, livers: set[tuple[str, str]], hearts: set[tuple[str, str]]
) -> None:
    assert found(admin, '"adult heart"') == hearts
    assert found(admin, "adult heart") == hearts
    assert found(admin, '"heart adult"') == set()
    assert found(admin, "--", "danio", "-liver") == hearts
    assert found(admin, "CL:0000236", "liver") == livers
    assert found(admin, 'a "quoted"', "liver") == livers


def test_words_in_fields(
    admin: Typist, livers: set[tuple[str, str]], hearts: set[tuple[str, str]]
) -> None:
    assert found(admin, "organ:liver") == livers
    assert found(admin, "sample_json.organ:liver", "danio") == livers
    assert found(admin, "files.sample_json.sex:male") == hearts
    assert found(admin, 'organ:"adult heart"') == hearts
    assert found(admin, "organ:adult heart") == hearts


def test_filters_are_whole_values(
    admin: Typist, livers: set[tuple[str, str]], hearts: set[tuple[str, str]]
) -> None:
    assert found(admin, "--filter", "organ=adult heart") == hearts
    assert found(admin, "--filter", "organ=heart") == set()
    assert found(admin, "--filter", "organ=liver", "--filter", "organ=adult heart") == (
        livers | hearts
    )
    assert found(admin, "--filter", "organ=liver", "--filter", "sex=male") == set()
    assert found(admin, "--filter", "donor=2") == {one for one in livers if one[1] == LATER}
    assert found(admin, "danio", "--filter", 'note=a "quoted", word') == livers
    assert found(admin, "--filter", "organ=") == set()


@pytest.mark.parametrize("text", ["organ", "=liver", ""])
def test_filter_needs_field_and_value(offline: Typist, text: str) -> None:
    done = offline.types("search", "--filter", text)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "is not field=value" in done.stderr


@pytest.mark.parametrize(
    "words",
    [["--filter", "organsim=x"], ["--facet", "organsim"], ["--fields", "uuid,organsim"]],
)
def test_wrong_fields_name_the_nearest(admin: Typist, words: list[str]) -> None:
    done = admin.types("search", *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "there is no field 'organsim'" in done.stderr
    assert "did you mean: files.sample_json.organism" in done.stderr


def test_word_before_colon_that_is_no_field_says_so_only_if_dotted(admin: Typist) -> None:
    done = admin.types("search", "sample_json.organsim:x")
    assert done.exit_code == 2
    assert "files.sample_json.organism" in done.stderr
    assert found(admin, "CL:9999999") == set()


def test_a_short_name_stands_for_all_fields_that_end_so(shelf: Shelf, admin: Typist) -> None:
    shelf.depositor.bundle(
        0x40, {"a.json": b'{"twice": "x"}', "b.json": b'{"twice": "y"}', "c.json": b'{"once": 1}'}
    )
    until(lambda: admin.types("search", "fields", "twice").stdout)
    counted = rows(admin.types("search", "--facet", "twice").stdout)
    assert [(row["field"], row["value"]) for row in counted] == [
        ("files.a_json.twice", "x"),
        ("files.b_json.twice", "y"),
    ]
    for words in (["twice:x"], ["twice:y"], ["--filter", "twice=y"], ["--filter", "twice=x"]):
        (row,) = rows(admin.types("search", *words, "--fields", "twice").stdout)
        assert row == {"twice": "x, y"}
    assert found(admin, "--filter", "twice=z") == set()
    done = admin.types("search", "--filter", "twice=y", "--web")
    assert done.exit_code == 2
    assert "files.a_json.twice, files.b_json.twice" in done.stderr


def test_a_name_that_very_many_fields_end_with_has_to_be_longer(
    shelf: Shelf, admin: Typist
) -> None:
    document = json.dumps({f"part{n}": {"many": n} for n in range(21)}).encode()
    shelf.depositor.bundle(0x41, {"m.json": document})
    until(lambda: len(rows(admin.types("search", "fields", "many").stdout)) == 21)
    done = admin.types("search", "--facet", "many")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "21 fields end with 'many'" in done.stderr


def test_fields_are_columns(shelf: Shelf, admin: Typist) -> None:
    words = ["liver", "--filter", "donor=2", "--fields", "uuid,version,count,size,organ,donor,page"]
    (row,) = rows(admin.types("search", *words).stdout)
    assert row == {
        "uuid": shelf.liver,
        "version": LATER,
        "count": 3,
        "size": 126 + 4 + len(READS),
        "organ": "liver",
        "donor": 2,
        "page": f"{shelf.store.url}/bundles/{shelf.liver}?version={LATER}",
    }


def test_facets_count_values(shelf: Shelf, admin: Typist) -> None:
    facets = ("--facet", "organ", "--facet", "sex", "--filter", "organism=Danio rerio")
    counted = rows(admin.types("search", *facets).stdout)
    assert counted == [
        {"field": "files.sample_json.organ", "value": "liver", "count": 2},
        {"field": "files.sample_json.organ", "value": "adult heart", "count": 1},
        {"field": "files.sample_json.sex", "value": "female", "count": 2},
        {"field": "files.sample_json.sex", "value": "male", "count": 1},
    ]
    table = admin.types("search", *facets, "--format", "table").stdout
    assert table.startswith("files.sample_json.organ\n")
    assert shelf.heart in table
    aside = admin.types("search", *facets, "--fields", "uuid")
    assert {row["uuid"] for row in rows(aside.stdout)} == {shelf.liver, shelf.heart}
    assert "files.sample_json.sex: female 2, male 1" in aside.stderr


def test_limit_is_exact_and_told(admin: Typist) -> None:
    assert len(found(admin, "--limit", "2")) == 2
    assert len(found(admin, "--limit", "2", "--fields", "uuid,version")) == 2
    few = admin.types("search", "danio", "--limit", "1", "--format", "table")
    assert "1 of 3 bundles; --limit shows more" in few.stderr
    none = admin.types("search", "kidney")
    assert (none.exit_code, none.stdout) == (0, "")
    assert "No bundle matches." in none.stderr


def test_es_query_replaces_words(shelf: Shelf, admin: Typist, livers: set[tuple[str, str]]) -> None:
    query = json.dumps({"query": {"match": {"files.sample_json.organ": "liver"}}})
    assert found(admin, "--es-query", query) == livers
    both = admin.types("search", "danio", "--es-query", query)
    assert (both.exit_code, both.stdout) == (2, "")
    wrong = admin.types("search", "--es-query", '{"query": {"no_such": {}}}')
    assert (wrong.exit_code, wrong.stdout) == (3, "")
    assert "no_such" in wrong.stderr


@pytest.mark.parametrize(
    "words",
    [["("], ['"'], ["a" * 100_000], ["\x1b[2J"], ["organ:("], ["organ:["], ["AND"], ["*:*"]],
)
def test_unusual_words_end_with_an_answer_or_a_clear_error(admin: Typist, words: list[str]) -> None:
    done = admin.types("search", *words)
    assert done.exit_code in (0, 2, 3), done.output
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.output
    assert len(done.stderr) < 3000


def test_manifest_feeds_download_manifest(
    shelf: Shelf, admin: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = admin.types("search", "liver", "--manifest", "cohort.tsv")
    assert (done.exit_code, done.stdout) == (0, ""), done.stderr
    assert "cohort.tsv lists 6 files of 2 bundles." in done.stderr
    again = "store download-manifest --manifest cohort.tsv --replica aws"
    assert again in done.stderr
    text = (tmp_path / "cohort.tsv").read_bytes().decode()
    listed = list(csv.DictReader(io.StringIO(text), delimiter="\t"))
    assert {row["bundle_version"] for row in listed} == {VERSION, LATER}
    came = admin.types(*again.split()[1:], "--layout", "bundle", "--no-progress")
    assert came.exit_code == 0, came.stderr
    assert contents(tmp_path / f"{shelf.liver}.{VERSION}")["reads.fastq.gz"] == READS
    shown = rows(admin.types("bundle", "show", "-", given=text).stdout)
    assert {row["version"] for row in shown} == {VERSION, LATER}


def test_manifest_is_whole_or_not_at_all(
    admin: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cohort.tsv").write_text("old")
    none = admin.types("search", "kidney", "--manifest", "cohort.tsv")
    assert none.exit_code == 5
    assert (tmp_path / "cohort.tsv").read_text() == "old"
    missing = admin.types("search", "liver", "--manifest", "missing/cohort.tsv")
    assert missing.exit_code == 2
    assert "there is no directory missing" in missing.stderr
    both = admin.types("search", "liver", "--manifest", "m.tsv", "--download", "d")
    assert both.exit_code == 2
    assert [path.name for path in tmp_path.iterdir() if path.name != "admin"] == ["cohort.tsv"]


def test_download_brings_all_results(
    shelf: Shelf, admin: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = admin.types("search", "danio", "--filter", "organ=adult heart", "--download", "data")
    assert done.exit_code == 0, done.stderr
    assert contents(tmp_path / "data" / f"{shelf.heart}.{VERSION}")["reads.fastq.gz"] == b"heart"
    one = admin.types("search", "liver", "--limit", "1", "--download", "one")
    assert one.exit_code == 0, one.stderr
    assert len(list((tmp_path / "one").iterdir())) == 1


def test_results_can_be_piped_into_download(
    shelf: Shelf, admin: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written = admin.types("search", "liver").stdout
    done = admin.types("download", "-", "--no-progress", given=written)
    assert done.exit_code == 0, done.stderr
    folders = {path.name for path in tmp_path.iterdir() if path.name.startswith(shelf.liver)}
    assert folders == {f"{shelf.liver}.{VERSION}", f"{shelf.liver}.{LATER}"}


def test_fields_are_listed_by_part_of_their_name(admin: Typist) -> None:
    listed = rows(admin.types("search", "fields", "ORGAN").stdout)
    names = [row["name"] for row in listed]
    assert names == ["files.sample_json.organ", "files.sample_json.organism"]
    none = admin.types("search", "fields", "no such")
    assert (none.exit_code, none.stdout) == (0, "")
    assert "There are no such fields." in none.stderr


def test_web_page_has_words_and_filters(shelf: Shelf, admin: Typist) -> None:
    opened = Typist(admin.home, admin.make, {**admin.environ, "BROWSER": "true"})
    done = opened.types("search", "liver", "--filter", "organ=a:b", "--web", "--replica", "gcp")
    page = urlsplit(done.stdout.strip())
    assert f"{page.scheme}://{page.netloc}{page.path}" == f"{shelf.store.url}/search"
    assert parse_qs(page.query) == {
        "q": ["liver"],
        "filter": ["files.sample_json.organ:a:b"],
        "replica": ["gcp"],
    }
