"""Open the operator's metadata schemas: JSON Schema by patterns of file names.

The setting names a JSON file like `{"*.json": "any.json", "assay_*.json": "assays/assay.json"}`,
whose paths are relative to it. Schemas may refer to each other by relative path or by `$id`;
nothing is fetched from the network.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, unquote

import jsonschema_rs

from config import SettingsError
from storage import json_codec
from storage.protocols import SchemaFault

VARIABLE = "STORE_METADATA_SCHEMAS"
BASE = "schema:///"
"""Base of the URIs of files, by their paths below the folder."""
MAX_MESSAGE = 300
"""Characters of one fault, which quotes values of the file."""


@dataclass(frozen=True)
class JsonSchema:
    """A compiled schema for the metadata files whose names match a shell pattern."""

    pattern: str
    name: str
    documents: Mapping[str, Any]
    validator: jsonschema_rs.Validator

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the schema with all that it refers to."""
        text = json_codec.encode([self.name, dict(self.documents)], sort_keys=True)
        return hashlib.sha256(text).hexdigest()

    def matches(self, name: str) -> bool:
        """Return whether a file's name matches, with or without its folders."""
        base = name.rpartition("/")[2]
        return fnmatchcase(name, self.pattern) or fnmatchcase(base, self.pattern)

    def find_faults(self, value: Any, *, most: int) -> list[SchemaFault]:
        """Return at most `most` faults of a value; only the first one takes little time."""
        if self.validator.is_valid(value):
            return []
        if most == 1:
            try:
                self.validator.validate(value)
            except jsonschema_rs.ValidationError as error:
                return [_describe_fault(error)]
        return [_describe_fault(one) for one in islice(self.validator.iter_errors(value), most)]


def _describe_fault(error: jsonschema_rs.ValidationError) -> SchemaFault:
    pointer = "".join(json_codec.pointer_step(step) for step in error.instance_path)
    return SchemaFault(pointer, _shorten(error.message))


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 1]}…"


def open_metadata_schemas(setting: str) -> tuple[JsonSchema, ...]:
    """Read and compile all schemas; SettingsError names the file that is wrong."""
    path = Path(setting)
    patterns = _read_json(path)
    if not isinstance(patterns, dict) or not patterns:
        raise SettingsError(f"{VARIABLE}: {path}: must be an object of patterns and schema files")
    folder = path.parent.absolute()
    return tuple(_open_schema(folder, pattern, name) for pattern, name in patterns.items())


def _open_schema(folder: Path, pattern: str, name: Any) -> JsonSchema:
    if not pattern or not isinstance(name, str) or not _is_inside(name):
        raise SettingsError(
            f"{VARIABLE}: {pattern!r}: must be the path of a schema file in {folder} (got {name!r})"
        )
    files = _SchemaFiles(folder, name)
    try:
        validator = jsonschema_rs.validator_for(
            files.read(name),
            base_uri=BASE + quote(name),
            retriever=files.retrieve,
            validate_formats=True,
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        reason = files.fault or f"{folder / name}: {getattr(error, 'message', '') or error}"
        raise SettingsError(f"{VARIABLE}: {_shorten(reason)}") from error
    return JsonSchema(pattern, name, files.documents, validator)


@dataclass
class _SchemaFiles:
    """The files of a folder; `documents` are those that one schema uses, by name."""

    folder: Path
    root: str
    documents: dict[str, Any] = field(default_factory=dict)
    fault: str = ""
    """What is wrong with a reference; the library shortens the error."""

    def read(self, name: str) -> Any:
        """Read a schema file, and check it against its meta-schema."""
        path = self.folder / name
        schema = _read_json(path)
        if not isinstance(schema, dict | bool):
            raise SettingsError(f"{VARIABLE}: {path}: must be a JSON Schema, an object")
        try:
            jsonschema_rs.meta.validate(schema)
        except (jsonschema_rs.ValidationError, ValueError) as error:
            at = "/".join(map(str, getattr(error, "instance_path", ())))
            reason = _shorten(getattr(error, "message", "") or str(error))
            raise SettingsError(
                f"{VARIABLE}: {path}: not a JSON Schema: {reason} (at /{at})"
            ) from error
        self.documents[name] = schema
        return schema

    def retrieve(self, uri: str) -> Any:
        """Return the file that a reference names by its path or its `$id`."""
        try:
            name = unquote(uri.removeprefix(BASE)) if uri.startswith(BASE) else self._find_id(uri)
            if not name or not _is_inside(name) or not (self.folder / name).is_file():
                raise SettingsError(
                    f"{VARIABLE}: {self.folder / self.root}: refers to {uri.removeprefix(BASE)},"
                    " which is no path or $id of a schema there; nothing is fetched from the"
                    " network"
                )
            return self.read(name)
        except SettingsError as error:
            self.fault = str(error).removeprefix(f"{VARIABLE}: ")
            raise

    def _find_id(self, uri: str) -> str:
        """Return the name of the file with this `$id`, in the folder or one below."""
        for path in sorted((*self.folder.glob("*.json"), *self.folder.glob("*/*.json"))):
            try:
                schema = json_codec.decode(path.read_bytes())
            except (OSError, ValueError):
                continue  # A file that no schema refers to need not be one.
            if isinstance(schema, dict) and _strip_fragment(schema.get("$id")) == _strip_fragment(
                uri
            ):
                return path.relative_to(self.folder).as_posix()
        return ""


def _strip_fragment(uri: Any) -> str:
    return str(uri or "").partition("#")[0]


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts


def _read_json(path: Path) -> Any:
    try:
        return json_codec.decode(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"{VARIABLE}: {path}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"{VARIABLE}: {path}: not JSON: {error}") from error
