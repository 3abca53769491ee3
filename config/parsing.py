"""Texts of environment variables as what settings are made of."""

import json
import math
import re
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from config.providers import Provider, parse_providers

BOUNDS = {
    # The authorization service listens on the port after the API's.
    "port": (1, 65_534),
    "ops_port": (0, 65_535),
    "smtp_port": (1, 65_535),
    "api_threads": (1, 1_000),
    "worker_threads": (1, 1_000),
    "delivery_threads": (1, 1_000),
    "delivery_in_flight": (1, 100_000),
    "tick_s": (0.01, 3_600.0),
    "sequencer_s": (0.0, 3_600.0),
}
"""Least and greatest values; beyond them a store could not run."""
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def out_of_bounds(settings: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with each setting that is beyond its bounds."""
    return {
        name: f"must be between {least} and {most} (got {settings[name]})"
        for name, (least, most) in BOUNDS.items()
        if not least <= settings[name] <= most
    }


def is_origin(text: str) -> bool:
    """Whether browsers send an origin spelled like this: never with its scheme's default port."""
    found = _ORIGIN.fullmatch(text)
    port = int((found and found[2]) or 0)
    return found is not None and port <= 65535 and port != _DEFAULT_PORTS.get(found[1])


def parse(annotation: Any, raw: str) -> Any:
    """One variable's text as the field's type; ValueError or TypeError when it is none."""
    origin = typing.get_origin(annotation)
    if origin is tuple:
        return _tuple_of(typing.get_args(annotation)[0], raw)
    if origin is not None and Provider in typing.get_args(annotation):
        return parse_providers(raw)
    if origin is not None:
        return _mapping(raw)
    return _boolean(raw) if annotation is bool else _scalar(annotation, raw)


def _scalar(kind: Any, raw: str) -> Any:
    if kind is Path and not raw.strip():
        raise ValueError("must be a folder (got none)")
    return _number(kind, raw) if kind in (int, float) else kind(raw)


def _number(kind: type[int] | type[float], raw: str) -> float:
    """A finite number in ASCII digits."""
    try:
        value = kind(raw)
        usable = raw.isascii() and math.isfinite(value)
    except (ValueError, OverflowError):
        usable = False
    if not usable:
        wanted = "a whole number" if kind is int else "a number"
        raise ValueError(f'must be {wanted} (got "{raw}")')
    return value


def _tuple_of(kind: Any, raw: str) -> tuple[Any, ...]:
    """A list as JSON, or with commas between its items."""
    text = raw.strip()
    if text.startswith(("{", '"')) or (text.startswith("[") and _is_json_like(text)):
        return tuple(_item(kind, item) for item in _json_list(text))
    return tuple(_scalar(kind, part.strip()) for part in text.split(",") if part.strip())


def _is_json_like(text: str) -> bool:
    """Whether a text that begins with a bracket is meant as JSON; `[::1]:8000` is a host."""
    try:
        json.loads(text)
    except ValueError:
        return '"' in text or "'" in text
    return True


def _json_list(text: str) -> list[Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError('must be a JSON list like ["a", "b"], or a,b') from error
    if not isinstance(found, list):
        raise ValueError('must be a JSON list like ["a", "b"], or a,b')
    return found


def _item(kind: Any, item: object) -> Any:
    wanted = str if kind is str else (int, float)
    if isinstance(item, bool) or not isinstance(item, wanted) or item == "":
        raise ValueError(f"each item must be a {'text' if kind is str else 'number'}")
    return kind(item)


def _boolean(raw: str) -> bool:
    if raw.lower() in ("true", "1"):
        return True
    if raw.lower() in ("false", "0"):
        return False
    raise ValueError(f'must be true or false (got "{raw}")')


def _mapping(raw: str) -> dict[str, str]:
    try:
        value = json.loads(raw)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ValueError(f'must be a JSON object (got "{raw}")')
    return {str(key): str(item) for key, item in value.items()}
