"""The structure of the client: no import cycles, modules of a fair size, class names once."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import store_client

PACKAGE = Path(store_client.__file__).parent
MOST_LINES = 500
FEW_LINES = 80


@cache
def modules() -> dict[str, ast.Module]:
    """The syntax trees of all modules by name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


@cache
def imported(name: str, *, lazily: bool = True) -> frozenset[str]:
    """The client's modules that a module imports; `lazily` adds those it names as text."""
    found = set()
    for node in ast.walk(modules()[name]):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in modules() else str(node.module))
        elif lazily and isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return frozenset(found & modules().keys() - {name, "store_client"})


def cycle() -> list[str]:
    """Modules that import one another, whatever is loaded late or for type checkers only."""
    left = {name: set(imported(name)) for name in modules()}
    while free := {name for name, wanted in left.items() if not wanted & left.keys()}:
        left = {name: wanted for name, wanted in left.items() if name not in free}
    return sorted(left)


def lengths() -> Iterator[tuple[str, int]]:
    for name, tree in modules().items():
        yield name, max((node.end_lineno or 0 for node in tree.body), default=0)


def test_modules_form_no_cycle() -> None:
    assert cycle() == []


def test_no_module_is_too_long() -> None:
    assert [name for name, lines in lengths() if lines > MOST_LINES] == []


def test_no_small_module_has_a_single_importer() -> None:
    users = Counter(user for name in modules() for user in imported(name, lazily=False))
    packages = {name.rpartition(".")[0] for name in modules()}
    small = {name for name, lines in lengths() if lines < FEW_LINES} - packages
    assert [name for name in small if users[name] == 1] == []


def test_class_names_occur_once() -> None:
    names = Counter(
        node.name
        for tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(
    "name", ["Session", "GivenToken", "Policy", "Tell", "Uploaded", "Operation"]
)
def test_former_names_warn_and_work(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=name):
        assert isinstance(getattr(store_client, name), type)
