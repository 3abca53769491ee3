"""List all settings: meaning, default, and the value in force without secrets."""

import json
import re
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, fields
from typing import Any

from config.settings import PREFIX, Settings

SETTING_COLUMNS = ("variable", "default", "meaning")
SECRET_SETTINGS = ("secret_key", "provider_secrets")

_URL_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/@]+@")


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


def render_markdown() -> str:
    """The same as a table of docs/operations.md."""
    lines = [" | ".join(("", *SETTING_COLUMNS, "")).strip(), "|---|---|---|"]
    for variable, default, about in list_settings():
        shown = f"`{default}`" if default else ""
        lines.append(f"| `{variable}` | {shown} | {about} |")
    return "\n".join(lines) + "\n"


def list_current_values(settings: Settings) -> list[tuple[str, str, str]]:
    """Every setting as it is now; secrets, and passwords in URLs, only say that they are set."""
    return [
        (variable, _mask_secret(field, _format_value(getattr(settings, field.name))), about)
        for field, (variable, _, about) in zip(fields(Settings), list_settings(), strict=True)
    ]


def _mask_secret(field: "Field[Any]", value: str) -> str:
    if value and field.name in SECRET_SETTINGS:
        return "(set)"
    return _URL_PASSWORD.sub(r"\1:(set)@", value)


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
