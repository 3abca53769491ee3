"""Reading one clause's parameters out of JSON; every complaint names the clause and where it is."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from storage import pointers
from storage.errors import Invalid
from storage.query.clauses import Clause, Field, Fields, Fuzziness
from storage.query.minimum import normalized

COMMON = ("boost", "_name")
MAX_EDITS = 2
METADATA_FIELDS = frozenset(
    {"_id", "_index", "_type", "_source", "_routing", "_score", "_field_names", "_ignored"}
)

ParseChild = Callable[[Any, str], Clause]


def refuse(detail: str, pointer: str) -> Invalid:
    """The error of a query that is not of the grammar."""
    where = pointer or "/"
    return Invalid(
        f"{detail} (at {where})", code="elasticsearch_bad_request", errors={where: [detail]}
    )


def step(pointer: str, *names: str | int) -> str:
    """The JSON pointer of something further inside."""
    return pointer + "".join(pointers.step(name) for name in names)


def scalar_text(value: Any) -> str | None:
    """A JSON scalar as the text that fields read; None for null, lists and objects."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) else None


def encodable(text: str) -> bool:
    """Whether the text is proper Unicode: half a surrogate pair is not."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


@dataclass(frozen=True, slots=True)
class Node:
    """The object of parameters of the clause `name`, found at `pointer`."""

    name: str
    pointer: str
    body: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, pointer: str, body: Any) -> "Node":
        """The body must be an object."""
        if not isinstance(body, Mapping):
            raise refuse(f"'{name}' takes an object", pointer)
        return cls(name, pointer, body)

    def only(self, *allowed: str) -> None:
        """Refuse by name every parameter that is not among these; check the common ones."""
        for key in self.body:
            if key not in allowed and key not in COMMON:
                raise refuse(f"parameter '{key}' of '{self.name}' is not supported", self.at(key))
        self.number("boost", 1.0, least=0)
        self.text("_name", "")

    def at(self, *names: str | int) -> str:
        """The pointer of something inside this node."""
        return step(self.pointer, *names)

    def has(self, key: str) -> bool:
        """Given, and not null."""
        return self.body.get(key) is not None

    def error(self, key: str, problem: str) -> Invalid:
        """A complaint about one parameter."""
        return refuse(f"'{key}' of '{self.name}' {problem}", self.at(key))

    def required(self, key: str) -> Any:
        """The parameter, which must be there."""
        if not self.has(key):
            raise refuse(f"'{self.name}' needs '{key}'", self.pointer)
        return self.body[key]

    def scalar(self, key: str) -> str:
        """A required string, number or boolean, as text."""
        return self.as_text(self.required(key), key)

    def as_text(self, value: Any, *where: str | int) -> str:
        """A scalar found inside this node, as text."""
        text = scalar_text(value)
        if text is None or not encodable(text):
            raise refuse(f"'{self.name}' takes a string, number or boolean here", self.at(*where))
        return text

    def text(self, key: str, default: str) -> str:
        """An optional string."""
        if not self.has(key):
            return default
        value = self.body[key]
        if not isinstance(value, str) or not encodable(value):
            raise self.error(key, "must be a string")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """An optional boolean; the strings `true` and `false` count."""
        value = self.body.get(key)
        if value is None:
            return default
        if value in ("true", "false"):
            return bool(value == "true")
        if not isinstance(value, bool):
            raise self.error(key, "must be a boolean")
        return value

    def number(self, key: str, default: float, *, least: float | None = None) -> float:
        """An optional number, as such or as a string."""
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
        """An optional whole number from 0."""
        number = self.number(key, default, least=0)
        if number != int(number) or number > 2**31:
            raise self.error(key, "must be a whole number")
        return int(number)

    def choice(self, key: str, options: Iterable[str], default: str) -> str:
        """An optional word out of `options`, any case."""
        value = self.text(key, default).lower()
        if value not in options:
            raise self.error(key, f"must be one of {', '.join(options)}")
        return value

    def minimum(self) -> str | None:
        """`minimum_should_match`, tidied."""
        key = "minimum_should_match"
        if not self.has(key):
            return None
        spec = normalized(self.scalar(key))
        if spec is None:
            raise self.error(key, "is not of a known form")
        return spec

    def fuzziness(self, key: str = "fuzziness") -> Fuzziness | None:
        """`AUTO`, `AUTO:<low>,<high>` or a number of edits, of which 2 are the most."""
        if not self.has(key):
            return None
        fuzziness = fuzziness_of(self.scalar(key))
        if fuzziness is None:
            raise self.error(key, "must be AUTO, AUTO:<low>,<high>, 0, 1 or 2")
        return fuzziness

    def rewrite(self, key: str = "rewrite") -> None:
        """Accept the ways of rewriting that keep every match, refuse those that drop some."""
        if self.text(key, "constant_score").startswith("top_terms"):
            raise self.error(key, "must not limit the number of terms")


def fuzziness_of(text: str) -> Fuzziness | None:
    """Read a fuzziness; None if it is not one."""
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


def field_named(name: str, pointer: str, *, pattern: bool = False) -> Field:
    """A field of the documents; the engine's own fields are not for queries."""
    if name in METADATA_FIELDS:
        raise refuse(f"the field '{name}' cannot be queried", pointer)
    if not name or not encodable(name):
        raise refuse("a field needs a name", pointer)
    return Field(name, pattern and "*" in name)


def one_field(node: Node, shorthand: str = "") -> tuple[Fields, Node]:
    """`{field: {...}}`; `{field: value}` is read as `{field: {shorthand: value}}`, if given."""
    names = [name for name in node.body if name not in COMMON]
    if len(names) != 1:
        raise refuse(f"'{node.name}' takes exactly one field", node.pointer)
    name = names[0]
    pointer = node.at(name)
    body = node.body[name]
    inner = {shorthand: body} if shorthand and not isinstance(body, Mapping) else body
    return (field_named(name, pointer),), Node.of(node.name, pointer, inner)
