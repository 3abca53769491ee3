"""The upload areas that a user knows, their aliases, and which one is selected.

An alias is a prefix of a uuid that no other known area has.

    <home>/areas/<key of URL>.json   {"selected": UUID, "areas": {UUID: {"uri": …, "added": …}}}
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from store_client.atomic_files import lock_file, read_json, write_json
from store_client.configuration import Configuration, normalize_url
from store_client.errors import Misused
from store_client.identifiers import is_uuid

SELECT_HINT = "store area select URI, or store area select --new to open one"
SHORTEST = 4
"""Characters that an alias has at least, so that it does not change with every new area."""

_BEGINNING = re.compile(r"[0-9a-f-]{1,36}")
_CLOUD = re.compile(r"/(?:.*/)?areas?/(?P<uuid>[^/]+)/?")
_OURS = re.compile(r"(?P<base>.*?)(?:/v1)?/area/(?P<uuid>[^/]+)/?")


def shortest_aliases(uuids: Iterable[str]) -> dict[str, str]:
    """The shortest prefix of each uuid that no other uuid has."""
    found = sorted(set(uuids))
    made = {}
    for at, uuid in enumerate(found):
        neighbours = found[max(0, at - 1) : at] + found[at + 1 : at + 2]
        length = SHORTEST
        while length < len(uuid) and any(one.startswith(uuid[:length]) for one in neighbours):
            length += 1
        made[uuid] = uuid[:length]
    return made


def resolve_uuid(text: str, known: Sequence[str], *, base_url: str) -> str:
    """Resolve a URI, uuid or alias to the uuid of an area; Misused if none or several match."""
    said = text.strip()
    if "://" in said:
        return _resolve_uri(said, base_url)
    lower = said.lower()
    if is_uuid(lower):
        return lower
    return _resolve_alias(said, [uuid for uuid in known if uuid.startswith(lower)])


def _resolve_alias(said: str, candidates: Sequence[str]) -> str:
    if not _BEGINNING.fullmatch(said.lower()):
        raise Misused(
            f"{said!r} is not an area's URI, uuid or alias",
            hint="to list them: store area list",
        )
    if not candidates:
        raise Misused(
            f"no known area begins with {said!r}",
            hint="select it by its URI or whole uuid; known ones: store area list",
        )
    if len(candidates) > 1:
        listed = ", ".join(sorted(candidates))
        raise Misused(f"{said!r} may be any of {listed}", hint="give more of its characters")
    return candidates[0]


def _resolve_uri(said: str, base_url: str) -> str:
    try:
        found = urlsplit(said)
    except ValueError:
        raise _bad_uri(said) from None
    if found.scheme in ("http", "https"):
        return _resolve_http_uri(said, base_url)
    parts = _CLOUD.fullmatch(found.path)
    if found.scheme not in ("s3", "gs") or not found.netloc or parts is None:
        raise _bad_uri(said)
    return _check_uuid(parts["uuid"], said)


def _resolve_http_uri(said: str, base_url: str) -> str:
    parts = _OURS.fullmatch(said)
    if parts is None:
        raise _bad_uri(said)
    base = normalize_url(parts["base"])
    if base != normalize_url(base_url):
        raise Misused(
            f"{said} is an area of another store than {base_url}",
            hint=f"name that one with --url {base}, or with --profile",
        )
    return _check_uuid(parts["uuid"], said)


def _check_uuid(uuid: str, said: str) -> str:
    if not is_uuid(uuid):
        raise _bad_uri(said)
    return uuid.lower()


def _bad_uri(said: str) -> Misused:
    return Misused(
        f"{said!r} is not the URI of an upload area",
        hint="it looks like https://store.example/v1/area/UUID/ or s3://BUCKET/areas/UUID/",
    )


@dataclass(frozen=True, slots=True)
class KnownArea:
    """An area that was selected before; `added` is the STORE_VERSION of the first time."""

    uuid: str
    uri: str
    alias: str
    added: str
    selected: bool


def list_known(config: Configuration) -> tuple[KnownArea, ...]:
    """All known areas, the one added last at the end."""
    kept = read_json(config.areas)
    areas = _parse_areas(kept)
    short = shortest_aliases(areas)
    made = [
        KnownArea(uuid, entry["uri"], short[uuid], entry["added"], uuid == kept.get("selected"))
        for uuid, entry in areas.items()
    ]
    return tuple(sorted(made, key=lambda area: (area.added, area.uuid)))


def find_area(config: Configuration, text: str) -> KnownArea:
    """Find the area of a URI, uuid or alias; an unknown area has only its uuid and URI."""
    areas = list_known(config)
    for area in areas:
        if text.strip().rstrip("/") == area.uri.rstrip("/"):
            return area
    uuid = resolve_uuid(text, [area.uuid for area in areas], base_url=config.url)
    for area in areas:
        if area.uuid == uuid:
            return area
    uri = f"{text.strip().rstrip('/')}/" if "://" in text else ""
    return KnownArea(uuid, uri, uuid, "", selected=False)


def selected_area(config: Configuration) -> KnownArea:
    """The selected area; Misused when there is none."""
    for area in list_known(config):
        if area.selected:
            return area
    raise Misused("no upload area is selected", hint=SELECT_HINT)


def choose_area(config: Configuration, text: str | None) -> KnownArea:
    """The area of this URI, uuid or alias, or the selected one if there is no text."""
    return find_area(config, text) if text else selected_area(config)


def select_area(config: Configuration, uuid: str, *, uri: str, now: str) -> None:
    """Remember an area, and select it."""
    with lock_file(config.areas):
        areas = _parse_areas(read_json(config.areas))
        before = areas.get(uuid, {"added": now})
        areas[uuid] = {"uri": uri, "added": before["added"]}
        write_json(config.areas, {"selected": uuid, "areas": areas})


def forget_area(config: Configuration, uuid: str) -> None:
    """Remove an area from the known ones; its files stay in the store."""
    with lock_file(config.areas):
        kept = read_json(config.areas)
        areas = _parse_areas(kept)
        if uuid not in areas:
            raise Misused(
                f"area {uuid} is not known", hint="to list the known ones: store area list"
            )
        del areas[uuid]
        chosen_now = kept.get("selected")
        write_json(
            config.areas,
            {"selected": None if chosen_now == uuid else chosen_now, "areas": areas},
        )


def _parse_areas(kept: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The valid entries of the file."""
    found = kept.get("areas")
    entries = found.items() if isinstance(found, dict) else ()
    return {
        uuid: {"uri": entry["uri"], "added": entry["added"]}
        for uuid, entry in entries
        if isinstance(entry, dict)
        and isinstance(entry.get("uri"), str)
        and isinstance(entry.get("added"), str)
    }
