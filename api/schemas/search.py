"""Search: what post_search takes and answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marshmallow import fields, validate

from api.schemas.common import Shown
from api.schemas.fields import Count, JsonObject, Text, in_replica, page_pointer
from api.schemas.loading import Body, Query
from pipelines.limits import PAGE_MAX, PAGE_RAW_MAX
from storage.model import Replica


@dataclass(frozen=True)
class Search:
    """Which page is wanted, in which form; `per_page` None is the form's default."""

    replica: Replica
    output_format: str
    per_page: int | None
    search_after: str | None


class SearchQuery(Query):
    """Parameters of post_search."""

    model = Search
    replica = in_replica()
    output_format = Text(
        load_default="summary",
        validate=validate.OneOf(["summary", "raw"], error="Must be one of: summary, raw."),
        metadata={"description": "raw adds the verbatim metadata."},
    )
    per_page = Count(
        load_default=None,
        validate=validate.Range(min=1, max=PAGE_MAX, error=f"Must be from 1 to {PAGE_MAX}."),
        metadata={"description": f"Matches on one page; at most {PAGE_RAW_MAX} when raw."},
    )
    search_after = page_pointer()


@dataclass(frozen=True)
class Wanted:
    """The body of post_search."""

    es_query: Mapping[str, Any]


class SearchBody(Body):
    """A query; an empty object matches every bundle."""

    model = Wanted
    es_query = JsonObject(
        required=True,
        metadata={"example": {"query": {"match": {"files.sample_json.organism": "danio"}}}},
    )


class SearchResult(Shown):
    """A bundle that matches."""

    bundle_fqid = fields.String(required=True)
    bundle_url = fields.String(required=True)
    search_score = fields.Float(required=True, allow_none=True)
    metadata = JsonObject(metadata={"description": "The metadata document; raw only."})


class SearchAnswer(Shown):
    """A page of matches, newest first."""

    es_query = JsonObject(required=True)
    results = fields.List(fields.Nested(SearchResult), required=True)
    total_hits = fields.Integer(required=True)
