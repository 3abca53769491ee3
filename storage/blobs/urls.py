"""Bucket URLs of clouds: `<scheme>://<bucket>?<options>`."""

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from config.settings import SettingsError


def taken_apart(url: str, scheme: str, known: frozenset[str]) -> tuple[str, Mapping[str, str]]:
    """The bucket's name and the options that are not empty; SettingsError names what is wrong.
    `endpoint` and `public` are http URLs."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    ends = [options.get(name) or "http://" for name in ("endpoint", "public")]
    if any("@" in urlsplit(each).netloc for each in (url, *ends)):
        # Not repeated here: what follows is logged.
        raise SettingsError(f"{scheme} bucket URL: credentials are ambient, never in the URL")
    unknown = sorted(options.keys() - known)
    if unknown or parts.scheme != scheme or not parts.netloc or parts.path.strip("/"):
        expected = f"{scheme}://<bucket> is expected"
        why = f"unknown options {', '.join(unknown)}" if unknown else expected
        raise SettingsError(f"bucket URL {_bare(url)}: {why}")
    for name in ("endpoint", "public"):
        if urlsplit(options.get(name) or "http://").scheme not in ("http", "https"):
            raise SettingsError(f"bucket URL {_bare(url)}: {name} is no http URL")
    return parts.netloc, {name: value for name, value in options.items() if value}


def _bare(url: str) -> str:
    """Without the values of options, which nobody should have to read in a log."""
    return url.partition("?")[0]


def as_called(base: str) -> str:
    """An endpoint as every client names it in `Host`, which is signed: in small letters, and some
    leave the port out where it is the scheme's own."""
    parts = urlsplit(base)
    usual = {"http": ":80", "https": ":443"}.get(parts.scheme, "")
    return parts._replace(netloc=parts.netloc.lower().removesuffix(usual)).geturl()
