"""Client addresses behind proxies, and the base of external URLs."""

import ipaddress
import re
from collections.abc import Collection

from flask import Request

from config import Settings
from storage.errors import Invalid

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{1,5})?", re.ASCII)


def external_base_url(settings: Settings, request: Request) -> str:
    """Return the configured external URL, else the request's own if its Host is trusted."""
    if settings.external_url:
        return settings.external_url
    host = request.headers.get("Host", "").lower()
    if not is_trusted_host(host, settings.allowed_hosts):
        message = "Host: must be loopback, or listed in STORE_ALLOWED_HOSTS"
        raise Invalid(message, errors={"Host": [message]})
    return f"{request.scheme}://{host}"


def is_trusted_host(host: str, allowed: Collection[str]) -> bool:
    """Return whether a lower-case Host header is loopback or allowed, with or without its port."""
    parts = _HOST.fullmatch(host)
    if parts is None:
        return False
    names = {name.lower() for name in allowed}
    return _is_loopback(parts["name"]) or host in names or parts["name"] in names


def _is_loopback(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_WITH_PORT = re.compile(r"([0-9.]+):[0-9]+|\[([0-9a-fA-F:.]+)\](?::[0-9]+)?")


def client_address(request: Request, proxies: int) -> IpAddress | None:
    """Return the address that connected to the outermost of our proxies; None if it is unknown."""
    text = request.remote_addr or ""
    if proxies > 0:
        hops = _split_header(request, "X-Forwarded-For")
        text = hops[-proxies] if len(hops) >= proxies else ""
    if with_port := _WITH_PORT.fullmatch(text):
        # Some proxies add the port, which changes with each connection of the same client.
        text = with_port[1] or with_port[2]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    # A dual-stack socket reports an IPv4 address as an IPv4-mapped IPv6 address.
    return getattr(address, "ipv4_mapped", None) or address


def is_secure(request: Request, proxies: int) -> bool:
    """Return whether the client certainly uses TLS, up to us or to the outermost of our proxies."""
    if proxies == 0:
        return request.scheme == "https"
    schemes = _split_header(request, "X-Forwarded-Proto")
    # Most proxies pass on the value of the previous one; some append to it, as with addresses.
    if len(schemes) == 1:
        return schemes[0].lower() == "https"
    return len(schemes) >= proxies and schemes[-proxies].lower() == "https"


def _split_header(request: Request, header: str) -> list[str]:
    return [value.strip() for value in request.headers.get(header, "").split(",")]
