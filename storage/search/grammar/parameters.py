"""Read and validate the parameters of one clause."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from storage import json_codec
from storage.errors import Invalid
from storage.search.documents import format_leaf
from storage.search.grammar.clauses import (
    Clause,
    Fuzziness,
    QueryField,
    QueryFields,
    normalize_minimum,
)

COMMON_PARAMETERS = ("boost", "_name")
MAX_EDITS = 2
METADATA_FIELDS = frozenset(
    {"_id", "_index", "_type", "_source", "_routing", "_score", "_field_names", "_ignored"}
)

ParseChild = Callable[[Any, str], Clause]


def make_query_error(detail: str, pointer: str) -> Invalid:
    """Return the error of a query that violates the grammar."""
    where = pointer or "/"
    return Invalid(
        f"{detail} (at {where})", code="elasticsearch_bad_request", errors={where: [detail]}
    )


def extend_pointer(pointer: str, *names: str | int) -> str:
    """Return the JSON pointer of a member or item."""
    return pointer + "".join(json_codec.pointer_step(name) for name in names)


def is_encodable(text: str) -> bool:
    """Return whether a text is valid Unicode, without half surrogate pairs."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


@dataclass(frozen=True, slots=True)
class ClauseNode:
    """The parameters of the clause `name`, at the JSON pointer `pointer`."""

    name: str
    pointer: str
    body: Mapping[str, Any]

    @classmethod
    def parse(cls, name: str, pointer: str, body: Any) -> "ClauseNode":
        """Wrap the body of a clause; Invalid unless it is an object."""
        if not isinstance(body, Mapping):
            raise make_query_error(f"'{name}' takes an object", pointer)
        return cls(name, pointer, body)

    def check_parameters(self, allowed: str = "") -> None:
        """Reject parameters not among these (separated by blanks); check the common ones."""
        unknown = [key for key in self.body if key not in (*allowed.split(), *COMMON_PARAMETERS)]
        if unknown:
            problem = f"parameter '{unknown[0]}' of '{self.name}' is not supported"
            raise make_query_error(problem, self.pointer_to(unknown[0]))
        self.check_common_parameters()

    def check_common_parameters(self) -> None:
        """Check the parameters that every clause has."""
        self.number("boost", 1.0, least=0)
        self.text("_name", "")

    def pointer_to(self, *names: str | int) -> str:
        """Return the pointer of something inside this node."""
        return extend_pointer(self.pointer, *names)

    def has(self, key: str) -> bool:
        """Return whether a parameter is present and not null."""
        return self.body.get(key) is not None

    def error(self, key: str, problem: str) -> Invalid:
        """Return an error about one parameter."""
        return make_query_error(f"'{key}' of '{self.name}' {problem}", self.pointer_to(key))

    def require(self, key: str) -> Any:
        """Return a parameter; Invalid if it is missing."""
        if not self.has(key):
            raise make_query_error(f"'{self.name}' needs '{key}'", self.pointer)
        return self.body[key]

    def scalar(self, key: str) -> str:
        """Return a required string, number or boolean as text."""
        return self.as_text(self.require(key), key)

    def as_text(self, value: Any, *where: str | int) -> str:
        """Return a scalar inside this node as text."""
        text = format_leaf(value) if isinstance(value, str | int | float) else None
        if text is None or not is_encodable(text):
            raise make_query_error(
                f"'{self.name}' takes a string, number or boolean here", self.pointer_to(*where)
            )
        return text

    def text(self, key: str, default: str) -> str:
        """Return an optional string."""
        if not self.has(key):
            return default
        value = self.body[key]
        if not isinstance(value, str) or not is_encodable(value):
            raise self.error(key, "must be a string")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return an optional boolean; the strings `true` and `false` count."""
        value = self.body.get(key)
        if value is None:
            return default
        if value in ("true", "false"):
            return bool(value == "true")
        if not isinstance(value, bool):
            raise self.error(key, "must be a boolean")
        return value

    def number(self, key: str, default: float, *, least: float | None = None) -> float:
        """Return an optional number; a numeric string counts."""
        value = self.body.get(key)
        if value is None:
            return default
        try:
            number = float("nan" if isinstance(value, bool) else value)
        except (TypeError, ValueError, OverflowError):
            number = float("nan")
        if number - number != 0 or (least is not None and number < least):
            raise self.error(key, "must be a number" + ("" if least is None else f" from {least}"))
        return number

    def count(self, key: str, default: int) -> int:
        """Return an optional whole number from 0."""
        number = self.number(key, default, least=0)
        if number != int(number) or number > 2**31:
            raise self.error(key, "must be a whole number")
        return int(number)

    def choice(self, key: str, options: Iterable[str], default: str) -> str:
        """Return an optional word out of `options`, in any case."""
        value = self.text(key, default).lower()
        if value not in options:
            raise self.error(key, f"must be one of {', '.join(options)}")
        return value

    def minimum(self) -> str | None:
        """Return `minimum_should_match`, normalized."""
        key = "minimum_should_match"
        if not self.has(key):
            return None
        spec = normalize_minimum(self.scalar(key))
        if spec is None:
            raise self.error(key, "is not of a known form")
        return spec

    def fuzziness(self, key: str = "fuzziness") -> Fuzziness | None:
        """Return `AUTO`, `AUTO:<low>,<high>` or a number of edits up to 2."""
        if not self.has(key):
            return None
        fuzziness = parse_fuzziness(self.scalar(key))
        if fuzziness is None:
            raise self.error(key, "must be AUTO, AUTO:<low>,<high>, 0, 1 or 2")
        return fuzziness

    def check_rewrite(self, key: str = "rewrite") -> None:
        """Accept rewrite methods that keep every match; reject those that drop some."""
        if self.text(key, "constant_score").startswith("top_terms"):
            raise self.error(key, "must not limit the number of terms")


def parse_fuzziness(text: str) -> Fuzziness | None:
    """Parse a fuzziness; None if it is malformed."""
    head, _, limits = text.strip().upper().partition(":")
    if head == "AUTO":
        low, comma, high = (limits or "3,6").partition(",")
        known = comma and low.isdecimal() and high.isdecimal() and int(low) <= int(high)
        return Fuzziness(None, int(low), int(high)) if known else None
    try:
        edits = float(text)
    except ValueError:
        return None
    return Fuzziness(min(int(edits), MAX_EDITS)) if 0 <= edits <= 2**31 else None


def parse_field(name: str, pointer: str, *, pattern: bool = False) -> QueryField:
    """Parse a field of the documents; the engine's own fields cannot be queried."""
    if name in METADATA_FIELDS:
        raise make_query_error(f"the field '{name}' cannot be queried", pointer)
    if not name or not is_encodable(name):
        raise make_query_error("a field needs a name", pointer)
    return QueryField(name, pattern and "*" in name)


def find_single_field(node: ClauseNode) -> str:
    """Return the name of the only field of a clause."""
    names = [name for name in node.body if name not in COMMON_PARAMETERS]
    if len(names) != 1:
        raise make_query_error(f"'{node.name}' takes exactly one field", node.pointer)
    return names[0]


def parse_single_field(
    node: ClauseNode, allowed: str, shorthand: str = ""
) -> tuple[QueryFields, ClauseNode]:
    """Parse `{field: {...}}` with the allowed parameters.

    `{field: value}` means `{field: {shorthand: value}}`, if set.
    """
    name = find_single_field(node)
    pointer = node.pointer_to(name)
    fields, body = (parse_field(name, pointer),), node.body[name]
    if shorthand and not isinstance(body, Mapping):
        body = {shorthand: body}
    inner = ClauseNode.parse(node.name, pointer, body)
    inner.check_parameters(allowed)
    return fields, inner
