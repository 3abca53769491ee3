"""The reference of the settings, made from the settings themselves."""

import json
import re
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, fields
from typing import Any

import click
from rich.console import Console

from config import Settings
from config.settings import PREFIX
from ops.tables import show

COLUMNS = ("variable", "default", "meaning")
SECRET = ("secret_key", "provider_secrets")

_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/@]+@")


def rows() -> list[tuple[str, str, str]]:
    """Every setting: its variable, its default as one would write it, what it means."""
    return [
        (f"{PREFIX}{field.name.upper()}", _written(_default(field)), str(field.metadata["about"]))
        for field in fields(Settings)
    ]


def markdown() -> str:
    """The same as a table of docs/operations.md."""
    lines = [" | ".join(("", *COLUMNS, "")).strip(), "|---|---|---|"]
    for variable, default, about in rows():
        shown = f"`{default}`" if default else ""
        lines.append(f"| `{variable}` | {shown} | {about} |")
    return "\n".join(lines) + "\n"


def current(settings: Settings) -> list[tuple[str, str, str]]:
    """Every setting as it is now; secrets, and passwords in URLs, only say that they are set."""
    return [
        (variable, _hidden(field, _written(getattr(settings, field.name))), about)
        for field, (variable, _, about) in zip(fields(Settings), rows(), strict=True)
    ]


def _hidden(field: "Field[Any]", value: str) -> str:
    if value and field.name in SECRET:
        return "(set)"
    return _PASSWORD.sub(r"\1:(set)@", value)


def _default(field: "Field[Any]") -> Any:
    if field.default is not MISSING:
        return field.default
    return typing.cast(Any, field.default_factory)()


def _written(value: Any) -> str:
    """As it would stand in the environment; empty where it depends on other settings."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(_written(item) for item in value)
    if isinstance(value, Mapping):
        return json.dumps(value, default=asdict) if value else ""
    return str(value)


@click.command(name="settings")
@click.pass_obj
def print_settings(settings: Settings) -> None:
    """Print every setting with its present value."""
    show(Console(), "Settings", ("variable", "value", "meaning"), current(settings))
