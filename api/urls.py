"""Absolute URLs: which base they may be built on, so that no foreign Host header ends up in one."""

import ipaddress
import re
from collections.abc import Collection

from flask import Request

from config.settings import Settings
from storage.errors import Invalid

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{1,5})?", re.ASCII)


def external_base(settings: Settings, request: Request) -> str:
    """The configured external URL, else the request's own when its Host is believed."""
    if settings.external_url:
        return settings.external_url
    host = request.headers.get("Host", "").lower()
    if not believed(host, settings.allowed_hosts):
        said = "The Host header is neither loopback nor in STORE_ALLOWED_HOSTS"
        raise Invalid(said, errors={"Host": [said]})
    return f"{request.scheme}://{host}"


def believed(host: str, allowed: Collection[str]) -> bool:
    """Whether a lower-case Host header is loopback or on the list, with or without its port."""
    parts = _HOST.fullmatch(host)
    if parts is None:
        return False
    named = {name.lower() for name in allowed}
    return _loopback(parts["name"]) or host in named or parts["name"] in named


def _loopback(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False
