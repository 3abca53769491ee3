"""Guess the content type of a file from its name, the same on every machine.

A compressed file has the type of its compression, whatever it contains.
"""

import mimetypes
from collections.abc import Iterable
from fnmatch import fnmatchcase

DEFAULT_TYPE = "application/octet-stream"
METADATA_TYPE = "application/json"
"""What the index reads; any other content type of metadata would be left out of it."""

METADATA = ("*.json",)
"""Names of files that are metadata, if nothing else is said."""

_BY_TYPE = {
    "application/gzip": "gz tgz bgz",
    "application/vnd.apache.parquet": "parquet",
    "application/x-7z-compressed": "7z",
    "application/x-bzip2": "bz2",
    "application/x-hdf5": "h5 hdf5 h5ad loom",
    "application/x-ndjson": "jsonl ndjson",
    "application/x-tar": "tar",
    "application/x-xz": "xz",
    "application/xml": "xml",
    "application/yaml": "yaml yml",
    "application/zip": "zip npz",
    "application/zstd": "zst",
    "image/jpeg": "jpg jpeg",
    "image/tiff": "tif tiff",
    "image/webp": "webp",
    "text/javascript": "js",
    "text/markdown": "md",
    "text/plain": "txt log bed fa fasta fastq fq sam vcf gtf gff gff3 mtx r sh",
    "text/x-python": "py",
    DEFAULT_TYPE: "zarr bam bai cram crai bcf npy rds",
}
_BY_EXTENSION = {ending: kind for kind, endings in _BY_TYPE.items() for ending in endings.split()}
"""By the last ending of a name, in lower case."""

_STANDARD = mimetypes.MimeTypes(filenames=())
"""Python's own table for all others: what the system has installed is not asked."""


def guess_content_type(name: str, *, indexed: bool = False) -> str:
    """The content type of a file of this name."""
    if indexed:
        return METADATA_TYPE
    base = name.rpartition("/")[2]
    # The dot of a hidden file begins no ending.
    stem, dot, ending = base.rpartition(".")
    if not dot or not stem:
        return DEFAULT_TYPE
    found = _BY_EXTENSION.get(ending.lower())
    return found or _STANDARD.types_map[True].get(f".{ending.lower()}", DEFAULT_TYPE)


def is_metadata(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name matches one of the patterns, with or without its folders."""
    base = name.rpartition("/")[2]
    return any(fnmatchcase(name, one) or fnmatchcase(base, one) for one in patterns)
