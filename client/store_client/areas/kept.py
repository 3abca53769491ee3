"""The upload areas that a user knows in one store, and which of them is selected.

<home>/areas/<key of URL>.json   {"selected": UUID, "areas": {UUID: {"uri": …, "added": …}}}
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from store_client.areas.naming import aliases, uuid_of
from store_client.configuration import Configuration
from store_client.errors import Misused
from store_client.private_files import locked, read_json, write_json


@dataclass(frozen=True, slots=True)
class Known:
    """An area that was selected once; `added` is the STORE_VERSION of that moment."""

    uuid: str
    uri: str
    alias: str
    added: str
    selected: bool


def known(config: Configuration) -> tuple[Known, ...]:
    """Every known area, the one that was added last at the end."""
    kept = read_json(config.areas)
    areas = _areas(kept)
    short = aliases(areas)
    made = [
        Known(uuid, entry["uri"], short[uuid], entry["added"], uuid == kept.get("selected"))
        for uuid, entry in areas.items()
    ]
    return tuple(sorted(made, key=lambda area: (area.added, area.uuid)))


def find(config: Configuration, text: str) -> Known:
    """The area that a URI, a uuid or an alias means; of one that is not known, its uuid and URI."""
    areas = known(config)
    for area in areas:
        if text.strip().rstrip("/") == area.uri.rstrip("/"):
            return area
    uuid = uuid_of(text, [area.uuid for area in areas], base_url=config.url)
    for area in areas:
        if area.uuid == uuid:
            return area
    uri = f"{text.strip().rstrip('/')}/" if "://" in text else ""
    return Known(uuid, uri, uuid, "", selected=False)


def selected(config: Configuration) -> Known:
    """The selected area; Misused when there is none."""
    for area in known(config):
        if area.selected:
            return area
    raise Misused("no upload area is selected", hint="store select URI, or store select --new")


def chosen(config: Configuration, text: str | None) -> Known:
    """The area that is meant, the selected one when nothing is said."""
    return find(config, text) if text else selected(config)


def select(config: Configuration, uuid: str, *, uri: str, now: str) -> None:
    """Know an area from now on, and work with it."""
    with locked(config.areas):
        areas = _areas(read_json(config.areas))
        before = areas.get(uuid, {"added": now})
        areas[uuid] = {"uri": uri, "added": before["added"]}
        write_json(config.areas, {"selected": uuid, "areas": areas})


def forget(config: Configuration, uuid: str) -> None:
    """Know it no longer; what lies in it stays there."""
    with locked(config.areas):
        kept = read_json(config.areas)
        areas = _areas(kept)
        if uuid not in areas:
            raise Misused(f"area {uuid} is not known", hint="store areas lists those that are")
        del areas[uuid]
        chosen_now = kept.get("selected")
        write_json(
            config.areas,
            {"selected": None if chosen_now == uuid else chosen_now, "areas": areas},
        )


def _areas(kept: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Those entries of the file that can be used."""
    found = kept.get("areas")
    entries = found.items() if isinstance(found, dict) else ()
    return {
        uuid: {"uri": entry["uri"], "added": entry["added"]}
        for uuid, entry in entries
        if isinstance(entry, dict)
        and isinstance(entry.get("uri"), str)
        and isinstance(entry.get("added"), str)
    }
