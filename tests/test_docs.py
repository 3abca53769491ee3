"""The documentation agrees with commands, settings, queues, processes and links."""

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import pytest

from api.app import OPERATIONS as STORE_OPERATIONS
from api.authz.app import OPERATIONS as AUTH_OPERATIONS
from config import Settings
from config.settings import IGNORED_PREFIXES, IGNORED_VARIABLES, PREFIX
from ops import procfile
from ops.__main__ import cli
from pipelines.flow import DELIVER
from store_client.cli.registry import API, COMMANDS, NOUNS
from tests import reference
from tests.test_architecture import MAY_IMPORT, place_of
from workers.actors import QUEUES

pytestmark = pytest.mark.spec("OPS-20")

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    *(
        ROOT / name
        for name in (
            "README.md",
            "CHANGELOG.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
            "client/README.md",
        )
    ),
    *sorted((ROOT / "docs").rglob("*.md")),
]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@pytest.mark.parametrize("page", reference.PAGES, ids=lambda page: page.name)
def test_generated_tables_are_up_to_date(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == reference.written(text), "run `make docs`"


@pytest.mark.parametrize("table", reference.tables())
def test_every_table_is_in_a_page(table: str) -> None:
    texts = [page.read_text(encoding="utf-8") for page in reference.PAGES]
    assert any(reference.tables()[table] in text for text in texts)


def original_commands() -> list[str]:
    """The commands of the client `hca` 7.0.1 at the services it was made for."""
    return (ROOT / "tests" / "original_commands.txt").read_text(encoding="utf-8").splitlines()


def original_table() -> dict[str, str]:
    """The commands of `hca` in the tables of their page, with those of `store` beside each."""
    text = (ROOT / "docs" / "hca-scripts.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `hca ([^`]+)` \| (.*?) \| \S.* \|$", text, re.MULTILINE)
    found = dict(rows)
    assert len(found) == len(rows), "a command stands twice"
    return found


def test_table_of_the_original_client_is_complete() -> None:
    assert sorted(original_table()) == sorted(original_commands())


def test_table_of_the_original_client_names_commands_that_exist() -> None:
    groups = {name for command in COMMANDS for name in (command, command.partition(" ")[0])}
    operations = {one.name.replace("_", "-") for one in (*STORE_OPERATIONS, *AUTH_OPERATIONS)}
    for original, ours in original_table().items():
        named = re.findall(
            r"`store ([a-z0-9. -]+?)(?: --help)?`", ours.replace("`store --help`", "")
        )
        assert named or ours in ("none", "`store --help`"), original
        assert {*named} <= groups | operations, original


@pages
def test_named_make_targets_exist(page: Path) -> None:
    named = set(re.findall(r"\bmake ([a-z][a-z-]+)\b(?=[`\s])", code(page)))
    assert named <= TARGETS


@pages
def test_every_command_that_is_named_exists(page: Path) -> None:
    for words in re.findall(r"python -m ops((?: [a-z][a-z-]*(?![\w@./]))*)", code(page)):
        assert resolved(words.split()), f"python -m ops{words}"


@pages
def test_every_option_of_a_command_exists(page: Path) -> None:
    for text in re.findall(r"python -m ops ([^\n;|&]*)", code(page)):
        command: click.Command = cli
        for word in text.split():
            if isinstance(command, click.Group):
                command = command.get_command(click.Context(command), word) or command
        known = {name for one in command.params for name in one.opts} | {"--help"}
        assert set(re.findall(r"(?<!\S)--[a-z-]+", text)) <= known, text


@pages
def test_every_client_command_that_is_named_exists(page: Path) -> None:
    operations = (*STORE_OPERATIONS, *AUTH_OPERATIONS)
    known = {one.name.replace("_", "-") for one in operations} | {*COMMANDS}
    known |= {API, *NOUNS}
    named = set(
        re.findall(
            r"(?:^|`|\$\(|[|;&] )store (?:--\S+ )?([a-z][a-z0-9-]+(?:\.json)?)", code(page), re.M
        )
    )
    assert named <= known


@pages
def test_every_setting_that_is_named_exists(page: Path) -> None:
    known = {PREFIX + item.name.upper() for item in fields(Settings)} | IGNORED_VARIABLES
    named = set(re.findall(rf"\b{PREFIX}[A-Z0-9_]*[A-Z0-9]\b", page.read_text(encoding="utf-8")))
    ours = {name for name in named if not f"{name}_".startswith(IGNORED_PREFIXES)}
    assert ours <= known


def resolved(words: list[str]) -> bool:
    command: click.Command = cli
    for word in words:
        if not isinstance(command, click.Group):
            return any(isinstance(one, click.Argument) for one in command.params)
        found = command.get_command(click.Context(command), word)
        if found is None:
            return False
        command = found
    return True


def code(page: Path) -> str:
    """Everything in a page that is set as code."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return "\n".join(f"{piece} " for piece in (*blocks, *spans))


@pages
def test_links_to_files_exist(page: Path) -> None:
    assert [target for target in links(page) if not (page.parent / target).exists()] == []


@pages
def test_every_module_that_is_named_exists(page: Path) -> None:
    # A page may name a module from the checkout, from its layer, or from the catalog.
    places = (ROOT, *map(place_of, MAY_IMPORT), ROOT / "storage" / "catalog")
    named = set(re.findall(r"`([\w/]+\.py)\b", page.read_text(encoding="utf-8")))
    assert [name for name in sorted(named) if not any((at / name).exists() for at in places)] == []


def links(page: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            yield target


def test_every_queue_is_worked_on_by_one_process_at_least() -> None:
    workers = [
        line for line in procfile.read_procfile() if line.command[:3] == ("python", "-m", "workers")
    ]
    assert {queue for line in workers for queue in line.command[3:]} == {*QUEUES, DELIVER, "clock"}


def test_every_process_of_ours_can_be_found() -> None:
    for line in procfile.read_procfile():
        if line.command[:2] == ("python", "-m"):
            path = ROOT / line.command[2].replace(".", "/")
            assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), line.name


def test_make_targets_have_descriptions() -> None:
    text = (ROOT / "Makefile").read_text()
    phony = set(re.findall(r"^\.PHONY: ([a-z-]+)$", text, re.MULTILINE))
    assert phony == set(re.findall(r"^([a-z-]+):.*## \S", text, re.MULTILINE))
