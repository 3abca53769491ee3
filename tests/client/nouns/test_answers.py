"""The forms of answers: tables, lines, JSON, CSV, TSV, fields and expressions."""

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from store_client.cli.answers import (
    TERMINAL_ROWS,
    AnswerOptions,
    limit_rows,
    write_record,
    write_rows,
    write_value,
)
from store_client.cli.context import CommandContext, ProgramRun
from store_client.cli.terminal import format_cell
from store_client.cli.upload import show_upload
from store_client.configuration import HOME, URL, load_configuration
from store_client.uploads.plan import UploadReport
from tests.client.cli.people import PROGRAM, Typist
from tests.client.download.deposits import VERSION
from tests.client.nouns.conftest import LATER, READS, Shelf, rows
from tests.client.terminal.recorder import Terminal
from tests.waiting import until

pytestmark = pytest.mark.spec("CLI-151")


def test_pipe_gets_one_json_value_a_line(shelf: Shelf, admin: Typist) -> None:
    done = admin.types("bundle", "files", shelf.liver)
    assert [row["name"] for row in rows(done.stdout)] == [
        "sample.json",
        "readme.txt",
        "reads.fastq.gz",
    ]
    assert done.stderr == ""


def test_expressions_apply_functions_to_objects(shelf: Shelf, admin: Typist) -> None:
    done = admin.types("bundle", "show", shelf.liver, "--query", "length(keys(files[0])) > `3`")
    assert done.stdout == "true\n", done.stderr


def test_answers_of_the_library_are_plain_objects(shelf: Shelf) -> None:
    found = shelf.client.call("get_bundle", uuid=shelf.liver, replica="aws")
    assert type(found) is type(found["bundle"]) is dict


def test_json_has_the_fields_that_are_asked_for(shelf: Shelf, admin: Typist) -> None:
    whole = admin.reads("bundle", "files", shelf.liver, "--json")
    assert "crc32c" in whole[0]
    few = admin.reads("bundle", "files", shelf.liver, "--json", "name, size")
    assert few[2] == {"name": "reads.fastq.gz", "size": len(READS)}
    assert list(few[2]) == ["name", "size"]
    one = admin.reads("bundle", "show", shelf.liver, "--json", "size,version")
    assert one == {"size": 130 + len(READS), "version": LATER}
    lines = admin.types("bundle", "files", shelf.liver, "--json", "name", "--format", "lines")
    assert rows(lines.stdout)[0] == {"name": "sample.json"}


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["bundle", "list", "--json", "uid"], "uuid"),
        (["bundle", "show", "{liver}", "--json", "uuid,vresion"], "version"),
        (["bundle", "files", "{liver}", "--json", "content_type"], "content-type"),
        (["file", "show", "{liver}/readme.txt", "--json", "sha265"], "sha256"),
        (["search", "--json", "versoin"], "version"),
        (["search", "fields", "--json", "nam"], "name"),
    ],
)
def test_wrong_field_names_the_nearest(
    shelf: Shelf, admin: Typist, words: list[str], near: str
) -> None:
    done = admin.types(*(word.format(liver=shelf.liver) for word in words))
    assert (done.exit_code, done.stdout) == (2, "")
    assert re.search(rf"did you mean: .*\b{near}\b", done.stderr), done.stderr


def test_query_selects_by_jmespath(shelf: Shelf, admin: Typist) -> None:
    text = admin.types("bundle", "files", shelf.liver, "--query", "[?size>`100`].name")
    assert json.loads(text.stdout) == ["sample.json", "reads.fastq.gz"]
    assert admin.types("bundle", "show", shelf.liver, "--query", "version").stdout == f"{LATER}\n"
    assert admin.types("bundle", "show", shelf.liver, "--query", "nothing").stdout == "null\n"
    fails = admin.types("bundle", "show", shelf.liver, "--query", "abs(version)")
    assert (fails.exit_code, fails.stdout) == (2, "")
    assert "the expression fails" in fails.stderr


def test_form_of_what_an_expression_selects(shelf: Shelf, admin: Typist) -> None:
    files = ("bundle", "files", shelf.liver)
    some = ("--query", "[?size>`100`].{name: name, indexed: indexed}")
    done = admin.types(*files, *some, "--format", "csv")
    assert done.stdout == "name,indexed\nsample.json,true\nreads.fastq.gz,false\n"
    lines = admin.types(*files, *some, "--format", "lines").stdout.splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["sample.json", "reads.fastq.gz"]
    names = admin.types(*files, "--query", "[?size>`100`].name", "--format", "tsv")
    assert names.stdout == "sample.json\nreads.fastq.gz\n"
    one = admin.types(*files, "--jq", ".[] | {name, size}", "--format", "tsv")
    assert one.stdout.splitlines()[0] == "name\tsize"
    assert len(one.stdout.splitlines()) == 4


def test_jq_selects_by_jq(shelf: Shelf, admin: Typist) -> None:
    done = admin.types("bundle", "files", shelf.liver, "--jq", ".[] | select(.size > 100) | .name")
    assert done.stdout == "sample.json\nreads.fastq.gz\n"
    assert admin.types("bundle", "show", shelf.liver, "--jq", "{size}").stdout == (
        f'{{"size": {130 + len(READS)}}}\n'
    )
    assert admin.types("bundle", "show", shelf.liver, "--jq", "empty").stdout == ""
    fails = admin.types("bundle", "show", shelf.liver, "--jq", ".version | error")
    assert (fails.exit_code, fails.stdout) == (2, "")


@pytest.mark.parametrize(
    "words",
    [
        ["--query", "["],
        ["--query", "no_such_function(@)["],
        ["--jq", ".["],
        ["--jq", "no_such_function"],
        ["--jq", "(" * 10_000],
        ["--query", "uuid", "--jq", ".uuid"],
    ],
)
def test_bad_expressions_are_refused_before_a_request(offline: Typist, words: list[str]) -> None:
    done = offline.types("bundle", "list", *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words[0] in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 1000


def test_jq_without_its_package_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['jq'] = None; sys.argv = ['store', *sys.argv[1:]]; "
        "from store_client.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "bundle", "list", "--jq", "."],
        env={"STORE_CLIENT_HOME": str(tmp_path), URL: "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'consortium-store-client[jq]'" in done.stderr
    assert "--query" in done.stderr


AWKWARD = 'a "b", c\td\x1b[2J\n'


@pytest.mark.parametrize(("form", "separator"), [("csv", ","), ("tsv", "\t")])
def test_tables_for_programs_are_quoted(
    shelf: Shelf, admin: Typist, form: str, separator: str
) -> None:
    done = admin.types("bundle", "files", shelf.liver, "--format", form)
    read = list(csv.DictReader(io.StringIO(done.stdout), delimiter=separator))
    assert [row["size"] for row in read] == ["126", "4", str(len(READS))]
    words = ["search", "liver", "--fields", "note,uuid", "--format", form, "--limit", "1"]
    (row,) = csv.DictReader(io.StringIO(admin.types(*words).stdout), delimiter=separator)
    assert row["note"] == 'a "quoted", word'
    record = admin.types("bundle", "show", shelf.liver, "--json", "uuid,metadata", "--format", form)
    (row,) = csv.DictReader(io.StringIO(record.stdout), delimiter=separator)
    assert json.loads(row["metadata"]) == ["sample.json"]


HOSTILE = "[/red][link=http://x.example/]a\x1b]0;b\x07"
"""What a terminal, or the markup of tables, would act on."""


def test_names_of_members_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    write_record({HOSTILE: 1}, AnswerOptions("table"))
    write_rows([{HOSTILE: 1, "b": "x" * 2000}], (HOSTILE, "b", HOSTILE), AnswerOptions("table"))
    write_value([{HOSTILE: 1}], "table", title=HOSTILE)
    text = capsys.readouterr().out
    assert text.count(format_cell(HOSTILE)) >= 3
    assert "\x1b" not in text


def test_summary_of_an_upload_escapes_what_the_store_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = load_configuration("https://store.example", environ={HOME: str(tmp_path)})
    here = CommandContext(config, json=False, output="table", quiet=False, run=ProgramRun())
    show_upload(here, UploadReport("u", HOSTILE, 0, [], "unchanged", 0, 0), "aws")
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("form", ["csv", "tsv", "table", "lines", "json"])
def test_control_characters_are_escaped(capsys: pytest.CaptureFixture[str], form: str) -> None:
    made = [{"name": AWKWARD, "size": 1, "more": {AWKWARD: [AWKWARD]}}]
    assert write_rows(made, ("name", "size", "more"), AnswerOptions(form)) == 1
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "\x07" not in text
    if form in ("lines", "json"):
        assert json.loads(text) in (made, made[0])
    elif form in ("csv", "tsv"):
        heading, *_ = read = list(csv.reader(io.StringIO(text), delimiter=",\t"[form == "tsv"]))
        assert heading == ["name", "size", "more"]
        assert len(read) == 2
        assert read[1][0] == r'a "b", c\td\x1b[2J\n'


def test_empty_lists_stay_lists(admin: Typist) -> None:
    words = ["bundle", "list", "--prefix", "ffffffff"]
    assert admin.types(*words, "--json").stdout == "[]\n"
    assert admin.types(*words, "--format", "csv").stdout == "uuid,version\n"
    assert admin.types(*words, "--format", "table").stdout == ""
    assert admin.types(*words, "--query", "length(@)").stdout == "0\n"


def test_unknown_format_is_refused(offline: Typist) -> None:
    done = offline.types("bundle", "list", "--format", "xml")
    assert done.exit_code == 2
    assert "'xml'" in done.stderr


PRINTS = """
import json, sys
from store_client.cli.rich_views import print_rows
for rows, columns in json.load(sys.stdin):
    print_rows(rows, columns, title="")
    print("=")
"""
"""Prints tables in a process whose width is that of its terminal."""

ROWS = st.fixed_dictionaries(
    {
        "uuid": st.integers(0, 2**128 - 1).map(lambda n: str(UUID(int=n))),
        "version": st.just(VERSION),
        "name": st.text(max_size=60),
        "prose": st.text(max_size=200),
        "count": st.integers(0, 10**12),
    }
)
COLUMNS = st.permutations(["version", "name", "prose", "count"]).map(lambda rest: ["uuid", *rest])


def printed(width: int, tables: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PRINTS],
        input=json.dumps(tables),
        env={"COLUMNS": str(width), "FORCE_COLOR": "1", "LINES": "100000", "TERM": "xterm"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return re.sub(r"\x1b\[[\d;]*m", "", done.stdout)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_tables_never_cut_or_wrap_what_is_copied(width: int) -> None:
    tables: list[tuple[list[Mapping[str, object]], list[str]]] = []

    @given(st.lists(ROWS, min_size=1, max_size=4), COLUMNS)
    def collect(rows_: list[Mapping[str, object]], columns: list[str]) -> None:
        tables.append((rows_, columns))

    collect()
    shown = printed(width, tables).split("=\n")
    assert len(shown) == len(tables) + 1
    for (made, columns), text in zip(tables, shown, strict=False):
        heading, *lines = text.splitlines()
        kept = [name for name in columns if name in heading.split()]
        left_out = [name for name in columns if name not in kept]
        assert columns == kept + left_out
        assert ("(no room for " in text) == bool(left_out)
        assert [name for name in left_out if name not in text] == []
        for row, line in zip(made, lines, strict=False):
            assert cell_len(line) <= width
            for name in kept:
                if name != "prose":
                    assert format_cell(row[name]) in line


def test_tables_of_all_columns_keep_addresses_whole() -> None:
    row = {"selected": "*", "uuid": str(UUID(int=7)), "uri": f"http://x.example/{'a' * 50}/"}
    for width, shown in ((60, ["uuid", "selected"]), (120, ["uuid", "selected", "uri"])):
        text = printed(width, [([row], ["uuid", "selected", "uri"])])
        heading, line, *_ = text.splitlines()
        assert heading.split() == shown
        assert sorted(line.split()) == sorted(row[name] for name in shown)
        assert ("(no room for uri;" in text) == (width == 60)


def environ(shelf: Shelf, tmp_path: Path, **more: str) -> dict[str, str]:
    """Of a program in a terminal."""
    return {
        "PATH": "/usr/bin:/bin",
        "STORE_CLIENT_HOME": str(tmp_path / "home"),
        URL: shelf.store.url,
        **more,
    }


COLOR = re.compile(rb"\x1b\[(?:\d+;)*(?:3|9)\d")


def test_terminal_gets_a_table(shelf: Shelf, tmp_path: Path) -> None:
    words = [PROGRAM, "bundle", "versions", shelf.liver]
    for more in ({}, {"NO_COLOR": "1"}):
        said = environ(shelf, tmp_path, **more)
        with Terminal(words, cwd=tmp_path, environ=said) as terminal:
            assert terminal.end() == 0
            heading, *lines = terminal.text.splitlines()
            assert heading.split() == ["uuid", "version"]
            assert [line.split() for line in lines] == [
                [shelf.liver, LATER],
                [shelf.liver, VERSION],
            ]
            assert terminal.screen.buffer[0][0].bold
            assert not more or not COLOR.search(terminal.raw)


def test_long_table_opens_the_pager(shelf: Shelf, tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\ncat > {tmp_path}/paged\n")
    pager.chmod(0o755)
    said = environ(shelf, tmp_path, PAGER=str(pager))
    listed = [PROGRAM, "bundle", "list"]
    with Terminal(listed, cwd=tmp_path, environ=said, rows=4) as terminal:
        assert terminal.end() == 0
    until((tmp_path / "paged").exists)
    assert shelf.liver in (tmp_path / "paged").read_text()
    (tmp_path / "paged").unlink()
    with Terminal([*listed, "--limit", "1"], cwd=tmp_path, environ=said, rows=4) as terminal:
        assert terminal.end() == 0
        assert "uuid" in terminal.text
    assert not (tmp_path / "paged").exists()


def test_long_lists_are_limited_on_a_terminal_only() -> None:
    made = [{"uuid": str(UUID(int=n))} for n in range(TERMINAL_ROWS + 1)]
    for form, limit, count, more in (
        ("table", None, TERMINAL_ROWS, True),
        ("table", TERMINAL_ROWS + 1, TERMINAL_ROWS + 1, False),
        ("lines", None, TERMINAL_ROWS + 1, False),
        ("lines", 3, 3, True),
    ):
        limited = limit_rows(made, limit, AnswerOptions(form))
        assert len(list(limited)) == count
        assert limited.more is more


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["bundle", "show", "{liver}"], "/bundles/{liver}"),
        (
            ["bundle", "show", "{liver}." + VERSION, "--replica", "gcp"],
            f"/bundles/{{liver}}?version={VERSION}&replica=gcp",
        ),
        (
            ["bundle", "diff", "{liver}"],
            f"/bundles/{{liver}}/diff?from={VERSION}&to={LATER}&replica=aws",
        ),
        (["file", "show", "{file}"], "/files/{file}?version=" + VERSION),
        (["search", "liver"], "/search?q=liver"),
        (["subscription", "show", "{liver}"], "/subscriptions/{liver}"),
        (["collection", "show", "{liver}"], "/collections/{liver}"),
    ],
)
def test_web_opens_the_page(shelf: Shelf, tmp_path: Path, words: list[str], path: str) -> None:
    names = {"liver": shelf.liver, "file": shelf.file_of(shelf.liver, "readme.txt")["uuid"]}
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    done = subprocess.run(
        [PROGRAM, *(word.format(**names) for word in words), "--web"],
        env=environ(shelf, tmp_path, BROWSER=f"{browser} %s"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = shelf.store.url + path.format(**names)
    assert done.stdout == f"{expected}\n"
    until((tmp_path / "opened").exists)
    assert (tmp_path / "opened").read_text() == f"{expected}\n"


def test_web_without_a_browser_says_where_the_page_is(shelf: Shelf, tmp_path: Path) -> None:
    done = subprocess.run(
        [PROGRAM, "bundle", "show", shelf.liver, "--web"],
        env=environ(shelf, tmp_path, PATH="/nowhere"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == f"{shelf.store.url}/bundles/{shelf.liver}\n"
    assert "There is no browser here" in done.stderr
    assert done.returncode == 0
