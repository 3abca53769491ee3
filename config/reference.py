"""List all settings: meaning, default, and the value in force without secrets."""

import json
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, fields
from typing import Any

from config.loading import list_groups
from config.settings import PREFIX, SECRET_SETTINGS, URL_PASSWORD, Settings


def list_settings() -> list[tuple[str, str, str]]:
    """Every setting: its variable, its default as one would write it, what it means."""
    return [
        (
            f"{PREFIX}{field.name.upper()}",
            _format_value(_find_default(field)),
            str(field.metadata["about"]),
        )
        for field in fields(Settings)
    ]


def render_example() -> str:
    """Return a settings file in which every setting is a comment with its default."""
    items = {field.name: field for field in fields(Settings)}
    lines = ["# Settings of the store: remove a `#` to set a value. STORE_SETTINGS_FILE names this"]
    lines += ["# file; variables of the environment win over it.", ""]
    for group, names in list_groups():
        lines += [f"# {group.title}", f"[{group.table}]"]
        for name in names:
            lines += [f"# {items[name].metadata['about']}"]
            lines += [f"# {name} = {_format_toml(_find_default(items[name]))}", ""]
    return "\n".join(lines)


def _format_toml(value: Any) -> str:
    if value is None:
        return "false"
    if isinstance(value, tuple):
        return json.dumps(list(value))
    if isinstance(value, Mapping):
        return "{}"
    # JSON strings, numbers, true and false are TOML, too.
    return json.dumps(value, default=str, ensure_ascii=False)


def list_current_values(settings: Settings) -> list[tuple[str, str, str]]:
    """Every setting as it is now; secrets, and passwords in URLs, only say that they are set."""
    return [
        (variable, _mask_secret(field, _format_value(getattr(settings, field.name))), about)
        for field, (variable, _, about) in zip(fields(Settings), list_settings(), strict=True)
    ]


def _mask_secret(field: "Field[Any]", value: str) -> str:
    if value and field.name in SECRET_SETTINGS:
        return "(set)"
    return URL_PASSWORD.sub(r"\1:(set)@", value)


def _find_default(field: "Field[Any]") -> Any:
    if field.default is not MISSING:
        return field.default
    return typing.cast(Any, field.default_factory)()


def _format_value(value: Any) -> str:
    """As it would stand in the environment; empty where it depends on other settings."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(_format_value(item) for item in value)
    if isinstance(value, Mapping):
        return json.dumps(value, default=asdict) if value else ""
    return str(value)
