"""SSRF guard: parse callback URLs and refuse addresses that are not public.

Pure. The caller (`workers/webhooks.py`) resolves the name, asks `check_address_text` about every
address, and connects to the very address that was asked about.
"""

import functools
import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, urlsplit

from storage.errors import Invalid

MAX_URL_BYTES = 2048
"""Bytes of a callback URL; the catalog indexes no longer ones."""
CACHE_SIZE = 8192
"""Parsed callback URLs, and hosts, that a process caches."""
DEFAULT_PORTS = {"http": 80, "https": 443}

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_FORBIDDEN_CHARACTERS = re.compile(r"[\x00-\x20\x7f\\]")

_BLOCKED_IPV4 = tuple(
    (ipaddress.IPv4Network(network), reason)
    for network, reason in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "carrier-grade"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "documentation"),
        ("192.31.196.0/24", "reserved"),
        ("192.52.193.0/24", "reserved"),
        ("192.88.99.0/24", "6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("192.175.48.0/24", "reserved"),
        ("198.18.0.0/15", "benchmark"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
        # Metadata services of clouds that answer on public addresses.
        ("100.100.100.200/32", "metadata"),
        ("168.63.129.16/32", "metadata"),
    )
)
_BLOCKED_IPV6 = tuple(
    (ipaddress.IPv6Network(network), reason)
    for network, reason in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::/96", "reserved"),
        ("64:ff9b:1::/48", "local translation"),
        ("100::/64", "discard"),
        ("2001::/32", "Teredo"),
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "documentation"),
        ("2002::/16", "6to4"),
        ("3fff::/20", "documentation"),
        ("5f00::/16", "reserved"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)
_GLOBAL_IPV6 = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""NAT64: reaches the IPv4 address in its last four bytes."""


@dataclass(frozen=True, slots=True)
class CallbackUrl:
    """A parsed callback URL; `url` is its normal spelling in ASCII."""

    scheme: str
    host: str
    port: int
    target: str
    """Path and query as they are sent."""

    @property
    def authority(self) -> str:
        """The Host header, without the scheme's default port."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == DEFAULT_PORTS[self.scheme] else f"{name}:{self.port}"

    @property
    def url(self) -> str:
        """The URL as it is requested."""
        return f"{self.scheme}://{self.authority}{self.target}"

    @property
    def endpoint(self) -> str:
        """The receiver: the URL without its query."""
        return f"{self.scheme}://{self.authority}{self.target.partition('?')[0]}"


def parse_callback_url(url: str, *, allow_private: bool) -> CallbackUrl:
    """Parse a callback URL; raise Invalid (`invalid_callback_url`)."""
    callback = _parse_url(url)
    if allow_private:
        return callback
    address = parse_ip_literal(callback.host)
    reason = refusal_reason(address) if address else None
    name = callback.host.removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        reason = "loopback"
    if reason:
        raise _invalid_callback_url(f"It leads to a {reason} address.")
    return callback


def refusal_reason(address: IPAddress) -> str | None:
    """Return why nothing may be sent to an address, or None if it is an ordinary public one."""
    if isinstance(address, ipaddress.IPv4Address):
        return next((reason for network, reason in _BLOCKED_IPV4 if address in network), None)
    if address.scope_id is not None:
        return "link-local"
    inner = address.ipv4_mapped
    if address in _NAT64:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if inner is not None:
        return refusal_reason(inner)
    special = next((reason for network, reason in _BLOCKED_IPV6 if address in network), None)
    return special or (None if address in _GLOBAL_IPV6 else "reserved")


@functools.lru_cache(CACHE_SIZE)
def check_address_text(address: str) -> str | None:
    """Return the refusal reason of an address in any spelling; other texts are malformed."""
    parsed = parse_ip_literal(address)
    return "malformed" if parsed is None else refusal_reason(parsed)


@functools.lru_cache(CACHE_SIZE)
def parse_ip_literal(host: str) -> IPAddress | None:
    """Return the address that a host name is, also in old decimal, octal and hexadecimal forms."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return _parse_legacy_ipv4(host.lower().removesuffix("."))


def _parse_legacy_ipv4(host: str) -> ipaddress.IPv4Address | None:
    """Parse one to four numbers, the last of which fills all remaining bytes."""
    parts = host.split(".")
    if len(parts) > 4 or not all(map(_NUMBER.fullmatch, parts)):
        return None
    try:
        *firsts, last = map(_parse_legacy_number, parts)
    except ValueError:
        return None
    if any(first > 255 for first in firsts) or last >= 256 ** (4 - len(firsts)):
        return None
    high = sum(first << (24 - 8 * place) for place, first in enumerate(firsts))
    return ipaddress.IPv4Address(high + last)


def _parse_legacy_number(part: str) -> int:
    if len(part) > 40:
        raise ValueError(part)
    if part.startswith("0x"):
        return int(part[2:] or "0", 16)
    return int(part, 8) if part.startswith("0") and part != "0" else int(part)


@functools.lru_cache(CACHE_SIZE)
def _parse_url(url: str) -> CallbackUrl:
    if len(url) > MAX_URL_BYTES or _FORBIDDEN_CHARACTERS.search(url):
        raise _invalid_callback_url("It is too long or holds characters that no URL has.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _invalid_callback_url("It is malformed.") from error
    if parts.scheme not in DEFAULT_PORTS:
        raise _invalid_callback_url("It must begin with http:// or https://.")
    if "@" in parts.netloc:
        raise _invalid_callback_url("It must hold no user name or password.")
    if port == 0:
        raise _invalid_callback_url("Its port is out of range.")
    host = _normalize_host(parts)
    callback = CallbackUrl(
        parts.scheme, host, port or DEFAULT_PORTS[parts.scheme], _encode_target(parts)
    )
    if len(callback.url) > MAX_URL_BYTES:
        raise _invalid_callback_url("It is too long.")
    return callback


def _encode_target(parts: SplitResult) -> str:
    safe = "/%:@!$&'()*+,;=~"
    try:
        path, query = quote(parts.path, safe=safe), quote(parts.query, safe=safe + "?")
    except UnicodeEncodeError as error:
        raise _invalid_callback_url("It is malformed.") from error
    return (path or "/") + (f"?{query}" if query else "")


def _normalize_host(parts: SplitResult) -> str:
    """Return the host in ASCII and lower case, an address in its normal spelling."""
    name = parts.hostname or ""
    try:
        # Normalises too: resolvers read circled digits as digits.
        name = name if name.isascii() else name.encode("idna").decode().lower()
    except UnicodeError as error:
        raise _invalid_callback_url("Its host name is malformed.") from error
    if "[" in parts.netloc:
        return _parse_ipv6_host(name)
    address = parse_ip_literal(name)
    if address is not None:
        return str(address)
    labels = name.removesuffix(".").split(".")
    if len(name) > 253 or not all(map(_LABEL.fullmatch, labels)) or _NUMBER.fullmatch(labels[-1]):
        raise _invalid_callback_url("Its host name is malformed.")
    return name


def _parse_ipv6_host(name: str) -> str:
    try:
        address = ipaddress.IPv6Address(name)
    except ValueError as error:
        raise _invalid_callback_url("Its address is malformed.") from error
    if address.scope_id is not None:
        raise _invalid_callback_url("Its address has a zone.")
    return str(address)


def _invalid_callback_url(reason: str) -> Invalid:
    detail = f"The callback URL cannot be used. {reason}"
    return Invalid(detail, code="invalid_callback_url", errors={"/callback_url": [reason]})
