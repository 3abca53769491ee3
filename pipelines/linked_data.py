"""Documents that describe bundles to other programs: RO-Crate, schema.org, DataCite, DCAT."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from storage.model import FQID, BundleVersion, Replica

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
    license_ = _describe_license(publisher.license)
    root = {
        "@id": "./",
        "@type": "Dataset",
        "identifier": str(bundle.fqid),
        "name": f"Bundle {bundle.fqid}",
        "description": f"Version {bundle.fqid.version} of the bundle {bundle.fqid.uuid}.",
        "datePublished": datetime.fromisoformat(bundle.fqid.version).isoformat(),
        "license": {"@id": license_["@id"]},
        "publisher": {"@id": publisher.url},
        "hasPart": [{"@id": file["@id"]} for file in described],
    }
    return {
        "@context": [f"{CRATE}/context", {"sha256": "https://schema.org/sha256"}],
        "@graph": [about, root, organization, license_, *described],
    }


def _describe_license(text: str) -> Mapping[str, str]:
    """Return the entity of a license: a URL, a text, or the sentence that none is stated."""
    is_url = "://" in text
    return {
        "@id": text if is_url else "#license",
        "@type": "CreativeWork",
        "name": text or NO_LICENSE,
        "description": f"The license of the data, {text}" if is_url else text or NO_LICENSE,
    }


@dataclass(frozen=True, slots=True)
class Download:
    """A form in which all files of a bundle can be had: its name, content type and query."""

    name: str
    content_type: str
    query: Mapping[str, str]


def describe_dataset(
    bundle: BundleVersion,
    replica: Replica,
    publisher: Publisher,
    *,
    title: str,
    size: int,
    archives: Sequence[Download],
) -> Mapping[str, Any]:
    """Return a bundle version as a `schema.org/Dataset`, as JSON-LD.

    Empty values are left out. `size` is in bytes.
    """
    fqid, base = bundle.fqid, publisher.url
    read = {"version": fqid.version, "replica": replica}
    manifest = f"{base}/v1/bundles/{fqid.uuid}"
    page = _page_url(bundle.fqid, publisher)
    drs = f"drs://{urlsplit(base).netloc}/{fqid}"
    organization = {"@type": "Organization", "name": publisher.name, "url": base}
    distribution = [
        _describe_download("Manifest", "application/json", f"{manifest}?{urlencode(read)}"),
        *(
            _describe_download(
                one.name,
                one.content_type,
                f"{manifest}/archive?{urlencode({**read, **one.query})}",
            )
            for one in archives
        ),
        _describe_download("GA4GH DRS", "application/json", drs),
    ]
    dataset = {
        "@context": "https://schema.org/",
        "@type": "Dataset",
        "@id": page,
        "url": page,
        "identifier": str(fqid),
        "name": title,
        "description": _describe_content(bundle, publisher, size),
        "version": fqid.version,
        "datePublished": datetime.fromisoformat(fqid.version).isoformat(),
        "license": publisher.license,
        "publisher": organization,
        "includedInDataCatalog": {"@type": "DataCatalog", "name": publisher.name, "url": base},
        "distribution": distribution,
    }
    return {name: value for name, value in dataset.items() if value}


def _page_url(fqid: FQID, publisher: Publisher) -> str:
    return f"{publisher.url}/bundles/{fqid.uuid}?{urlencode({'version': fqid.version})}"


def make_default_title(fqid: FQID) -> str:
    """Return the title of a bundle whose metadata has none."""
    return f"Bundle {fqid.uuid}"


def _count_files(number: int) -> str:
    return f"{number} {'file' if number == 1 else 'files'}"


def _describe_content(bundle: BundleVersion, publisher: Publisher, size: int) -> str:
    content = f"{_count_files(bundle.file_count)}, {size} bytes"
    return _describe_version(bundle.fqid, publisher, content)


def _describe_version(fqid: FQID, publisher: Publisher, content: str) -> str:
    return f"Version {fqid.version} of the bundle {fqid.uuid} of {publisher.name}: {content}."


def _describe_download(name: str, content_type: str, url: str) -> Mapping[str, str]:
    return {
        "@type": "DataDownload",
        "name": name,
        "encodingFormat": content_type,
        "contentUrl": url,
    }


DATACITE = "http://datacite.org/schema/kernel-4"


def describe_datacite(
    bundle: BundleVersion, publisher: Publisher, *, title: str, size: int
) -> Mapping[str, Any]:
    """Return the DataCite metadata (4.5, JSON) of a bundle version, without a DOI.

    The creator is the store, as in citations: the store does not know the authors of the data.
    """
    version = bundle.fqid.version
    is_url = "://" in publisher.license
    rights = {"rights": publisher.license, **({"rightsUri": publisher.license} if is_url else {})}
    return {
        "schemaVersion": DATACITE,
        "types": {"resourceTypeGeneral": "Dataset", "resourceType": "Bundle"},
        "creators": [{"name": publisher.name, "nameType": "Organizational"}],
        "titles": [{"title": title}],
        "publisher": {"name": publisher.name},
        "publicationYear": version[:4],
        "dates": [{"date": version[:10], "dateType": "Issued"}],
        "version": version,
        "url": _page_url(bundle.fqid, publisher),
        "alternateIdentifiers": [
            {"alternateIdentifier": str(bundle.fqid), "alternateIdentifierType": "FQID"}
        ],
        "sizes": [_count_files(bundle.file_count), f"{size} bytes"],
        "descriptions": [
            {
                "description": _describe_content(bundle, publisher, size),
                "descriptionType": "Abstract",
            }
        ],
        "rightsList": [rights] if publisher.license else [],
    }


_DCAT_CONTEXT = {
    "dcat": "http://www.w3.org/ns/dcat#",
    "dct": "http://purl.org/dc/terms/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "hydra": "http://www.w3.org/ns/hydra/core#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
_MEDIA_TYPES = "https://www.iana.org/assignments/media-types"
_FILE_TYPES = {
    "application/x-tar": "http://publications.europa.eu/resource/authority/file-type/TAR"
}
"""Content types that IANA does not register, and what stands for them in DCAT-AP."""


@dataclass(frozen=True, slots=True)
class CatalogDataset:
    """A bundle version in a catalogue."""

    fqid: FQID
    title: str
    file_count: int
    archives: Sequence[Download]


def describe_catalog(
    publisher: Publisher,
    replica: Replica,
    datasets: Iterable[CatalogDataset],
    *,
    first_url: str,
    self_url: str,
    next_url: str | None,
) -> Mapping[str, Any]:
    """Return a page of a catalogue in DCAT 3 as JSON-LD; the next page is a Hydra link."""
    view = {
        "@id": self_url if self_url != first_url else f"{first_url}#page",
        "@type": "hydra:PartialCollectionView",
        "hydra:first": {"@id": first_url},
        **({"hydra:next": {"@id": next_url}} if next_url else {}),
    }
    return {
        "@context": _DCAT_CONTEXT,
        "@id": first_url,
        "@type": "dcat:Catalog",
        "dct:title": publisher.name,
        "dct:description": f"The bundles of {publisher.name}: versioned, immutable sets of files.",
        "dct:publisher": {
            **_refer_to_publisher(publisher),
            # Harvesters check the class without knowing that organizations are agents.
            "@type": ["foaf:Agent", "foaf:Organization"],
            "foaf:name": publisher.name,
        },
        "foaf:homepage": {"@id": f"{publisher.url}/", "@type": "foaf:Document"},
        "hydra:view": view,
        "dcat:dataset": [_describe_entry(publisher, replica, one) for one in datasets],
    }


def _refer_to_publisher(publisher: Publisher) -> Mapping[str, str]:
    """Return a reference to the organization, which is not its home page."""
    return {"@id": f"{publisher.url}/#publisher"}


def _describe_rights(license_: str) -> Mapping[str, Any]:
    """Return the license or, where it is a text, the rights of a dataset."""
    if "://" in license_:
        return {"dct:license": {"@id": license_, "@type": "dct:LicenseDocument"}}
    if license_:
        return {"dct:rights": {"@type": "dct:RightsStatement", "rdfs:label": license_}}
    return {}


def _describe_entry(
    publisher: Publisher, replica: Replica, dataset: CatalogDataset
) -> Mapping[str, Any]:
    fqid = dataset.fqid
    read = {"version": fqid.version, "replica": replica}
    manifest = f"{publisher.url}/v1/bundles/{fqid.uuid}"
    issued = datetime.fromisoformat(fqid.version).isoformat()
    page = _page_url(fqid, publisher)
    rights = _describe_rights(publisher.license)
    return {
        "@id": page,
        "@type": "dcat:Dataset",
        "dct:title": dataset.title,
        "dct:description": _describe_version(fqid, publisher, _count_files(dataset.file_count)),
        "dct:publisher": _refer_to_publisher(publisher),
        **rights,
        "dct:identifier": str(fqid),
        "dct:issued": {"@value": issued, "@type": "xsd:dateTime"},
        "dcat:version": fqid.version,
        "dcat:landingPage": {"@id": page, "@type": "foaf:Document"},
        # The profile for data portals, DCAT-AP, has the license at the distributions.
        "dcat:distribution": [
            {**_describe_distribution(one, url), **rights}
            for one, url in (
                (Download("Manifest", "application/json", read), manifest),
                *(
                    (replace(one, query={**read, **one.query}), f"{manifest}/archive")
                    for one in dataset.archives
                ),
            )
        ],
    }


def _describe_distribution(download: Download, base: str) -> Mapping[str, Any]:
    url = f"{base}?{urlencode(download.query)}"
    return {
        "@id": url,
        "@type": "dcat:Distribution",
        "dct:title": download.name,
        "dcat:accessURL": {"@id": url},
        "dcat:downloadURL": {"@id": url},
        **_describe_media_type(download.content_type),
    }


def _describe_media_type(content_type: str) -> Mapping[str, Any]:
    if content_type in _FILE_TYPES:
        return {"dct:format": {"@id": _FILE_TYPES[content_type], "@type": "dct:MediaTypeOrExtent"}}
    return {"dcat:mediaType": {"@id": f"{_MEDIA_TYPES}/{content_type}", "@type": "dct:MediaType"}}
