"""The forms of a result, on a terminal and elsewhere."""

import contextlib
import io
import json
import os
import pty
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from store_client.cli import operations
from store_client.cli.answers import write_value
from store_client.cli.context import CommandContext, ProgramRun
from store_client.client import Client
from store_client.configuration import Configuration
from store_client.definition import ApiOperation
from store_client.errors import Damaged, StoreError
from store_client.http import HttpSession, RetryPolicy
from tests.client.cli.people import PROGRAM
from tests.client.definition.documents import body, document, operation

ROWS = [{"name": "a\x1b[2J", "size": 1}, {"name": "b", "of": {"x": [1]}}]


class Terminal(io.TextIOWrapper):
    """Something that says of itself whether it is a terminal."""

    def __init__(self, terminal: bool, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def written(work: Callable[[], None], *, terminal: bool = False, encoding: str = "utf-8") -> bytes:
    """What some work writes to standard output."""
    with Terminal(terminal, encoding) as stream:
        with contextlib.redirect_stdout(stream):
            work()
        stream.flush()
        assert isinstance(stream.buffer, io.BytesIO)
        return stream.buffer.getvalue()


def shown(value: Any, form: str, *, chosen: bool = True, terminal: bool = False) -> str:
    return written(lambda: write_value(value, form, chosen=chosen), terminal=terminal).decode()


@pytest.mark.spec("CLI-46")
def test_pipe_gets_one_document_on_one_line() -> None:
    text = shown({"rows": ROWS, "é": "日本"}, "json", chosen=False)
    assert text.count("\n") == 1
    assert "日本" in text
    assert json.loads(text) == {"rows": ROWS, "é": "日本"}


@pytest.mark.spec("CLI-46")
def test_a_terminal_gets_lists_as_tables_and_documents_indented() -> None:
    table = re.sub(r"\x1b\[[0-9;]*m", "", shown(ROWS, "table", chosen=False, terminal=True))
    assert [line.split() for line in table.splitlines()] == [
        ["name", "size", "of"],
        [r"a\x1b[2J", "1"],
        ["b", '{"x":', "[1]}"],
    ]
    assert shown({"a": 1}, "table", chosen=False, terminal=True) == '{\n  "a": 1\n}\n'
    assert shown([], "table", chosen=False, terminal=True) == "[]\n"


@pytest.mark.spec("CLI-46")
def test_table_shows_list_of_document() -> None:
    document = {"rows": ROWS, "total": 2}
    assert shown(document, "table").splitlines()[0].split() == ["name", "size", "of"]
    assert shown({"users": ["ada", "b\n"]}, "table") == "ada\nb\\n\n"
    assert shown({"users": []}, "table") == "(none)\n"
    assert json.loads(shown({"a": [], "b": []}, "table")) == {"a": [], "b": []}


@pytest.mark.spec("CLI-46")
def test_lines_are_an_item_each() -> None:
    text = shown({"rows": ROWS}, "lines")
    assert [json.loads(line) for line in text.splitlines()] == ROWS


@pytest.mark.spec("CLI-48")
def test_bytes_reach_a_pipe_as_they_are_and_a_terminal_escaped() -> None:
    data = b"\xff\x1b[2J\n"
    assert written(lambda: write_value(data, "raw")) == data
    assert written(lambda: write_value(data, "raw"), terminal=True) == b"\\xff\\x1b[2J\n\n"


@pytest.mark.spec("CLI-46")
def test_a_terminal_of_few_characters_gets_json_that_it_can_write() -> None:
    data = written(lambda: write_value({"é": "日"}, "json"), encoding="ascii")
    assert json.loads(data) == {"é": "日"}


@pytest.mark.spec("CLI-45")
def test_pages_are_merged_as_one_page_of_any_length_would_be() -> None:
    pages = [
        {"rows": [1, 2], "has_more": True, "page_count": 2},
        {"rows": [3], "has_more": False, "page_count": 1},
    ]
    whole = {"rows": [1, 2, 3], "has_more": False, "page_count": 3}
    assert operations.merge_pages(iter(pages), "rows") == whole
    nested = [{"bundle": {"uuid": "u", "files": [n]}} for n in range(2)]
    assert operations.merge_pages(iter(nested), "bundle.files") == {
        "bundle": {"uuid": "u", "files": [0, 1]}
    }
    assert operations.merge_pages(iter([]), "rows") is None
    assert operations.merge_pages(iter([[1], [2]]), "") == [1, 2]


PAGES = (
    {"list": {"uuid": "u", "files": [{"name": "a"}, {"name": "b"}]}, "per_page": 2},
    {"list": {"uuid": "u", "files": [{"name": "c"}]}, "per_page": 2},
)
LISTED = {
    "type": "object",
    "properties": {"list": {"type": "object", "properties": {"files": {"type": "array"}}}},
}
LISTING = operation("list_files", responses={"206": body(LISTED)["requestBody"]})


@pytest.fixture
def paged(tmp_path: Path) -> Iterator[Client]:
    """A client of a store that has one operation, of two pages."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/swagger.json":
            return httpx.Response(200, json=document({"/files": {"get": LISTING}}))
        if "page" in request.url.params:
            return httpx.Response(200, json=PAGES[1])
        return httpx.Response(206, json=PAGES[0], headers={"Link": '<?page=2>; rel="next"'})

    config = Configuration(tmp_path, tmp_path, "http://store.example")
    session = HttpSession(config.url, transport=httpx.MockTransport(answer))
    with Client(config=config, session=session) as made:
        yield made


@pytest.mark.spec("CLI-131")
@pytest.mark.parametrize(("every", "rows"), [(True, ["a", "b", "c"]), (False, ["a", "b"])])
def test_a_terminal_gets_the_items_of_pages_as_a_table_and_the_rest_beside_it(
    paged: Client, capsys: pytest.CaptureFixture[str], every: bool, rows: list[str]
) -> None:
    place = ProgramRun(make=lambda config: paged)
    here = CommandContext(paged.config, json=False, output="table", quiet=False, run=place)
    asked = paged.operation("list_files")
    table = written(
        lambda: operations.show_operation(here, asked, {}, all_pages=every), terminal=True
    ).decode()
    assert re.sub(r"\x1b\[[0-9;]*m", "", table).split() == ["name", *rows]
    assert capsys.readouterr().err == f"files: {len(rows)}, uuid: u\n"


FILE = ApiOperation("get_file", "store", "GET", "http://store.example/v1/files/1")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[[bytes, str], Client]]:
    """Makes clients of a store whose file has that content, or is said to have it."""
    made: list[Client] = []

    def make(content: bytes, sha256: str) -> Client:
        def answer(request: httpx.Request) -> httpx.Response:
            if request.url.path == "/blob":
                assert "Authorization" not in request.headers
                return httpx.Response(200, content=iter([content]))
            headers = {"Location": "/blob", "X-STORE-SHA256": sha256}
            return httpx.Response(302, headers=headers)

        url = "http://store.example"
        session = HttpSession(
            url, transport=httpx.MockTransport(answer), policy=RetryPolicy(waits_s=())
        )
        config = Configuration(tmp_path, tmp_path, url)
        made.append(Client(config=config, session=session))
        return made[-1]

    yield make
    for client in made:
        client.close()


ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.spec("CLI-47")
def test_a_raw_file_is_its_content(served: Callable[[bytes, str], Client]) -> None:
    client = served(b"abc", ABC.upper())
    assert written(lambda: operations.write_raw(client, FILE, {}, pages=False)) == b"abc"


@pytest.mark.spec("CLI-47")
def test_a_raw_file_that_is_another_one_is_a_failure(
    served: Callable[[bytes, str], Client],
) -> None:
    client = served(b"abd", ABC)
    with pytest.raises(Damaged, match="checksum") as caught:
        written(lambda: operations.write_raw(client, FILE, {}, pages=False))
    assert isinstance(caught.value, StoreError)


@pytest.mark.spec("CLI-46")
def test_a_person_at_a_terminal_is_shown_a_document_that_is_indented(tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    with open(leader, "rb", buffering=0) as screen, open(follower, "wb") as terminal:
        environ = {**os.environ, "STORE_CLIENT_HOME": str(tmp_path)}
        words = [str(PROGRAM), "create-version", "--json"]
        subprocess.run(words, stdout=terminal, env=environ, timeout=60, check=True)
        assert screen.read(100).startswith(b'{\r\n  "version": ')
