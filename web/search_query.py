"""The query of a search page: words or a query, and filters, as its URL says."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote, urlencode

from storage.errors import Invalid, prefix_pointers
from storage.model import Replica
from storage.search.grammar.clauses import Clause
from storage.search.grammar.parser import parse_query

MAX_FILTERS = 50
MAX_FILTER_CHARACTERS = 10_000
NEWEST, OLDEST = "newest", "oldest"
FIELD_AND_VALUE = re.compile(r"(?:^|[\s(+-])[\w*]+(?:\.[\w*]+)+:\S")
"""A dotted field before a colon: the text is in search-box syntax."""
BARE_FIELD = re.compile(r"(?:^|[\s(+-])(\w+):\S")
"""A word before a colon: part of a field's name, or of a term like CL:0000236."""
JMESPATH = re.compile(r"==|\[\?|\bcontains\(")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FieldFilter:
    """Bundles with this value in this field."""

    field: str
    value: str

    def as_parameter(self) -> str:
        """Return it as in a URL: `field:value`, with colons of the field's name as `%3A`."""
        return f"{self.field.replace('%', '%25').replace(':', '%3A')}:{self.value}"


def parse_filters(given: Sequence[str]) -> tuple[FieldFilter, ...]:
    """Parse the filters of a URL, each once; Invalid."""
    if len(given) > MAX_FILTERS or sum(map(len, given)) > MAX_FILTER_CHARACTERS:
        raise _filter_error(f"at most {MAX_FILTERS} filters are possible")
    found = []
    for text in given:
        name, colon, value = text.partition(":")
        if not colon or not name or "\0" in text:
            raise _filter_error("must be a field and a value: field:value")
        found.append(FieldFilter(unquote(name), value))
    return tuple(dict.fromkeys(found))


def _filter_error(message: str) -> Invalid:
    return Invalid(f"filter: {message}", errors={"filter": [message]})


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What a search page shows."""

    q: str
    filters: tuple[FieldFilter, ...]
    replica: Replica
    sort: str = NEWEST

    def url(self, path: str = "/search", after: str | None = None) -> str:
        """Return the URL of a page with this search."""
        pairs = [("q", self.q)] if self.q else []
        pairs += [("filter", each.as_parameter()) for each in self.filters]
        pairs += [("sort", self.sort)] if self.sort != NEWEST else []
        pairs += [("replica", self.replica)] if self.replica != "aws" else []
        pairs += [("after", after)] if after else []
        return path + ("?" + urlencode(pairs) if pairs else "")

    def with_filter(self, added: FieldFilter) -> "SearchRequest":
        """Return the search with another filter."""
        return replace(self, filters=tuple(dict.fromkeys((*self.filters, added))))

    def without_filter(self, removed: FieldFilter) -> "SearchRequest":
        """Return the search without a filter."""
        return replace(self, filters=tuple(each for each in self.filters if each != removed))

    def without_field(self, field: str) -> "SearchRequest":
        """Return the search without the filters of a field."""
        return replace(self, filters=tuple(each for each in self.filters if each.field != field))

    def es_query(self) -> Mapping[str, Any]:
        """Return the query as `es_query`; Invalid names what is wrong in `q`."""
        parts = [] if not self.q.strip() else [_parse_text(self.q.strip())]
        for field in dict.fromkeys(each.field for each in self.filters):
            values = [each.value for each in self.filters if each.field == field]
            parts.append(_make_filter(field, values))
        if len(parts) < 2:
            return {"query": parts[0]} if parts else {}
        return {"query": {"bool": {"filter": parts}}}

    def list_bare_fields(self) -> list[str]:
        """Return the words of `q` before a colon that may be meant as fields."""
        return [] if self.q.lstrip().startswith("{") else BARE_FIELD.findall(self.q)

    def looks_like_jmespath(self) -> bool:
        """Return whether `q` is in the other query language, which only subscriptions read."""
        return not self.q.lstrip().startswith("{") and bool(JMESPATH.search(self.q))

    def clause(self) -> Clause:
        """Return the query, parsed; Invalid."""
        return parse_query(self.es_query())


def _parse_text(text: str) -> Mapping[str, Any]:
    """Return the clause of words, of search-box syntax, or of an `es_query`."""
    if text.startswith("{"):
        body = _parse_json(text)
        parse_query(body)
        clause = body.get("query", body) if body else {"match_all": {}}
        return dict(clause)
    name = "query_string" if FIELD_AND_VALUE.search(text) else "simple_query_string"
    clause = {name: {"query": text, "default_operator": "and"}}
    with prefix_pointers("/query"):
        parse_query(clause)
    return clause


def _parse_json(text: str) -> Mapping[str, Any]:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, json.JSONDecodeError) else "nested too deep"
        raise Invalid(f"The query is no valid JSON: {reason}", errors={}) from error
    if not isinstance(body, dict):
        raise Invalid("The query must be a JSON object.", errors={})
    return body


def _make_filter(field: str, values: Sequence[str]) -> Mapping[str, Any]:
    """Return a clause for bundles with one of the values, as whole string, number or boolean."""
    keyword = f"{field}.keyword"
    plain = [value for value in values if value in ("true", "false") or NUMBER.fullmatch(value)]
    whole: dict[str, Any] = {"terms": {keyword: list(values)}}
    if not plain:
        return whole
    # A term of a string would be one of its words.
    other = {"must_not": [{"exists": {"field": keyword}}]}
    return {"bool": {"should": [whole, {"bool": {"must": [{"terms": {field: plain}}], **other}}]}}
