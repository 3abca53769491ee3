"""Load settings from the environment, and from the file that STORE_SETTINGS_FILE names.

The environment wins over the file, and the file over the defaults.
"""

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from config.file import FileValue, read_settings_file
from config.parsing import find_out_of_bounds, parse_value
from config.settings import (
    FILE_VARIABLE,
    IGNORED_PREFIXES,
    IGNORED_VARIABLES,
    PREFIX,
    Settings,
    SettingsError,
    SettingValueError,
)


@dataclass
class LoadedSettings:
    """The settings, the source of each that is set, and everything that is wrong with them."""

    settings: Settings = field(default_factory=Settings)
    sources: dict[str, str] = field(default_factory=dict)
    """`file` or `environment` by name; a setting that is not here has its default."""
    problems: list[str] = field(default_factory=list)


def load_settings(environ: Mapping[str, str]) -> Settings:
    """Load settings; SettingsError names what is unknown or invalid, and where it is."""
    loaded = read_all_settings(environ)
    if not loaded.problems:
        return loaded.settings
    first, *others = loaded.problems
    more = f" (and {len(others)} more: see `python -m ops settings check`)" if others else ""
    raise SettingsError(first + more)


def read_all_settings(environ: Mapping[str, str]) -> LoadedSettings:
    """Read file and environment, and collect all problems instead of raising the first."""
    loaded = LoadedSettings()
    in_file: dict[str, FileValue] = {}
    if path := environ.get(FILE_VARIABLE):
        in_file, loaded.problems = read_settings_file(path)
    given = _read_environment(environ, loaded.problems)
    values = {name: found.value for name, found in in_file.items()} | given
    loaded.sources = dict.fromkeys(in_file, "file") | dict.fromkeys(given, "environment")
    problems: dict[str, str] = {}
    try:
        loaded.settings = Settings(**values)
    except SettingValueError as error:
        problems[error.name] = error.problem
        values.pop(error.name)
        loaded.settings = Settings(**values)
    problems |= find_out_of_bounds(vars(loaded.settings))
    for name, problem in problems.items():
        place = in_file[name].place if loaded.sources.get(name) == "file" else variable_of(name)
        loaded.problems.append(f"{place}: {problem}")
    return loaded


def variable_of(name: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + name.upper()


def _read_environment(environ: Mapping[str, str], problems: list[str]) -> dict[str, Any]:
    hints = typing.get_type_hints(Settings)
    names = {variable_of(item.name): item.name for item in fields(Settings)}
    variables = {key: raw for key, raw in environ.items() if key.startswith(PREFIX)}
    unknown = [key for key in variables.keys() - names.keys() if not _is_ignored(key)]
    if unknown:
        problems.append(f"unknown setting {', '.join(sorted(unknown))}")
    values = {}
    for key in variables.keys() & names.keys():
        try:
            values[names[key]] = parse_value(hints[names[key]], variables[key])
        except (ValueError, TypeError) as error:
            problems.append(f"{key}: {error}")
    return values


def _is_ignored(key: str) -> bool:
    return key in IGNORED_VARIABLES or key.startswith(IGNORED_PREFIXES)
