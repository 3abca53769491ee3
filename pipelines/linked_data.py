"""Documents that describe bundles to other programs: RO-Crate metadata."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from storage.model import BundleVersion

CRATE_METADATA = "ro-crate-metadata.json"
CRATE = "https://w3id.org/ro/crate/1.1"


@dataclass(frozen=True, slots=True)
class Publisher:
    """The store as the publisher of its bundles, by its settings."""

    name: str
    url: str
    """Its base URL."""
    license: str
    """The license of its data: a URL, a text, or empty if it is not known."""


NO_LICENSE = "The store states no license. Ask the depositor before you use the data."


@dataclass(frozen=True, slots=True)
class CrateFile:
    """A file of a crate: its path, its name in the bundle, and what is known of its bytes."""

    path: str
    name: str
    content_type: str
    size: int
    sha256: str


def describe_crate(
    bundle: BundleVersion, files: Iterable[CrateFile], publisher: Publisher
) -> Mapping[str, Any]:
    """Return the metadata of an RO-Crate 1.1, as JSON-LD."""
    described = [
        {
            "@id": quote(file.path),
            "@type": "File",
            "name": file.name,
            "encodingFormat": file.content_type,
            "contentSize": str(file.size),
            "sha256": file.sha256,
        }
        for file in files
    ]
    about = {
        "@id": CRATE_METADATA,
        "@type": "CreativeWork",
        "conformsTo": {"@id": CRATE},
        "about": {"@id": "./"},
    }
    organization = {
        "@id": publisher.url,
        "@type": "Organization",
        "name": publisher.name,
        "url": publisher.url,
    }
    license_, license_entities = _describe_license(publisher.license)
    root = {
        "@id": "./",
        "@type": "Dataset",
        "identifier": str(bundle.fqid),
        "name": f"Bundle {bundle.fqid}",
        "description": f"Version {bundle.fqid.version} of the bundle {bundle.fqid.uuid}.",
        "datePublished": datetime.fromisoformat(bundle.fqid.version).isoformat(),
        "license": license_,
        "publisher": {"@id": publisher.url},
        "hasPart": [{"@id": file["@id"]} for file in described],
    }
    return {
        "@context": [f"{CRATE}/context", {"sha256": "https://schema.org/sha256"}],
        "@graph": [about, root, organization, *license_entities, *described],
    }


def _describe_license(text: str) -> tuple[Any, list[dict[str, str]]]:
    """Return the value of `license`, and the entities that it refers to."""
    if "://" not in text:
        return text or NO_LICENSE, []
    entity = {
        "@id": text,
        "@type": "CreativeWork",
        "name": text,
        "description": f"The license of the data, {text}",
    }
    return {"@id": text}, [entity]
