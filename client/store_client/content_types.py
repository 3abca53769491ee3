"""Guess the content type of a file from its name, the same on every machine.

A compressed file has the type of its compression, whatever it contains.
"""

import mimetypes
from collections.abc import Iterable
from fnmatch import fnmatchcase

DEFAULT_TYPE = "application/octet-stream"
METADATA_TYPE = "application/json"
"""What the index reads; any other content type of metadata would be left out of it."""

_BY_EXTENSION = {
    "json": METADATA_TYPE,
    "jsonl": "application/x-ndjson",
    "ndjson": "application/x-ndjson",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "xml": "application/xml",
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "txt": "text/plain",
    "log": "text/plain",
    "md": "text/markdown",
    "htm": "text/html",
    "html": "text/html",
    "pdf": "application/pdf",
    "gz": "application/gzip",
    "tgz": "application/gzip",
    "bgz": "application/gzip",
    "bz2": "application/x-bzip2",
    "xz": "application/x-xz",
    "zst": "application/zstd",
    "zip": "application/zip",
    "tar": "application/x-tar",
    "7z": "application/x-7z-compressed",
    "h5": "application/x-hdf5",
    "hdf5": "application/x-hdf5",
    "h5ad": "application/x-hdf5",
    "loom": "application/x-hdf5",
    "parquet": "application/vnd.apache.parquet",
    "zarr": DEFAULT_TYPE,
    "bam": DEFAULT_TYPE,
    "bai": DEFAULT_TYPE,
    "cram": DEFAULT_TYPE,
    "crai": DEFAULT_TYPE,
    "bcf": DEFAULT_TYPE,
    "bed": "text/plain",
    "fa": "text/plain",
    "fasta": "text/plain",
    "fastq": "text/plain",
    "fq": "text/plain",
    "sam": "text/plain",
    "vcf": "text/plain",
    "gtf": "text/plain",
    "gff": "text/plain",
    "gff3": "text/plain",
    "mtx": "text/plain",
    "npy": DEFAULT_TYPE,
    "npz": "application/zip",
    "rds": DEFAULT_TYPE,
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "svg": "image/svg+xml",
    "tif": "image/tiff",
    "tiff": "image/tiff",
    "webp": "image/webp",
    "mp4": "video/mp4",
    "py": "text/x-python",
    "r": "text/plain",
    "sh": "text/plain",
    "js": "text/javascript",
    "css": "text/css",
}
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
