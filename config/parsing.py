"""Parse the text of environment variables into the types of settings, identity providers too."""

import json
import math
import re
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SETTING_BOUNDS = {
    # The authorization service listens on the port after the API's.
    "port": (1, 65_534),
    "ops_port": (0, 65_535),
    "metrics_port": (0, 65_535),
    "smtp_port": (1, 65_535),
    "api_threads": (1, 1_000),
    "worker_threads": (1, 1_000),
    "delivery_threads": (1, 1_000),
    "delivery_in_flight": (1, 100_000),
    "tick_s": (0.01, 3_600.0),
    "sequencer_s": (0.0, 3_600.0),
    "backup_every_s": (60, 31_536_000),
    "backup_keep": (1, 10_000),
    "traces_ratio": (0.0, 1.0),
    "catalog_connections": (1, 10_000),
    "catalog_overflow": (0, 10_000),
    "catalog_read_max_lag_s": (0.5, 3_600.0),
    "areas_credentials_s": (900, 43_200),
    # Bytes a second, not seconds.
    "scrub_bytes_s": (0, 2**62),
    "request_min_bytes_s": (0, 2**62),
}
"""Minimum and maximum values with which a store can run."""
LARGEST_NUMBERS = {"_days": 36_500, "_ms": 3_600_000, "_s": 3_153_600_000, "": 2**62}
"""Maxima of the other numbers by the end of their names: times of a hundred years or an hour."""
POSITIVE_SETTINGS = frozenset(
    {
        *("cloud_connect_s", "cloud_read_s", "cloud_attempts"),
        *("max_body_bytes", "max_json_depth", "max_upload_bytes"),
        *("api_processes", "api_connections", "request_head_s", "signed_url_s"),
        *("policies_timeout_s", "provider_timeout_s", "delivery_timeout_s", "search_timeout_s"),
        *("code_s", "access_token_s", "refresh_idle_s", "grant_s"),
        *("device_code_s", "login_s", "session_s", "session_idle_s"),
        *("password_min", "password_memory_kib", "password_passes", "password_lanes"),
        *("passwords_at_once", "copy_parallel", "max_claims", "refill_rows", "worker_poll_ms"),
        *("scrub_period_days", "search_fields", "jmespath_visits"),
    }
)
"""Settings with which a store cannot run at 0; the others may be 0."""
URL_SCHEMES = {
    **dict.fromkeys(("external_url", "auth_external_url"), ("https://", "http://")),
    **dict.fromkeys(("policies_url", "search_url"), ("https://", "http://")),
    "catalog_url": ("postgresql+psycopg://", "sqlite:///", "sqlite+pysqlite:///"),
    "redis_url": ("redis://", "rediss://", "unix://"),
    **dict.fromkeys(
        ("replica_aws", "replica_gcp", "areas_url", "checkout_aws", "checkout_gcp"),
        ("file:///", "s3://", "gs://"),
    ),
    "backup_target": ("file:///", "s3://", "gs://"),
}
"""Beginnings of the URLs that a setting can be, if it is not empty."""
SPLIT_URLS = URL_SCHEMES.keys() - {"catalog_url"}
"""Settings whose URL must have a host and a port that `urlsplit` can read."""
SETTING_CHOICES = {
    "log_level": ("debug", "info", "warning", "error", "critical"),
    "log_format": ("auto", "text", "json"),
}
"""Words that a setting can be; log levels also in capitals."""
_ORIGIN_PATTERN = re.compile(
    r"([a-z][a-z0-9+.-]*)://(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?"
)
_DEFAULT_PORTS = {"http": 80, "https": 443}

PROVIDER_MEMBERS = "`{issuer, client_id, title?, domains?, scopes?}`"
RESERVED_NAMES = ("local",)

_PROVIDER_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


@dataclass(frozen=True)
class ProviderSettings:
    """An OpenID provider; `domains` limits e-mail domains, empty allows any."""

    issuer: str
    client_id: str
    title: str = ""
    domains: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ("openid", "email")


def find_out_of_bounds(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return an error for each setting out of its bounds or not among its choices."""
    numbers = {
        name: f"{_describe_bounds(least, most)} (got {value})"
        for name, value in settings.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        for least, most in [_find_bounds(name, value)]
        if not least <= value <= most
    }
    delays, longest = settings["delivery_delays_s"], LARGEST_NUMBERS["_s"]
    if not delays or min(delays) < 0 or max(delays) > longest:
        numbers["delivery_delays_s"] = (
            f"must be a list of delays, each between 0 and {longest} seconds"
        )
    # The value is not repeated: it may have a password.
    urls = dict.fromkeys(find_malformed_urls(settings), "must be a URL with a valid host and port")
    urls |= {
        name: f"must be a URL that begins with {', '.join(schemes[:-1])} or {schemes[-1]}"
        for name, schemes in URL_SCHEMES.items()
        if settings[name] and not _begins_with(settings[name], schemes)
    }
    words = {
        name: f'must be one of {", ".join(choices)} (got "{settings[name]}")'
        for name, choices in SETTING_CHOICES.items()
        if settings[name].lower() not in choices
    }
    return numbers | urls | words


def find_malformed_urls(settings: Mapping[str, Any]) -> list[str]:
    """Return the settings whose URL has brackets or a port that cannot be read."""
    return [name for name in sorted(SPLIT_URLS) if not _is_readable_url(settings[name])]


def _is_readable_url(url: str) -> bool:
    try:
        _ = urlsplit(url).port
    except ValueError:
        return False
    return True


def _find_bounds(name: str, value: float) -> tuple[float, float]:
    """Return the minimum and the maximum of a number."""
    if name in SETTING_BOUNDS:
        return SETTING_BOUNDS[name]
    least = (1 if isinstance(value, int) else 0.001) if name in POSITIVE_SETTINGS else 0
    most = next(most for end, most in LARGEST_NUMBERS.items() if name.endswith(end))
    return least, most


def _describe_bounds(least: float, most: float) -> str:
    if most == LARGEST_NUMBERS[""]:
        return f"must be at least {least} and below 2^62"
    return f"must be between {least} and {most}"


def _begins_with(url: str, schemes: Iterable[str]) -> bool:
    """Return whether a URL begins with one of these, with something behind it.

    Only the schemes of HTTP may have capitals.
    """
    compared = url.lower() if "https://" in schemes else url
    return any(compared.startswith(scheme) and len(url) > len(scheme) for scheme in schemes)


def is_origin(text: str) -> bool:
    """Return whether this is an origin as browsers send it: without the default port."""
    match = _ORIGIN_PATTERN.fullmatch(text)
    port = int((match and match[2]) or 0)
    return match is not None and port <= 65535 and port != _DEFAULT_PORTS.get(match[1])


def is_plain_url(text: str) -> bool:
    """Return whether this is an http or https URL with a host, and without user and password."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    has_host = bool(parts.hostname) and port != 0
    return parts.scheme in ("http", "https") and has_host and "@" not in parts.netloc


def parse_value(annotation: Any, raw: str) -> Any:
    """Parse a variable to the field's type; ValueError or TypeError if invalid."""
    origin = typing.get_origin(annotation)
    if origin is tuple:
        return _parse_tuple(typing.get_args(annotation)[0], raw)
    if origin is not None and ProviderSettings in typing.get_args(annotation):
        return parse_providers(raw)
    if origin is not None:
        return _parse_mapping(raw)
    return _parse_boolean(raw) if annotation is bool else _parse_scalar(annotation, raw)


def _parse_scalar(kind: Any, raw: str) -> Any:
    if kind is Path and not raw.strip():
        raise ValueError("must be a folder (got none)")
    return _parse_number(kind, raw) if kind in (int, float) else kind(raw)


def _parse_number(kind: type[int] | type[float], raw: str) -> float:
    """Parse a finite ASCII number."""
    try:
        value = kind(raw)
        usable = raw.isascii() and math.isfinite(value)
    except (ValueError, OverflowError):
        usable = False
    if not usable:
        kind_name = "a whole number" if kind is int else "a number"
        raise ValueError(f'must be {kind_name} (got "{raw}")')
    return value


def _parse_tuple(kind: Any, raw: str) -> tuple[Any, ...]:
    """Parse a list: JSON, or separated by commas."""
    text = raw.strip()
    if text.startswith(("{", '"')) or (text.startswith("[") and _is_json_like(text)):
        return tuple(_parse_item(kind, item) for item in _parse_json_list(text))
    return tuple(_parse_scalar(kind, part.strip()) for part in text.split(",") if part.strip())


def _is_json_like(text: str) -> bool:
    """Return whether text that starts with `[` is JSON; `[::1]:8000` is a host."""
    try:
        json.loads(text)
    except ValueError:
        return '"' in text or "'" in text
    return True


def _parse_json_list(text: str) -> list[Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError('must be a JSON list like ["a", "b"], or a,b') from error
    if not isinstance(value, list):
        raise ValueError('must be a JSON list like ["a", "b"], or a,b')
    return value


def _parse_item(kind: Any, item: object) -> Any:
    types = str if kind is str else (int, float)
    if isinstance(item, bool) or not isinstance(item, types) or item == "":
        raise ValueError(f"each item must be a {'text' if kind is str else 'number'}")
    return kind(item)


def _parse_boolean(raw: str) -> bool:
    if raw.lower() in ("true", "1"):
        return True
    if raw.lower() in ("false", "0"):
        return False
    raise ValueError(f'must be true or false (got "{raw}")')


def _parse_mapping(raw: str) -> dict[str, str]:
    try:
        value = json.loads(raw)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ValueError(f'must be a JSON object (got "{raw}")')
    return {str(key): str(item) for key, item in value.items()}


def parse_providers(raw: str) -> dict[str, ProviderSettings]:
    """Parse providers by name; ValueError names the invalid one."""
    value = json.loads(raw)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return {name: _parse_provider(name, item) for name, item in value.items()}


def _parse_provider(name: str, item: object) -> ProviderSettings:
    if not _PROVIDER_NAME.fullmatch(name) or name in RESERVED_NAMES:
        raise ValueError(f"{name!r} is not a name of a provider")
    if not isinstance(item, dict) or not {"issuer", "client_id"} <= item.keys():
        raise ValueError(f"{name} wants {PROVIDER_MEMBERS}")
    unknown = item.keys() - {"issuer", "client_id", "title", "domains", "scopes"}
    if unknown:
        raise ValueError(f"{name} has an unknown member {min(unknown)!r}")
    provider = ProviderSettings(
        **{key: _parse_member(name, key, value) for key, value in item.items()}
    )
    _check_issuer(name, provider.issuer)
    if "openid" not in provider.scopes:
        raise ValueError(f"{name} wants the scope openid")
    return provider


def _parse_member(name: str, key: str, value: object) -> Any:
    if key in ("domains", "scopes"):
        if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
            raise ValueError(f"{name}: {key} is not a list of texts")
        return tuple(part.lower() if key == "domains" else part for part in value)
    if not isinstance(value, str) or not (value or key == "title"):
        raise ValueError(f"{name}: {key} is not a text")
    return value


def _check_issuer(name: str, issuer: str) -> None:
    """Reject query and fragment (OpenID Connect Discovery 1.0, 3)."""
    parts = urlsplit(issuer)
    plain = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc
    if not plain or parts.query or parts.fragment:
        raise ValueError(f"{name}: its issuer is not an http(s) URL")
