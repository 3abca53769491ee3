"""Load settings from the environment, and from the TOML file that STORE_SETTINGS_FILE names.

The environment wins over the file, and the file over the defaults. The file has a table for each
group of settings, with the settings' names as keys.
"""

import difflib
import json
import re
import stat
import tomllib
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from config.parsing import find_malformed_urls, find_out_of_bounds, parse_value
from config.settings import (
    FILE_VARIABLE,
    IGNORED_PREFIXES,
    IGNORED_VARIABLES,
    PREFIX,
    SECRET_SETTINGS,
    URL_PASSWORD,
    Settings,
    SettingsError,
    SettingValueError,
)

_HEADER = re.compile(r"\s*\[\s*([^\[\]#]+?)\s*\]\s*(?:#.*)?")
_KEY = re.compile(r"\s*[\"']?([A-Za-z0-9_-]+)[\"']?\s*[.=]")


@dataclass(frozen=True)
class SettingGroup:
    """A table of the settings file; it has the settings from `first` to the next group's first."""

    table: str
    title: str
    first: str


GROUPS = (
    SettingGroup("locations", "Locations", "home"),
    SettingGroup("engines", "Engines, chosen by URL", "replica_aws"),
    SettingGroup("connections", "Connections to the engines", "cloud_connect_s"),
    SettingGroup("secrets", "Secrets", "secret_key"),
    SettingGroup("http", "HTTP", "max_body_bytes"),
    SettingGroup("web", "Web pages", "web_name"),
    SettingGroup("identity", "Identity", "issuers"),
    SettingGroup("authorization", "Remote authorization service", "policies_url"),
    SettingGroup(
        "tokens", "Tokens of the authorization service for applications", "web_redirect_uris"
    ),
    SettingGroup("logins", "Logins at the authorization service", "local_logins"),
    SettingGroup("sources", "Sources and destinations", "staging_roots"),
    SettingGroup("mail", "Mail about checkouts", "smtp_host"),
    SettingGroup("quotas", "Quotas", "quotas"),
    SettingGroup("jobs", "Jobs", "max_claims"),
    SettingGroup("metadata", "Metadata", "metadata_schemas"),
    SettingGroup("notifications", "Notifications", "delivery_delays_s"),
    SettingGroup("logs", "Logs", "log_level"),
    SettingGroup("traces", "Traces", "traces_url"),
)


@cache
def tables_by_setting() -> dict[str, str]:
    """Return the table of each setting."""
    return {name: group.table for group, names in list_groups() for name in names}


def list_groups() -> Iterator[tuple[SettingGroup, list[str]]]:
    """Yield each group with the names of its settings, in their order."""
    names = [item.name for item in fields(Settings)]
    starts = [names.index(group.first) for group in GROUPS]
    for group, start, end in zip(GROUPS, starts, [*starts[1:], len(names)], strict=True):
        yield group, names[start:end]


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
        in_file, loaded.problems = _read_file(path)
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
    # `ops settings check` goes on, and splits URLs: malformed ones would raise.
    cleared: dict[str, Any] = dict.fromkeys(find_malformed_urls(vars(loaded.settings)), "")
    loaded.settings = replace(loaded.settings, **cleared)
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
    for key in sorted(variables.keys() - names.keys()):
        if not _is_ignored(key):
            close = difflib.get_close_matches(key, names, n=1)
            suggestion = f"; did you mean {close[0]}?" if close else ""
            problems.append(f"unknown setting {key}{suggestion}")
    values = {}
    for key in variables.keys() & names.keys():
        try:
            values[names[key]] = parse_value(hints[names[key]], variables[key])
        except (ValueError, TypeError) as error:
            problems.append(f"{key}: {error}")
    return values


def _is_ignored(key: str) -> bool:
    return key in IGNORED_VARIABLES or key.startswith(IGNORED_PREFIXES)


@dataclass(frozen=True)
class FileValue:
    """A value of the file, and where it stands."""

    value: Any
    place: str


def _read_file(path: str) -> tuple[dict[str, FileValue], list[str]]:
    """Return the valid values by setting, and everything that is wrong."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except OSError as error:
        return {}, [f"{path}: cannot be read: {error.strerror}"]
    except ValueError as error:
        return {}, [f"{path}: is not TOML: {error}"]
    reader = _Reader(path, text)
    for table, members in tables.items():
        reader.read_table(table, members)
    if reader.has_secrets and Path(path).stat().st_mode & stat.S_IRWXO:
        reader.problems.append(
            f"{path}: holds secrets, but other users can read it: run `chmod o= {path}`"
        )
    return reader.values, reader.problems


class _Reader:
    def __init__(self, path: str, text: str) -> None:
        self._path, self._lines = path, text.splitlines()
        self._hints = typing.get_type_hints(Settings)
        self.values: dict[str, FileValue] = {}
        self.problems: list[str] = []
        self.has_secrets = False

    def read_table(self, table: str, members: Any) -> None:
        """Read one table of the file."""
        known = tables_by_setting()
        if table not in known.values():
            hint = f"belongs into [{known[table]}]" if table in known else "unknown table"
            close = difflib.get_close_matches(table, set(known.values()), n=1)
            suggestion = f"; did you mean [{close[0]}]?" if close and table not in known else ""
            shown = f"[{table}]" if isinstance(members, dict) else table
            self.problems.append(f"{self._place(table, '', shown)}: {hint}{suggestion}")
        elif not isinstance(members, dict):
            self.problems.append(f"{self._place(table, '', table)}: must be a table, [{table}]")
        else:
            for key, value in members.items():
                self._read_key(table, key, value)

    def _read_key(self, table: str, key: str, value: Any) -> None:
        place, known = self._place(table, key, f"[{table}] {key}"), tables_by_setting()
        if known.get(key) != table:
            self.problems.append(f"{place}: {_explain_unknown(key, known)}")
            return
        is_secret = key in SECRET_SETTINGS and bool(value)
        self.has_secrets |= is_secret or bool(URL_PASSWORD.search(str(value)))
        try:
            self.values[key] = FileValue(_parse_toml(self._hints[key], value), place)
        except (ValueError, TypeError) as error:
            reason = str(error)
            if key in SECRET_SETTINGS:
                reason = reason.partition(" (got")[0]
            self.problems.append(f"{place}: {reason}")

    def _place(self, table: str, key: str, shown: str) -> str:
        number = self._find_line(table, key)
        return f"{self._path}: {shown}" + (f" (line {number})" if number else "")

    def _find_line(self, table: str, key: str) -> int | None:
        """Return the line of a key, or of its table; None if it is written in another way."""
        current = ""
        for number, line in enumerate(self._lines, 1):
            if header := _HEADER.fullmatch(line):
                current = re.sub(r"[\s\"']", "", header[1])
                if f"{current}.".startswith(f"{table}.{key}." if key else f"{table}."):
                    return number
                continue
            match = _KEY.match(line)
            if match and (current, match[1]) == ((table, key) if key else ("", table)):
                return number
        return None


def _explain_unknown(key: str, known: Mapping[str, str]) -> str:
    if key in known:
        return f"belongs into [{known[key]}]"
    close = difflib.get_close_matches(key, known, n=1)
    return "unknown setting" + (f"; did you mean {close[0]}?" if close else "")


def _parse_toml(annotation: Any, value: Any) -> Any:
    """Check the type of a TOML value, and parse it like a variable of the environment."""
    origin = typing.get_origin(annotation)
    if origin is tuple:
        _require(value, list, "a list")
        return parse_value(annotation, json.dumps(value, default=str))
    if origin is not None:
        _require(value, dict, "a table")
        return parse_value(annotation, json.dumps(value, default=str))
    if annotation is bool:
        _require(value, bool, "true or false")
        return value
    if annotation in (int, float):
        number = (int,) if annotation is int else (int, float)
        _require(
            value, number, "a whole number without quotes" if annotation is int else "a number"
        )
        return parse_value(annotation, str(value))
    _require(value, str, "text in quotes")
    return parse_value(annotation, value)


def _require(value: Any, kinds: type | tuple[type, ...], meaning: str) -> None:
    if isinstance(value, kinds) and (kinds is bool or not isinstance(value, bool)):
        return
    is_long = isinstance(value, (dict, list))
    raise ValueError(
        f"must be {meaning}" + ("" if is_long else f" (got {json.dumps(value, default=str)})")
    )
