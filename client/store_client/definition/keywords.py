"""The words of a schema that this client goes by, and of what kind what they say has to be.

A word that says something of another kind says nothing: arguments are then judged by the server
alone.
"""

from collections.abc import Mapping
from typing import Any

NUMBER = (int, float)
KINDS: Mapping[str, type | tuple[type, ...]] = {
    "type": str,
    "nullable": bool,
    "enum": list,
    "format": str,
    "pattern": str,
    "minimum": NUMBER,
    "maximum": NUMBER,
    "minLength": int,
    "maxLength": int,
    "minItems": int,
    "maxItems": int,
    "required": list,
    "items": Mapping,
    "properties": Mapping,
    "additionalProperties": (bool, Mapping),
    "description": str,
}


def meaningful(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema without what cannot be meant; a list of one type and null as that, nullable."""
    found = {**schema, **_one_type(schema.get("type"))}
    for name, kind in KINDS.items():
        if name in found and not isinstance(found[name], kind):
            del found[name]
    if "required" in found:
        found["required"] = [name for name in found["required"] if isinstance(name, str)]
    return found


def _one_type(said: Any) -> dict[str, Any]:
    if not isinstance(said, list):
        return {}
    kinds = [one for one in said if one != "null"]
    null = {"nullable": True} if len(kinds) < len(said) else {}
    # Of several kinds none is asked for: null stands for no string.
    return {"type": kinds[0] if len(kinds) == 1 else None, **null}
