"""The first contact with the program: help, near misses, hosts, refused connections, profiles."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from store_client.cli import registry
from store_client.client import Client
from store_client.configuration import URL, Configuration, save_profile
from store_client.http import HttpSession, StaticToken
from tests.client.cli.people import PROGRAM, Typist, program
from tests.client.conftest import ADMIN_TOKEN
from tests.client.download.deposits import uuid_of
from tests.client.nouns.conftest import Shelf, rows
from tests.client.scripted_server import scripted
from tests.client.terminal.recorder import Terminal

pytestmark = pytest.mark.spec("CLI-154")


@pytest.mark.parametrize(
    "words",
    [[], ["--help"], ["bundle"], ["bundle", "show", "--help"], ["search", "--help"], ["--version"]],
)
def test_help_makes_no_request(words: list[str], tmp_path: Path) -> None:
    with scripted() as server:
        done = program(tmp_path, *words, STORE_CLIENT_URL=server.url)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout
        assert server.came == []


@pytest.mark.parametrize("noun", registry.NOUNS)
def test_every_verb_has_help_and_the_noun_lists_it(offline: Typist, noun: str) -> None:
    listed = offline.types(noun)
    assert listed.exit_code == 0
    for entry in registry.list_verbs(noun):
        verb = entry.name.removeprefix(f"{noun} ")
        assert f"\n  {verb} " in listed.stdout
        done = offline.types(noun, verb, "--help")
        assert done.exit_code == 0
        assert done.stdout.startswith(f"Usage: store {noun} {verb} ")


@pytest.mark.parametrize("words", [[], *([noun] for noun in registry.NOUNS), ["search"], ["api"]])
def test_help_of_groups_has_an_example(offline: Typist, words: list[str]) -> None:
    done = offline.types(*words, "--help")
    assert done.exit_code == 0
    name = " ".join(["store", *words])
    assert any(
        line.startswith(f"    {name} ") for line in done.stdout.partition("Example")[2].splitlines()
    )


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["serch"], "search"),
        (["bundel"], "bundle"),
        (["bundle", "shwo"], "show"),
        (["bundle", "lst"], "list"),
        (["collection", "creat"], "create"),
        (["show"], "bundle show"),
        (["diff"], "bundle diff"),
        (["versions"], "bundle versions"),
        (["pause"], "subscription pause"),
        (["ls"], "bundle list"),
        (["put"], "upload"),
        (["get"], "download"),
        (["bundle", "rm"], "delete"),
        (["subscribe"], "subscription create"),
        (["help"], "--help"),
    ],
)
def test_near_misses_name_what_was_meant(offline: Typist, words: list[str], near: str) -> None:
    done = offline.types(*words)
    assert (done.exit_code, done.stdout) == (2, "")
    hint = done.stderr.splitlines()[1]
    assert near in hint.removeprefix("  did you mean: ").removesuffix("?").split(", ")


def test_unlike_names_point_to_help(offline: Typist) -> None:
    done = offline.types("bundle", "xyzzy")
    assert done.exit_code == 2
    assert done.stderr.splitlines()[1] == "  see: store bundle --help"


@pytest.mark.parametrize("place", ["before", "between", "after"])
def test_bare_hosts_get_a_scheme(shelf: Shelf, tmp_path: Path, place: str) -> None:
    host = ["--url", shelf.host]
    words = {
        "before": [*host, "bundle", "show", shelf.liver],
        "between": ["bundle", *host, "show", shelf.liver],
        "after": ["bundle", "show", shelf.liver, *host],
    }[place]
    done = program(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert rows(done.stdout)[0]["page"].startswith(f"http://{shelf.host}/bundles/")


AT_ONCE_S = 5.0
"""It takes half a second; a machine with many tests takes longer to start the program. One more
try would wait for a second and more, and say so."""


def free_port() -> int:
    """Where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize("words", [["bundle", "list"], ["search", "liver"], ["get-bundles-all"]])
def test_refused_connection_is_told_at_once_on_a_terminal(words: list[str], tmp_path: Path) -> None:
    host = f"127.0.0.1:{free_port()}"
    environ = {"STORE_CLIENT_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    began = time.monotonic()
    with Terminal([PROGRAM, "--url", host, *words], cwd=tmp_path, environ=environ) as terminal:
        assert terminal.end() == 7
        assert time.monotonic() - began < AT_ONCE_S
        assert f"no connection to {host}: nothing listens there" in terminal.text
        assert "again in" not in terminal.text
        assert "store doctor" in terminal.text


def test_refused_connection_is_tried_again_by_scripts(tmp_path: Path) -> None:
    with scripted() as server:
        port = int(server.url.rpartition(":")[2])
    with subprocess.Popen(
        [PROGRAM, "bundle", "list", "--url", f"127.0.0.1:{port}"],
        env={"STORE_CLIENT_HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as going:
        assert going.stderr is not None
        line = going.stderr.readline()
        assert "nothing listens there" in line
        assert "again in 1 s" in line
        going.kill()


class Recording(httpx.HTTPTransport):
    """Sends requests, and keeps the replicas that they name."""

    def __init__(self) -> None:
        super().__init__()
        self.replicas: set[str] = set()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if replica := request.url.params.get("replica"):
            self.replicas.add(replica)
        return super().handle_request(request)


@pytest.mark.parametrize(
    "words",
    [
        ["bundle", "list", "--limit", "1"],
        ["bundle", "show", "{liver}"],
        ["bundle", "files", "{liver}"],
        ["bundle", "versions", "{liver}"],
        ["bundle", "diff", "{liver}", "--patch"],
        ["bundle", "download", "{liver}", "--no-progress", "--dry-run"],
        ["bundle", "delete", "{none}", "--reason", "x", "--yes"],
        ["download", "{liver}", "--no-progress", "--dry-run"],
        ["file", "show", "{liver}/readme.txt"],
        ["file", "cat", "{liver}/readme.txt"],
        ["file", "cp", "{liver}/readme.txt"],
        ["search", "liver", "--facet", "organ", "--fields", "organ"],
        ["search", "liver", "--manifest", "m.tsv"],
        ["search", "fields"],
        ["collection", "show", "{none}"],
        ["collection", "create", "--name", "x"],
        ["collection", "delete", "{none}", "--yes"],
        ["collection", "download", "{none}", "--no-progress"],
        ["subscription", "list"],
        ["subscription", "show", "{none}"],
        ["subscription", "create", "https://receiver.example/x", "--match", "a"],
        ["subscription", "deliveries", "{none}"],
        ["subscription", "test", "{none}"],
        ["subscription", "pause", "{none}"],
        ["subscription", "resume", "{none}"],
        ["subscription", "delete", "{none}", "--yes"],
    ],
    ids=" ".join,
)
def test_commands_use_the_replica_of_the_profile(
    shelf: Shelf, tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = [word.format(liver=shelf.liver, none=uuid_of(0xFFFF)) for word in words]
    config = Configuration(tmp_path / "home", tmp_path / "home/cache", shelf.store.url)
    save_profile(config, "p", default=True, replica="gcp")
    seen = Recording()

    def make(config: Configuration) -> Client:
        tokens = StaticToken(ADMIN_TOKEN)
        session = HttpSession(config.url, transport=seen, tokens=tokens)
        return Client(config=config, session=session)

    admin = Typist(config.home, make)
    done = admin.types(*said)
    assert done.exit_code == (5 if "{none}" in words else 0), done.output
    assert seen.replicas == {"gcp"}
    seen.replicas.clear()
    if "fields" not in words:
        admin.types(*said, "--replica", "aws")
        assert seen.replicas == {"aws"}


def completed(offline: Typist, line: str, at: int) -> list[str]:
    asked = {"_STORE_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(at)}
    done = Typist(offline.home, offline.make, {**offline.environ, **asked}).types()
    assert done.stderr == ""
    return [row.partition(",")[2] for row in done.stdout.split()]


def test_completes_nouns_verbs_and_options(offline: Typist) -> None:
    assert completed(offline, "store bund", 1) == ["bundle"]
    verbs = completed(offline, "store bundle ", 2)
    assert verbs == [entry.name.removeprefix("bundle ") for entry in registry.list_verbs("bundle")]
    assert completed(offline, "store bundle d", 2) == ["diff", "download", "delete"]
    assert completed(offline, "store subscription pa", 2) == ["pause"]
    assert completed(offline, "store bundle show --rep", 3) == ["--replica"]
    assert completed(offline, "store bundle list --replica g", 4) == ["gcp"]
    assert completed(offline, "store search --fac", 2) == ["--facet"]
    assert completed(offline, "store bundle nothing --x", 3) == []
    assert completed(offline, "store bundle show nonsense --we", 4) == ["--web"]


@pytest.mark.parametrize(
    ("line", "at"),
    [("store bund", 1), ("store bundle d", 2), ("store search --fac", 2), ("store api get-", 2)],
)
def test_completion_imports_nothing_heavy(shelf: Shelf, tmp_path: Path, line: str, at: int) -> None:
    program(tmp_path, "get-echo", STORE_CLIENT_URL=shelf.store.url)
    done = subprocess.run(
        [sys.executable, "-X", "importtime", str(PROGRAM)],
        env={
            "STORE_CLIENT_HOME": str(tmp_path),
            URL: shelf.store.url,
            "_STORE_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(at),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout
    imported = {row.rpartition("|")[2].strip().partition(".")[0] for row in done.stderr.split("\n")}
    assert "click" in imported
    assert not {"httpx", "httpcore", "rich", "ssl", "joserfc", "boto3", "jmespath"} & imported
