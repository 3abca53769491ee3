"""The API definition that a store serves, parsed and cached."""

from store_client.definition.documents import cached_definition, clear_cache, load_definition
from store_client.definition.openapi import ApiDefinition, ApiOperation, OperationParameter

__all__ = [
    "ApiDefinition",
    "ApiOperation",
    "OperationParameter",
    "cached_definition",
    "clear_cache",
    "load_definition",
]
