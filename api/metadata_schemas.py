"""Schemas of metadata over HTTP."""

from typing import Any

from flask import Response
from marshmallow import fields

from api.http.operation import ResponseDoc, StoreContext, json_response, operation
from api.schemas.fields import JsonObject, NoParameters, ResponseSchema, describe_field


class SchemaPattern(ResponseSchema):
    """Files whose names match the pattern have to satisfy the schema."""

    pattern = fields.String(
        required=True,
        metadata=describe_field(
            "A shell pattern, for the whole name or its last part; case-sensitive.",
            example="*.json",
        ),
    )
    name = fields.String(
        required=True,
        metadata=describe_field("The schema's name in `documents`.", example="sample.json"),
    )
    digest = fields.String(
        required=True,
        metadata=describe_field(
            "SHA-256 that changes with the schema or what it refers to.", example="0" * 64
        ),
    )


class MetadataSchemaList(ResponseSchema):
    """The schemas that metadata of new bundles has to satisfy; none by default."""

    schemas = fields.List(fields.Nested(SchemaPattern), required=True)
    documents = JsonObject(
        required=True,
        metadata=describe_field(
            "All schemas by name. They refer to each other by relative name or by `$id`.",
            example={"sample.json": {"type": "object", "required": ["organism"]}},
        ),
    )


@operation(
    "GET",
    "/schemas",
    tag="bundles",
    responses={200: ResponseDoc("The schemas.", MetadataSchemaList)},
    description="Metadata files (`indexed`) of a new bundle version have to satisfy every schema"
    " whose pattern matches their name. Without a `$schema` a schema is of draft 2020-12; `format`"
    " is checked.",
)
def get_schemas(context: StoreContext[NoParameters, None]) -> Response:
    """List the schemas of metadata."""
    found = context.stores.metadata_schemas
    documents: dict[str, Any] = {}
    for schema in found:
        documents |= schema.documents
    listed = [{"pattern": one.pattern, "name": one.name, "digest": one.digest} for one in found]
    return json_response({"schemas": listed, "documents": documents})
