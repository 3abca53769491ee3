"""What kind of content a file has, by its name alone; the same on every machine.

A packed file is what it is packed as, whatever lies in it: bytes are described, not their meaning.
"""

import mimetypes
from collections.abc import Iterable
from fnmatch import fnmatchcase

DEFAULT = "application/octet-stream"
METADATA = "application/json"
"""What the index reads; any other content type of metadata would be left out of it."""

_OF_ENDING = {
    "json": METADATA,
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
    "zarr": DEFAULT,
    "bam": DEFAULT,
    "bai": DEFAULT,
    "cram": DEFAULT,
    "crai": DEFAULT,
    "bcf": DEFAULT,
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
    "npy": DEFAULT,
    "npz": "application/zip",
    "rds": DEFAULT,
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


def content_type(name: str, *, indexed: bool = False) -> str:
    """Of a file of this name."""
    if indexed:
        return METADATA
    base = name.rpartition("/")[2]
    # The dot of a hidden file begins no ending.
    stem, dot, ending = base.rpartition(".")
    if not dot or not stem:
        return DEFAULT
    found = _OF_ENDING.get(ending.lower())
    return found or _STANDARD.types_map[True].get(f".{ending.lower()}", DEFAULT)


def is_metadata(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name, with or without its folders, fits one of the patterns."""
    base = name.rpartition("/")[2]
    return any(fnmatchcase(name, one) or fnmatchcase(base, one) for one in patterns)
