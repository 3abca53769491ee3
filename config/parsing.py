"""Texts of environment variables as what settings are made of."""

import json
import typing
from typing import Any

from config.providers import Provider, parse_providers


def parse(annotation: Any, raw: str) -> Any:
    """One variable's text as the field's type; ValueError or TypeError when it is none."""
    origin = typing.get_origin(annotation)
    if origin is tuple:
        return _tuple_of(typing.get_args(annotation)[0], raw)
    if origin is not None and Provider in typing.get_args(annotation):
        return parse_providers(raw)
    if origin is not None:
        return _mapping(raw)
    return _boolean(raw) if annotation is bool else annotation(raw)


def _tuple_of(kind: Any, raw: str) -> tuple[Any, ...]:
    return tuple(kind(part.strip()) for part in raw.split(",") if part.strip())


def _boolean(raw: str) -> bool:
    if raw.lower() in ("true", "1"):
        return True
    if raw.lower() in ("false", "0"):
        return False
    raise ValueError("neither true nor false")


def _mapping(raw: str) -> dict[str, str]:
    value = json.loads(raw)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return {str(key): str(item) for key, item in value.items()}
