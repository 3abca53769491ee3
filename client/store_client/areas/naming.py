"""What a person may call an upload area: its URI, its uuid, or an alias.

An alias is the beginning of a uuid that no other known area has.
"""

import re
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from store_client.configuration import normal_url
from store_client.errors import Misused

SHORTEST = 4
"""Characters that an alias has at least, so that it does not change with every new area."""

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_BEGINNING = re.compile(r"[0-9a-f-]{1,36}")
_CLOUD = re.compile(r"/(?:.*/)?areas?/(?P<uuid>[^/]+)/?")
_OURS = re.compile(r"(?P<base>.*?)(?:/v1)?/area/(?P<uuid>[^/]+)/?")


def aliases(uuids: Iterable[str]) -> dict[str, str]:
    """The shortest beginning of each that none of the others has."""
    found = sorted(set(uuids))
    made = {}
    for at, uuid in enumerate(found):
        neighbours = found[max(0, at - 1) : at] + found[at + 1 : at + 2]
        shared = max((_shared(uuid, other) for other in neighbours), default=0)
        made[uuid] = uuid[: max(SHORTEST, shared + 1)]
    return made


def uuid_of(text: str, known: Sequence[str], *, base_url: str) -> str:
    """The uuid of the area that is meant; Misused when it is none, or several."""
    said = text.strip()
    if "://" in said:
        return _of_uri(said, base_url)
    lower = said.lower()
    if _UUID.fullmatch(lower):
        return lower
    return _of_alias(said, [uuid for uuid in known if uuid.startswith(lower)])


def _of_alias(said: str, candidates: Sequence[str]) -> str:
    if not _BEGINNING.fullmatch(said.lower()):
        raise Misused(
            f"{said!r} is no URI of an area, no uuid and no alias", hint="store areas lists them"
        )
    if not candidates:
        raise Misused(
            f"no known area begins with {said!r}",
            hint="store areas lists them; select one by its URI or whole uuid to make it known",
        )
    if len(candidates) > 1:
        listed = ", ".join(sorted(candidates))
        raise Misused(f"{said!r} may be any of {listed}", hint="give more of its characters")
    return candidates[0]


def _of_uri(said: str, base_url: str) -> str:
    try:
        found = urlsplit(said)
    except ValueError:
        raise _no_uri(said) from None
    if found.scheme in ("http", "https"):
        return _of_ours(said, base_url)
    parts = _CLOUD.fullmatch(found.path)
    if found.scheme not in ("s3", "gs") or not found.netloc or parts is None:
        raise _no_uri(said)
    return _checked(parts["uuid"], said)


def _of_ours(said: str, base_url: str) -> str:
    parts = _OURS.fullmatch(said)
    if parts is None:
        raise _no_uri(said)
    base = normal_url(parts["base"])
    if base != normal_url(base_url):
        raise Misused(
            f"{said} is an area of another store than {base_url}",
            hint=f"name that one with --url {base}, or with --profile",
        )
    return _checked(parts["uuid"], said)


def _checked(uuid: str, said: str) -> str:
    lower = uuid.lower()
    if not _UUID.fullmatch(lower):
        raise _no_uri(said)
    return lower


def _no_uri(said: str) -> Misused:
    return Misused(
        f"{said!r} is no URI of an upload area",
        hint="it looks like https://store.example/v1/area/UUID/ or s3://BUCKET/areas/UUID/",
    )


def _shared(one: str, other: str) -> int:
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))
