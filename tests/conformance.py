"""Read the contract's sentences and the tests that are marked with them.

`python -m tests.conformance` writes `build/conformance.md`. Tests are found in the syntax tree, so
nothing is imported.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CONTRACT = ROOT / "tests" / "contract.md"
PAGE = ROOT / "build" / "conformance.md"

_ROW = re.compile(r"^\| ([A-Z]{2,4}-[0-9]{2,3}) \| (.+) \|$")
_SPAN = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class ContractRow:
    """One sentence of the contract and the heading it stands under."""

    id: str
    heading: str
    sentence: str

    @property
    def spans(self) -> set[str]:
        """The code spans of the heading and the sentence, with braces expanded."""
        found = _SPAN.findall(f"{self.heading} {self.sentence}")
        return set(chain.from_iterable(expand_braces(span) for span in found))


@dataclass(frozen=True)
class Contract:
    """All rows, and the table lines that are not rows."""

    rows: tuple[ContractRow, ...]
    malformed: tuple[str, ...]


def read_contract(text: str) -> Contract:
    """Parse the tables of `tests/contract.md`."""
    rows, malformed = [], []
    heading = ""
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif found := _ROW.match(line):
            rows.append(ContractRow(found[1], heading, found[2]))
        elif line.startswith("| ") and not line.startswith("| id |"):
            malformed.append(line)
    return Contract(tuple(rows), tuple(malformed))


def expand_braces(span: str) -> Iterator[str]:
    """Expand `a.{b, c}` to `a.b` and `a.c`."""
    before, brace, rest = span.partition("{")
    inside, closing, after = rest.partition("}")
    if not brace or not closing or "," not in inside:
        yield span
        return
    for part in inside.split(","):
        yield from expand_braces(before + part.strip() + after)


# Tests and their markers


def find_tests(path: Path) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each test of a module as `tests/x.py::name` with the ids of its markers."""
    module = path.relative_to(ROOT).as_posix()
    yield from _find_tests(ast.parse(path.read_bytes()).body, module, frozenset())


def _find_tests(
    body: Iterable[ast.stmt], prefix: str, inherited: frozenset[str]
) -> Iterator[tuple[str, frozenset[str]]]:
    body = list(body)
    for node in body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
        ):
            inherited |= _marker_ids([node.value])
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield f"{prefix}::{node.name}", inherited | _marker_ids(node.decorator_list)
        elif isinstance(node, ast.ClassDef):
            ids = inherited | _marker_ids(node.decorator_list)
            yield from _find_tests(node.body, f"{prefix}::{node.name}", ids)


def _marker_ids(expressions: Iterable[ast.expr]) -> frozenset[str]:
    """Ids in calls of `pytest.mark.spec(...)` anywhere in these expressions."""
    return frozenset(
        text
        for expression in expressions
        for node in ast.walk(expression)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "spec"
        for argument in node.args
        for text in _texts(argument)
    )


def all_tests() -> dict[str, frozenset[str]]:
    """Every test with its ids, including the tests of contract classes."""
    return dict(chain.from_iterable(map(find_tests, sorted((ROOT / "tests").rglob("*.py")))))


def render_page() -> str:
    """The contract's tables with the tests of each row."""
    tests = defaultdict(list)
    for test, ids in all_tests().items():
        for ident in ids:
            tests[ident].append(test)
    lines = []
    for line in CONTRACT.read_text(encoding="utf-8").splitlines():
        if found := _ROW.match(line):
            proofs = " ".join(f"`{test}`" for test in sorted(tests[found[1]]))
            line = f"| {found[1]} | {found[2]} | {proofs} |"
        elif line.startswith("| id |"):
            line += " tests |"
        elif line.startswith("|---"):
            line += "---|"
        lines.append(line)
    return "\n".join(lines) + "\n"


# Error codes


def error_codes() -> set[str]:
    """Every `code` of an error, including those of Flask's own errors."""
    sources = (
        path
        for layer in ("api", "auth", "pipelines", "storage")
        for path in (ROOT / layer).rglob("*.py")
    )
    return set(chain.from_iterable(map(_codes_in, sources)))


def _codes_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.keyword) and node.arg == "code":
            yield from _texts(node.value)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            yield from _assigned_codes(node)


def _assigned_codes(node: ast.Assign | ast.AnnAssign) -> Iterator[str]:
    """`code = "…"` of a class, and the values of `HTTP_CODES`."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    if names & {"code", "HTTP_CODES"} and node.value is not None:
        values = node.value.values if isinstance(node.value, ast.Dict) else [node.value]
        for value in values:
            yield from _texts(value)


def _texts(node: ast.expr) -> Iterator[str]:
    """String literals of an expression, including both branches of a conditional."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body)
        yield from _texts(node.orelse)


# The definition


def definition_words(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(operation, word) for each parameter, body member, answer member, header and status."""
    schemas = document["components"]["schemas"]
    for verbs in document["paths"].values():
        for one in verbs.values():
            for word in _operation_words(one, schemas):
                yield one["operationId"], word


def _operation_words(one: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
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
    """Yield the leaf members of a schema, e.g. `answer.bundles[].uuid`; `.*` is any name."""
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


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(render_page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.relative_to(ROOT)}\n")
