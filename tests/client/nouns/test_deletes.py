"""Deletes: what is asked, and what is deleted."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from store_client.configuration import URL
from tests.client.cli.people import Typist
from tests.client.conftest import ADMIN_TOKEN
from tests.client.download.deposits import VERSION
from tests.client.nouns.conftest import Shelf
from tests.client.terminal.recorder import Terminal

pytestmark = pytest.mark.spec("CLI-153")

Make = Callable[[Shelf], str]


def make_bundle(shelf: Shelf) -> str:
    file = shelf.file_of(shelf.liver, "readme.txt")
    uuid = str(uuid4())
    named = {name: file[name] for name in ("uuid", "version", "name", "indexed")}
    shelf.client.call(
        "put_bundle", uuid=uuid, version=VERSION, replica="aws", creator_uid=7, files=[named]
    )
    return uuid


def make_collection(shelf: Shelf) -> str:
    made = shelf.client.call(
        "put_collection",
        uuid=str(uuid4()),
        version=VERSION,
        replica="aws",
        name="to go",
        description="",
        details={},
        contents=[],
    )
    return str(made["uuid"])


def make_subscription(shelf: Shelf) -> str:
    made = shelf.client.call(
        "put_subscription",
        replica="aws",
        callback_url="https://receiver.example/notify",
        jmespath_query="event_type == 'CREATE'",
    )
    return str(made["uuid"])


NOUNS: dict[str, tuple[Make, list[str]]] = {
    "bundle": (make_bundle, ["--reason", "a test"]),
    "collection": (make_collection, []),
    "subscription": (make_subscription, []),
}
nouns = pytest.mark.parametrize("noun", NOUNS)


def exists(shelf: Shelf, admin: Typist, noun: str, uuid: str) -> bool:
    done = admin.types(noun, "show", uuid)
    assert done.exit_code in (0, 5), done.output
    return done.exit_code == 0


@nouns
def test_refuses_without_terminal_or_yes(shelf: Shelf, admin: Typist, noun: str) -> None:
    make, more = NOUNS[noun]
    uuid = make(shelf)
    done = admin.types(noun, "delete", uuid, *more, given="y\n")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Give --yes" in done.stderr
    assert "cannot be undone" in done.stderr
    assert exists(shelf, admin, noun, uuid)


@nouns
def test_yes_deletes_several_from_standard_input(shelf: Shelf, admin: Typist, noun: str) -> None:
    make, more = NOUNS[noun]
    gone, left = [make(shelf), make(shelf)], make(shelf)
    done = admin.types(noun, "delete", "-", "--yes", *more, given="\n".join(gone))
    assert done.exit_code == 0, done.stderr
    assert done.stderr == "".join(f"Deleted {uuid}.\n" for uuid in gone)
    assert [exists(shelf, admin, noun, uuid) for uuid in (*gone, left)] == [False, False, True]
    unknown = admin.types(noun, "delete", str(uuid4()), "--yes", *more)
    assert unknown.exit_code == 5


@pytest.mark.parametrize("form", ["tsv", "csv", "lines"])
def test_listed_versions_are_deleted_and_no_others(shelf: Shelf, admin: Typist, form: str) -> None:
    uuid = make_bundle(shelf)
    file = shelf.file_of(uuid, "readme.txt")
    named = {name: file[name] for name in ("uuid", "version", "name", "indexed")}
    later = VERSION.replace("2026-01", "2026-03")
    shelf.client.call(
        "put_bundle", uuid=uuid, version=later, replica="aws", creator_uid=7, files=[named]
    )
    listed = admin.types("bundle", "versions", uuid, "--format", form).stdout
    given = "\n".join(line for line in listed.splitlines() if later not in line)
    done = admin.types("bundle", "delete", "-", "--yes", "--reason", "x", given=given)
    assert done.exit_code == 0, done.stderr
    assert admin.types("bundle", "show", f"{uuid}.{VERSION}").exit_code == 5
    assert admin.types("bundle", "show", f"{uuid}.{later}").exit_code == 0


def test_bundle_delete_needs_a_reason(shelf: Shelf, admin: Typist) -> None:
    done = admin.types("bundle", "delete", shelf.liver, "--yes")
    assert done.exit_code == 2
    assert "--reason" in done.stderr


def test_version_of_a_collection_is_not_deleted_alone(shelf: Shelf, admin: Typist) -> None:
    uuid = make_collection(shelf)
    done = admin.types("collection", "delete", f"{uuid}.{VERSION}", "--yes")
    assert (done.exit_code, done.stdout) == (2, "")
    assert exists(shelf, admin, "collection", uuid)


AS_ADMIN = f"""
import shlex
import sys
from store_client import Client
from store_client.cli.context import ProgramRun
from store_client.cli.main import cli
cli.main(obj=ProgramRun(make=lambda config: Client(config=config, token={ADMIN_TOKEN!r})))
"""
"""The program, whose clients show a token that no login could have."""
DELETE_OPERATION = f"delete-bundle --uuid {{}} --version {VERSION} --replica aws --reason x"


@pytest.mark.parametrize("command", ["bundle delete {} --reason x", DELETE_OPERATION])
def test_refuses_on_a_terminal_that_does_not_show_the_question(
    shelf: Shelf, admin: Typist, tmp_path: Path, command: str
) -> None:
    uuid = make_bundle(shelf)
    environ = {"STORE_CLIENT_HOME": str(admin.home), URL: shelf.store.url, "PATH": "/usr/bin:/bin"}
    program = shlex.join([sys.executable, "-c", AS_ADMIN])
    words = ["/bin/sh", "-c", f"{program} {command.format(uuid)} 2> said"]
    with Terminal(words, cwd=tmp_path, environ=environ) as terminal:
        assert terminal.end() == 2
    assert "Give --yes" in (tmp_path / "said").read_text()
    assert exists(shelf, admin, "bundle", uuid)


@nouns
def test_asks_on_a_terminal(shelf: Shelf, admin: Typist, tmp_path: Path, noun: str) -> None:
    make, more = NOUNS[noun]
    uuid = make(shelf)
    environ = {"STORE_CLIENT_HOME": str(admin.home), URL: shelf.store.url, "PATH": "/usr/bin:/bin"}
    words = [sys.executable, "-c", AS_ADMIN, noun, "delete", uuid, *more]
    for answer, code in (("\n", 130), ("n\n", 130), ("\x03", 130), ("y\n", 0)):
        with Terminal(words, cwd=tmp_path, environ=environ) as terminal:
            terminal.wait(lambda text: "[y/N]" in text)
            said = " ".join(terminal.text.split())
            assert uuid in said.replace(" ", "")
            assert "cannot be undone" in said
            assert exists(shelf, admin, noun, uuid)
            terminal.wait_until_it_sleeps()
            terminal.send(answer)
            assert terminal.end() == code, terminal.text
            assert ("Nothing was changed." in terminal.text) is (answer in {"\n", "n\n"})
        assert exists(shelf, admin, noun, uuid) is (code != 0)
