"""Reads the conformance table, the names of tests, and the words of the definition.

Nothing is imported of what is named: tests are found in the syntax tree.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "conformance.md"

_ROW = re.compile(r"^\| ([A-Z]{2,4}-[0-9]{2,3}) \| (.+) \| (.+) \|$")
_INTERNAL = re.compile(r"^- internal: `(tests/[\w/]+\.py)`: (.+)$")
_SPAN = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Row:
    """One thing that the contract asks for, where it stands, and what proves it."""

    id: str
    heading: str
    statement: str
    proofs: tuple[str, ...]

    @property
    def spans(self) -> set[str]:
        """What the heading and the statement set as code, braces spelled out."""
        found = _SPAN.findall(f"{self.heading} {self.statement}")
        return set(chain.from_iterable(expanded(span) for span in found))


@dataclass(frozen=True)
class Page:
    """The rows, and the modules that guard what stands behind them."""

    rows: tuple[Row, ...]
    internal: Mapping[str, str]
    malformed: tuple[str, ...]


def read(text: str) -> Page:
    """The page's tables and lists."""
    rows, internal, malformed = [], {}, []
    heading = ""
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif found := _ROW.match(line):
            ident, statement, proofs = found.groups()
            rows.append(Row(ident, heading, statement, tuple(_references(proofs))))
        elif found := _INTERNAL.match(line):
            internal[found[1]] = found[2]
        elif line.startswith(("| ", "- internal")) and not line.startswith("| id |"):
            malformed.append(line)
    return Page(tuple(rows), internal, tuple(malformed))


def _references(cell: str) -> Iterator[str]:
    """Tests and modules of a cell; `::name` is of the module that was named before it."""
    module = ""
    for span in _SPAN.findall(cell):
        if span.startswith("::"):
            yield module + span
        else:
            module = span.partition("::")[0]
            yield span


def expanded(span: str) -> Iterator[str]:
    """`a.{b, c}` is `a.b` and `a.c`."""
    before, brace, rest = span.partition("{")
    inside, closing, after = rest.partition("}")
    if not brace or not closing or "," not in inside:
        yield span
        return
    for part in inside.split(","):
        yield from expanded(before + part.strip() + after)


# Tests


def tests_of(path: Path) -> Iterator[str]:
    """Every test of a module as `tests/x.py::name`, those of classes as `…::Class::name`."""
    module = path.relative_to(ROOT).as_posix()
    body = ast.parse(path.read_bytes()).body
    yield from (f"{module}::{name}" for name in _tests(body))
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from (f"{module}::{node.name}::{name}" for name in _tests(node.body))


def _tests(body: Iterable[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.name


def all_tests() -> set[str]:
    """Every test there is, those of the contracts' classes too."""
    return set(chain.from_iterable(map(tests_of, (ROOT / "tests").rglob("*.py"))))


def modules() -> set[str]:
    """Every module with tests of its own, or with those of a contract that it enrols in."""
    found = (ROOT / "tests").rglob("test_*.py")
    own = {test.partition("::")[0] for test in all_tests()}
    return own | {path.relative_to(ROOT).as_posix() for path in found}


# Error codes


def codes() -> set[str]:
    """Every `code` that errors are raised with, and those of the framework's own refusals."""
    from_rooms = (
        path
        for room in ("api", "auth", "pipelines", "storage")
        for path in (ROOT / room).rglob("*.py")
    )
    return set(chain.from_iterable(map(_codes_in, from_rooms)))


def _codes_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.keyword) and node.arg == "code":
            yield from _texts(node.value)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            yield from _assigned(node)


def _assigned(node: ast.Assign | ast.AnnAssign) -> Iterator[str]:
    """`code = "…"` of a class, and the values of `HTTP_CODES`."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    if names & {"code", "HTTP_CODES"} and node.value is not None:
        values = node.value.values if isinstance(node.value, ast.Dict) else [node.value]
        for value in values:
            yield from _texts(value)


def _texts(node: ast.expr) -> Iterator[str]:
    """Literal texts of an expression that is one, or chooses between some."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body)
        yield from _texts(node.orelse)


# The definition


def words(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(operation, word) for each parameter, body member, answer member, header and status."""
    schemas = document["components"]["schemas"]
    for verbs in document["paths"].values():
        for one in verbs.values():
            for word in _of(one, schemas):
                yield one["operationId"], word


def _of(one: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    for parameter in one["parameters"]:
        yield f"{parameter['in']}.{parameter['name']}"
    for content in one.get("requestBody", {}).get("content", {}).values():
        yield from _members("body", content["schema"], schemas)
    for status, answer in one["responses"].items():
        if status.isdigit() and int(status) < 400:
            yield status
            yield from (f"header.{name}" for name in answer.get("headers", {}))
            for content in answer.get("content", {}).values():
                yield from _members("answer", content["schema"], schemas)


def _members(at: str, schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    """The members below a schema that have none below themselves: `answer.bundles[].uuid`; `.*`
    is a name of anybody's choice."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    below = {f".{name}": member for name, member in schema.get("properties", {}).items()}
    if schema.get("type") == "array":
        below["[]"] = schema["items"]
    if schema.get("additionalProperties") not in (None, True, False, {}):
        below[".*"] = schema["additionalProperties"]
    for name, member in below.items():
        found = list(_members(f"{at}{name}", member, schemas))
        yield from found or [f"{at}{name}".removesuffix("[]")]
