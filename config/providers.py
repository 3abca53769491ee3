"""Identity providers of the setting STORE_PROVIDERS."""

import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

PROVIDER_MEMBERS = "`{issuer, client_id, title?, domains?, scopes?}`"
RESERVED_NAMES = ("local",)

_NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


@dataclass(frozen=True)
class ProviderSettings:
    """An OpenID provider; `domains` limits e-mail domains, empty allows any."""

    issuer: str
    client_id: str
    title: str = ""
    domains: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ("openid", "email")


def parse_providers(raw: str) -> dict[str, ProviderSettings]:
    """Parse providers by name; ValueError names the invalid one."""
    value = json.loads(raw)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return {name: _parse_provider(name, item) for name, item in value.items()}


def _parse_provider(name: str, item: object) -> ProviderSettings:
    if not _NAME_PATTERN.fullmatch(name) or name in RESERVED_NAMES:
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
