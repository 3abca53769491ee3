"""Validate a folder that is to become a bundle."""

import os
import stat
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from store_client.checksums import file_sha256
from store_client.content_types import METADATA, is_metadata
from store_client.errors import Misused
from store_client.local_files import group_by_folder, walk_files
from store_client.names import fold_name, name_fault, parent_folders
from store_client.validation.documents import validate_file
from store_client.validation.findings import WARNING, Finding, ValidationReport, sort_findings
from store_client.validation.schemas import NO_SCHEMAS, SchemaSet

MAX_FILE = 5 * 1024**4
"""Bytes of a file that an upload area takes, unless the operators set another limit."""


class _FoundFile(NamedTuple):
    """A readable file of the folder."""

    name: str
    path: str
    size: int


@dataclass(slots=True)
class _FolderScan:
    """What a walk through the folder found."""

    root: str
    findings: list[Finding]
    files: list[_FoundFile]

    def run(self) -> None:
        """Find all files, and what cannot be read."""
        for path, name in walk_files(self.root, leave_out=self._leave_out, fail=self._fail):
            try:
                found = os.stat(path)
            except OSError as error:
                is_link = os.path.islink(path)
                reason = "is a broken link" if is_link else f"cannot be read: {error.strerror}"
                self.findings.append(Finding(name, reason))
                continue
            if not stat.S_ISREG(found.st_mode):
                self.findings.append(Finding(name, "is not a file"))
            elif not os.access(path, os.R_OK):
                self.findings.append(Finding(name, "is not readable"))
            else:
                self.files.append(_FoundFile(name, path, found.st_size))
        self.files.sort()

    def report(self, findings: Sequence[Finding], validated: int) -> ValidationReport:
        """The report of all files with these findings."""
        size = sum(file.size for file in self.files)
        return ValidationReport(sort_findings(findings), len(self.files), size, validated)

    def _leave_out(self, path: str, reason: str) -> None:
        self.findings.append(Finding(self._name(path), f"{reason}, and left out", WARNING))

    def _fail(self, path: str, error: Misused) -> None:
        self.findings.append(Finding(self._name(path), str(error)))

    def _name(self, path: str) -> str:
        return os.path.relpath(path, self.root).replace(os.sep, "/")


def validate_folder(
    folder: Path,
    schemas: SchemaSet = NO_SCHEMAS,
    *,
    indexed: Sequence[str] = METADATA,
    max_file: int = MAX_FILE,
) -> ValidationReport:
    """Find everything that is wrong with a folder; paths in findings are names in the bundle.

    indexed: shell patterns of names that are metadata.
    """
    scan = _scan_folder(folder)
    before = schemas.validated
    findings = [*scan.findings, *_check_names(scan.files)]
    findings += _check_bundle(scan.files, schemas, indexed, max_file)
    return scan.report(findings, schemas.validated - before)


def validate_each_folder(
    directory: Path,
    schemas: SchemaSet = NO_SCHEMAS,
    *,
    indexed: Sequence[str] = METADATA,
    max_file: int = MAX_FILE,
) -> ValidationReport:
    """Find everything that is wrong with a directory whose folders are to become bundles each."""
    scan = _scan_folder(directory)
    before = schemas.validated
    findings = [*scan.findings, *_check_names(scan.files)]
    files = {file.name: file for file in scan.files}
    grouped, stray = group_by_folder(files)
    findings += [Finding(name, "lies beside the folders that become bundles") for name in stray]
    for label, names in grouped.items():
        prefix = f"{label}/" if label else ""
        own = [files[name]._replace(name=name.removeprefix(prefix)) for name in names]
        for found in _check_bundle(own, schemas, indexed, max_file):
            findings.append(replace(found, path=prefix + found.path))
    return scan.report(findings, schemas.validated - before)


def _scan_folder(folder: Path) -> _FolderScan:
    scan = _FolderScan(str(folder), [], [])
    scan.run()
    if not scan.files and not scan.findings:
        scan.findings.append(Finding(str(folder), "has no files"))
    return scan


def _check_bundle(
    files: Sequence[_FoundFile], schemas: SchemaSet, indexed: Sequence[str], max_file: int
) -> list[Finding]:
    """What is wrong with the content of the files of one bundle."""
    findings = list(_find_equal_files(files))
    for file in files:
        findings += _check_file(file, schemas, indexed, max_file)
    return findings


def _check_file(
    file: _FoundFile, schemas: SchemaSet, indexed: Sequence[str], max_file: int
) -> list[Finding]:
    if file.size > max_file:
        return [Finding(file.name, f"is larger than the store takes ({max_file} bytes)")]
    if not is_metadata(file.name, indexed):
        return [] if file.size else [Finding(file.name, "is empty", WARNING)]
    return validate_file(file.name, Path(file.path), schemas)


def _check_names(files: Sequence[_FoundFile]) -> Iterator[Finding]:
    by_case: dict[str, str] = {}
    by_form: dict[str, str] = {}
    for file in files:
        if fault := name_fault(file.name):
            yield Finding(file.name, fault)
        same = by_form.setdefault(unicodedata.normalize("NFC", file.name), file.name)
        twin = by_case.setdefault(fold_name(file.name), file.name)
        if same != file.name:
            yield Finding(file.name, f"differs from {same!r} only in its Unicode normalization")
        elif twin != file.name:
            message = f"differs from {twin!r} only in case: some file systems cannot have both"
            yield Finding(file.name, message, WARNING)
    for file in files:
        if parent_folders(unicodedata.normalize("NFC", file.name)) & by_form.keys():
            yield Finding(file.name, "lies in a folder that has the name of a file")


def _find_equal_files(files: Sequence[_FoundFile]) -> Iterator[Finding]:
    """Warn of files with the same content; only files of one size are read."""
    by_size = defaultdict[int, list[_FoundFile]](list)
    for file in files:
        by_size[file.size].append(file)
    for size, alike in by_size.items():
        if size == 0 or len(alike) == 1:
            continue
        first: dict[str, str] = {}
        for file in alike:
            try:
                twin = first.setdefault(file_sha256(Path(file.path)), file.name)
            except OSError:
                continue  # which is found elsewhere
            if twin != file.name:
                yield Finding(file.name, f"has the same content as {twin}", WARNING)
