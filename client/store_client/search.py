"""A search in words and fields, as an `es_query`.

    zebrafish liver              all words, anywhere in the metadata
    organism:danio liver         a word in a field
    "adult heart" -mouse         a phrase, and a word that may not occur

Fields may be named by their last parts: `organism` stands for `files.sample_json.organism`, and for
all others that end so.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from store_client.errors import Misused

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)
_FIELD = re.compile(r"(?<![\w.])([A-Za-z_]\w*(?:\.\w+)*):(?=\S)")


DEPOSITED = "files."
"""Where the metadata of depositors is in a document."""
MOST_FIELDS = 20
"""Fields that one short name may stand for."""
NEAREST = 3
"""Fields that an error for a wrong one names."""


@dataclass(frozen=True, slots=True)
class FieldNames:
    """The fields that bundles have; they are found by their last parts."""

    known: tuple[str, ...]

    def resolve(self, name: str) -> tuple[str, ...]:
        """The fields of that name, or of names that end so; Misused if none, or too many, are."""
        if name in self.known:
            return (name,)
        ending = tuple(one for one in self.known if one.endswith(f".{name}"))
        # What depositors wrote comes before what the store adds.
        found = tuple(one for one in ending if one.startswith(DEPOSITED)) or ending
        if len(found) > MOST_FIELDS:
            shown = ", ".join(found[:5])
            raise Misused(f"{len(found)} fields end with {name!r}", hint=f"name more: {shown} …")
        if not found:
            raise Misused(f"there is no field {name!r}", hint=self._advice(name))
        return found

    def _advice(self, name: str) -> str:
        near = self._find_near(name) or self._find_near(name.rpartition(".")[2])
        if near:
            return f"did you mean: {', '.join(near[:NEAREST])}?"
        return "store search fields lists them"

    def _find_near(self, name: str) -> list[str]:
        """Fields of which as many successive parts as the name has are spelled alike."""
        count = name.count(".") + 1
        by_parts: dict[str, list[str]] = {}
        for field in self.known:
            parts = field.lower().split(".")
            for end in range(count, len(parts) + 1):
                by_parts.setdefault(".".join(parts[end - count : end]), []).append(field)
        # The parts that two fields share make long names alike.
        cutoff = 0.6 if count == 1 else 0.75
        found: dict[str, None] = {}
        for near in get_close_matches(name.lower(), by_parts, n=NEAREST, cutoff=cutoff):
            # A field that ends so comes before those within it.
            found |= dict.fromkeys(sorted(by_parts[near], key=lambda one: _end_rank(one, near)))
        return list(found)


def _end_rank(field: str, parts: str) -> tuple[bool, bool]:
    return not field.lower().endswith(parts), not field.startswith(DEPOSITED)


def build_query(
    words: str, filters: Iterable[tuple[str, str]], names: FieldNames | None
) -> Mapping[str, Any]:
    """Build the `es_query`; without `names` fields must be named wholly.

    Filters of one field are alternatives; all else must hold together. A short name stands for all
    fields that end with it.
    """
    parts = [_parse_words(words.strip(), names)] if words.strip() else []
    values: dict[tuple[str, ...], list[str]] = {}
    for field, value in filters:
        values.setdefault(names.resolve(field) if names else (field,), []).append(value)
    for fields, said in values.items():
        any_of = [_build_filter(field, said) for field in fields]
        parts.append(any_of[0] if len(any_of) == 1 else {"bool": {"should": any_of}})
    if not parts:
        return {"query": {"match_all": {}}}
    return {"query": parts[0] if len(parts) == 1 else {"bool": {"filter": parts}}}


def join_words(words: Iterable[str]) -> str:
    """Words as the search box takes them: one with spaces is a phrase, perhaps in a field."""
    return " ".join(map(_quote_phrase, words))


def _quote_phrase(word: str) -> str:
    if '"' in word or not re.search(r"\s", word):
        return word
    field = _FIELD.match(word)
    return f'{field[0]}"{word[field.end() :]}"' if field else f'"{word}"'


def parse_filter(text: str) -> tuple[str, str]:
    """Parse `field=value`; Misused."""
    field, equals, value = text.partition("=")
    if not equals or not field.strip():
        raise Misused(f"filter: {text!r} is not field=value")
    return field.strip(), value


def named_fields(words: str) -> list[str]:
    """The names before a colon in words."""
    return _FIELD.findall(re.sub(r'"[^"]*"', '""', words))


def _parse_words(words: str, names: FieldNames | None) -> Mapping[str, Any]:
    """Words in any field, or the search-box syntax if a field is named."""
    fields = [name for name in named_fields(words) if names is None or _is_field(name, names)]
    if not fields:
        return {"simple_query_string": {"query": words, "default_operator": "and"}}
    text = words
    if names:
        for name in dict.fromkeys(fields):
            whole = _as_pattern(names.resolve(name), name)
            text = re.sub(rf"(?<![\w.]){re.escape(name)}:(?=\S)", f"{whole}:", text)
    return {"query_string": {"query": text, "default_operator": "and"}}


def _as_pattern(fields: Sequence[str], name: str) -> str:
    """One field, or a pattern for all that end so."""
    if len(fields) == 1:
        return fields[0]
    return f"{DEPOSITED}*.{name}" if fields[0].startswith(DEPOSITED) else f"*.{name}"


def _is_field(name: str, names: FieldNames) -> bool:
    """Whether a word before a colon is a field; terms like CL:0000236 are none."""
    return "." in name or any(one == name or one.endswith(f".{name}") for one in names.known)


def _build_filter(field: str, values: Sequence[str]) -> Mapping[str, Any]:
    """One of the values, as whole string, number or boolean."""
    keyword = f"{field}.keyword"
    whole: dict[str, Any] = {"terms": {keyword: list(values)}}
    plain = [value for value in values if value in ("true", "false") or NUMBER.fullmatch(value)]
    if not plain:
        return whole
    # A term of a string would be one of its words.
    other = {"must_not": [{"exists": {"field": keyword}}]}
    return {"bool": {"should": [whole, {"bool": {"must": [{"terms": {field: plain}}], **other}}]}}


def read_field(document: Any, path: str) -> list[Any]:
    """The values at a dotted path of a document; lists are gone through."""
    found = [document]
    for name in path.split("."):
        nested = [item for one in found for item in (one if isinstance(one, list) else [one])]
        found = [one[name] for one in nested if isinstance(one, Mapping) and name in one]
    return [item for one in found for item in (one if isinstance(one, list) else [one])]
