"""Every command through a network that cuts, resets, refuses and flips bits."""

import json
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pytest
from click.testing import Result

from store_client.client import Client
from store_client.configuration import URL, Configuration
from store_client.errors import NotFound, StoreError
from store_client.http import HttpSession, RetryPolicy, StaticToken
from tests.client.cli.people import Typist
from tests.client.conftest import ADMIN_TOKEN
from tests.client.end_to_end.people import contents
from tests.client.nouns.conftest import LATER, READS, Shelf
from tests.drill.fault_proxy import Mode, Proxy, before

pytestmark = pytest.mark.spec("CLI-155")

HANGS_S = 60.0
POLICY = RetryPolicy(waits_s=(0, 0, 0), read_s=10.0)
CLEAR = {7, 8}
"""Exit codes of an end that says that nothing, or not all, came."""
OF_THE_STORE = {2, 3, 5, 6}
"""Answers whose bits were flipped may be any of the store's."""

READING = [
    ["bundle", "list", "--prefix", "{liver}"],
    ["bundle", "show", "{liver}"],
    ["bundle", "files", "{liver}", "--format", "csv"],
    ["bundle", "versions", "{liver}"],
    ["bundle", "diff", "{liver}", "--patch"],
    ["file", "show", "{liver}/readme.txt"],
    ["search", "liver", "--facet", "organ", "--fields", "uuid,organ"],
    ["search", "fields", "organ"],
    ["collection", "show", "{collection}"],
    ["subscription", "show", "{subscription}"],
    ["subscription", "deliveries", "{subscription}"],
]
WRITING = [
    ["file", "cat", "{liver}/reads.fastq.gz"],
    ["file", "cp", "{liver}/reads.fastq.gz", "copy"],
    ["download", "{liver}", "--num-retries", "2", "--min-delay-seconds", "0.01", "--no-progress"],
    ["search", "liver", "--manifest", "cohort.tsv"],
    ["collection", "list"],
    ["collection", "create", "--name", "x", "--bundles", "ids"],
    ["collection", "download", "{collection}", "--num-retries", "2", "--no-progress"],
    ["subscription", "list"],
    ["subscription", "create", "https://receiver.example/x", "--match", "a"],
    ["subscription", "test", "{subscription}"],
    ["subscription", "pause", "{subscription}"],
    ["subscription", "resume", "{subscription}"],
    ["subscription", "delete", "{subscription}", "--yes"],
    ["collection", "delete", "{collection}", "--yes"],
    ["bundle", "delete", "{none}", "--reason", "x", "--yes"],
]
HARMS = [Mode.RESET, Mode.REFUSE, *(Mode.TRUNCATE, Mode.FLIP) * 3]
"""The last two harm some answers only."""


@pytest.fixture(scope="module")
def proxy(shelf: Shelf) -> Iterator[Proxy]:
    where = urlsplit(shelf.store.url)
    with before(str(where.hostname), int(where.port or 0), Random(1)) as found:
        yield found


@pytest.fixture
def names(shelf: Shelf) -> dict[str, str]:
    """Objects that commands name; each test deletes its own."""
    collection = shelf.client.call(
        "put_collection",
        uuid=str(uuid4()),
        version=LATER,
        replica="aws",
        name="faults",
        description="",
        details={},
        contents=[{"type": "bundle", "uuid": shelf.liver, "version": LATER}],
    )
    subscription = shelf.client.call(
        "put_subscription",
        replica="aws",
        callback_url="https://receiver.example/notify",
        jmespath_query="a",
    )
    return {
        "liver": shelf.liver,
        "collection": str(collection["uuid"]),
        "subscription": str(subscription["uuid"]),
        "none": "00000000-0000-4000-8000-0000000000ff",
    }


def make_client(config: Configuration) -> Client:
    """A client that does not wait between tries."""
    tokens = StaticToken(ADMIN_TOKEN)
    session = HttpSession(config.url, policy=POLICY, tokens=tokens, sleep=lambda _: None)
    return Client(config=config, session=session)


def run(person: Typist, words: list[str]) -> Result:
    """What comes of a command, which has to end in time."""
    done: list[Result] = []
    running = threading.Thread(target=lambda: done.append(person.types(*words)), daemon=True)
    running.start()
    running.join(HANGS_S)
    assert done, f"still runs after {HANGS_S} s: {words}"
    return done[0]


def check_end(done: Result, mode: Mode, *, deletes: bool = False) -> None:
    """It went well, or says in a few lines why not; a lost answer may be of a deletion."""
    allowed = {0, *CLEAR, *({NotFound.exit_code} if deletes else ())}
    if mode is Mode.FLIP:
        allowed |= OF_THE_STORE
    assert done.exit_code in allowed, f"{mode}: {done.exit_code}\n{done.stderr}"
    check_output(done)


def check_output(done: Result) -> None:
    """A command that fails says in a few lines why."""
    assert "Traceback" not in done.output
    assert "an error in this client" not in done.stderr
    if done.exit_code:
        assert "\nstore: " in f"\n{done.stderr}", done.stderr


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_answers_are_right_or_there_are_none(
    shelf: Shelf, proxy: Proxy, names: dict[str, str], tmp_path: Path, words: list[str]
) -> None:
    said = [word.format(**names) for word in words]
    through = {URL: f"http://127.0.0.1:{proxy.port}"}
    proxy.mode = Mode.PASS
    calm = Typist(tmp_path / "calm", make_client, through)
    expected = run(calm, said)
    assert expected.exit_code == 0, expected.stderr
    for turn, mode in enumerate(HARMS):
        person = Typist(tmp_path / f"{turn}", make_client, through)
        shutil.copytree(calm.home, person.home)
        proxy.mode = mode
        done = run(person, said)
        check_end(done, mode)
        if mode is Mode.FLIP:
            continue
        assert done.exit_code or done.stdout == expected.stdout
        # What is written line by line may break off, at the end of a line.
        assert expected.stdout.startswith(done.stdout)
        assert done.stdout.endswith("\n") or not done.stdout


KEYS = re.compile(r'"([A-Za-z_]+)":')
REPEATABLE = [words for words in READING + WRITING if "delete" not in words]


@pytest.mark.parametrize("words", REPEATABLE, ids=" ".join)
def test_absent_fields_of_answers_are_named(
    shelf: Shelf,
    names: dict[str, str],
    tmp_path: Path,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = [word.format(**names) for word in words]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ids").write_text(f"{shelf.liver}\n")
    decode, seen = httpx.Response.json, set[str]()

    def remember(answer: httpx.Response, **said: Any) -> Any:
        seen.update(KEYS.findall(answer.text))
        return decode(answer, **said)

    monkeypatch.setattr(httpx.Response, "json", remember)
    calm = Typist(tmp_path / "calm", make_client, {URL: shelf.store.url})
    assert run(calm, said).exit_code == 0
    for turn, key in enumerate(sorted(seen)):

        def rename(answer: httpx.Response, key: str = key, **said: Any) -> Any:
            return json.loads(answer.text.replace(f'"{key}":', f'"{key}x":'), **said)

        monkeypatch.setattr(httpx.Response, "json", rename)
        person = Typist(tmp_path / f"{turn}", make_client, {URL: shelf.store.url})
        shutil.copytree(tmp_path / "calm", person.home)
        done = run(person, said)
        assert done.exit_code != StoreError.exit_code, (key, done.stderr)
        check_output(done)


@pytest.mark.parametrize("words", WRITING, ids=" ".join)
def test_files_are_whole_or_absent(
    shelf: Shelf,
    proxy: Proxy,
    names: dict[str, str],
    tmp_path: Path,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = [word.format(**names) for word in words]
    through = {URL: f"http://127.0.0.1:{proxy.port}"}
    proxy.mode = Mode.PASS
    calm = Typist(tmp_path / "calm", make_client, through)
    assert run(calm, ["get-echo"]).exit_code == 0
    for turn, mode in enumerate(HARMS):
        folder = tmp_path / f"{turn}"
        person = Typist(folder / "home", make_client, through)
        shutil.copytree(calm.home, person.home)
        monkeypatch.chdir(folder)
        (folder / "cohort.tsv").write_text("old")
        (folder / "copy").write_text("old")
        (folder / "ids").write_text(f"{shelf.liver}\n{shelf.heart}\n")
        proxy.mode = mode
        done = run(person, said)
        proxy.mode = Mode.PASS
        check_end(done, mode, deletes="delete" in words)
        check_files(shelf, folder, done.exit_code)


def check_files(shelf: Shelf, folder: Path, code: int) -> None:
    """Every file under its final name is whole; others are in the cache."""
    copy = (folder / "copy").read_bytes()
    assert copy in (b"old", READS)
    table = (folder / "cohort.tsv").read_text()
    assert table == "old" or (table.startswith("bundle_uuid\t") and table.count("\n") == 7)
    assert list(folder.glob(".store-*")) == []
    known = {"sample.json": 126, "readme.txt": 4, "reads.fastq.gz": len(READS)}
    for place in folder.iterdir():
        if place.is_dir() and place.name not in (".store", "home"):
            for name, data in contents(place).items():
                last = name.rpartition("/")[2]
                assert last not in known or len(data) == known[last], name
