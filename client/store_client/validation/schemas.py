"""JSON Schemas: of files, of the store's setting, and those that documents name themselves.

Nothing is fetched from the network, except the schemas of the store by its own operation.
"""

import importlib
import json
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit
from urllib.request import url2pathname

from store_client.content_types import is_metadata
from store_client.errors import Misused, NotFound, StoreError, name_os_errors
from store_client.http.session import HttpSession
from store_client.progress import format_size
from store_client.validation.findings import WARNING, Finding

STORE_BASE = "schema:///"
"""Base of the URIs of the store's schemas, by their names."""
MAX_SCHEMA = 16_000_000
"""Bytes of one schema."""
MAX_MESSAGE = 300
"""Characters of one fault, which quotes values of the document."""
_MEMBERS = ("describedBy", "$schema")
"""Members by which a document names its schema."""


class Unresolved(Misused):
    """A reference names nothing that is here."""


@dataclass(frozen=True, slots=True)
class CompiledSchema:
    """A schema, ready to validate values."""

    label: str
    validator: Any

    def find_faults(self, value: Any, *, most: int) -> list[tuple[str, str]]:
        """JSON pointer and message of at most `most` faults; only the first takes little time."""
        if self.validator.is_valid(value):
            return []
        errors: list[Any] = []
        if most == 1:
            try:
                self.validator.validate(value)
            except ValueError as error:
                errors.append(error)
        else:
            errors += islice(self.validator.iter_errors(value), most)
        return [(_format_pointer(one.instance_path), _shorten(one.message)) for one in errors]


def _format_pointer(steps: Sequence[str | int]) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 1]}…"


@dataclass(frozen=True, slots=True)
class SchemaRule:
    """A schema for the metadata files whose names match a shell pattern."""

    pattern: str
    schema: CompiledSchema


@dataclass(slots=True)
class SchemaSet:
    """Schemas by rules, and those that documents name.

    folder: where schemas that documents name are looked for, too.
    local: whether documents may name their schemas.
    """

    rules: Sequence[SchemaRule] = ()
    folder: Path | None = None
    local: bool = True
    validated: int = 0
    """Documents so far that a schema was found for."""
    _named: dict[Path, CompiledSchema | str] = field(default_factory=dict)

    def has_rule(self, name: str) -> bool:
        """Whether a rule is for documents of this name."""
        return any(is_metadata(name, (rule.pattern,)) for rule in self.rules)

    def find_for(
        self, name: str, value: Any, *, path: Path | None, shown: str
    ) -> tuple[list[CompiledSchema], list[Finding]]:
        """The schemas of a document, and what is wrong with the one that it names."""
        found = [rule.schema for rule in self.rules if is_metadata(name, (rule.pattern,))]
        findings: list[Finding] = []
        if self.local and isinstance(value, dict):
            for member in _MEMBERS:
                named = self._find_named(value.get(member), path)
                if isinstance(named, CompiledSchema):
                    found.append(named)
                elif named:
                    findings.append(Finding(shown, named, WARNING, pointer=f"/{member}"))
        self.validated += bool(found)
        return found, findings

    def _find_named(self, said: Any, path: Path | None) -> CompiledSchema | str | None:
        """The local schema that a document names; a text says why it cannot be used."""
        if not isinstance(said, str) or not _is_reference(said):
            return None
        at = self._locate(said, path)
        if at is None:
            is_local = not urlsplit(said).scheme and (path is not None or self.folder is not None)
            return f"there is no schema {said!r} here" if is_local else None
        if at not in self._named:
            try:
                self._named[at] = compile_file(at, self.folder)
            except Misused as error:
                self._named[at] = str(error)
        return self._named[at]

    def _locate(self, said: str, path: Path | None) -> Path | None:
        parts = urlsplit(said)
        if parts.scheme:
            return _find_id(said.partition("#")[0], self.folder) if self.folder else None
        folders = [*([path.parent] if path else []), *([self.folder] if self.folder else [])]
        places = [folder / unquote(parts.path) for folder in folders if parts.path]
        return next((place.resolve() for place in places if _is_file(place)), None)


NO_SCHEMAS = SchemaSet(local=False)


def _is_reference(text: str) -> bool:
    """Whether a text can be read as a URL or path."""
    try:
        return bool(urlsplit(text).geturl())
    except ValueError:
        return False


def _is_file(place: Path) -> bool:
    try:
        return place.is_file()
    except (OSError, ValueError):
        return False


def parse_rules(given: Sequence[str], folder: Path | None = None) -> list[SchemaRule]:
    """The rules of `--schema FILE`, for all metadata, or `--schema PATTERN=FILE`; Misused."""
    rules = []
    for text in given:
        pattern, equals, name = text.partition("=")
        if not equals or _is_file(Path(text)):
            pattern, name = "*", text
        if not pattern or not name:
            raise Misused(f"--schema: {text!r} is neither FILE nor PATTERN=FILE")
        rules.append(SchemaRule(pattern, compile_file(Path(name), folder)))
    return rules


def fetch_rules(session: HttpSession) -> list[SchemaRule]:
    """The rules of the store's setting; none for a store of an earlier release."""
    try:
        answer = session.request("GET", "/v1/schemas").json()
        documents = dict(answer["documents"])
        listed = [(str(one["pattern"]), str(one["name"])) for one in answer["schemas"]]
    except NotFound:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{session.base_url} lists no schemas: {error!r}") from error
    ids = {str(one["$id"]): name for name, one in documents.items() if _has_id(one)}

    def retrieve(uri: str) -> Any:
        name = ids.get(uri) or unquote(uri.removeprefix(STORE_BASE))
        if name not in documents:
            raise Unresolved(f"the store's schemas refer to {uri}, which it does not list")
        return documents[name]

    return [
        SchemaRule(pattern, _compile(name, retrieve(name), STORE_BASE + quote(name), retrieve))
        for pattern, name in listed
    ]


def compile_file(path: Path, folder: Path | None = None) -> CompiledSchema:
    """The schema of a file; it may refer to files, and to `$id`s beside it or in `folder`."""
    path = path.absolute()

    def retrieve(uri: str) -> Any:
        if urlsplit(uri).scheme == "file":
            return _read_json(Path(url2pathname(urlsplit(uri).path)))
        places = (path.parent, *([folder] if folder else []))
        found = next((at for place in places if (at := _find_id(uri, place))), None)
        if found is None:
            raise Unresolved(
                f"{path} refers to {uri}, which is no local file; nothing is fetched from the"
                " network"
            )
        return _read_json(found)

    return _compile(str(path), _read_json(path), path.as_uri(), retrieve)


def _find_id(uri: str, folder: Path) -> Path | None:
    """The schema file of a folder that has this `$id`."""
    for path in sorted(folder.glob("*.json")):
        try:
            schema = _read_json(path)
        except Misused:
            continue  # A file beside schemas need not be one.
        if _has_id(schema) and str(schema["$id"]).rstrip("#") == uri.rstrip("#"):
            return path
    return None


def _has_id(schema: Any) -> bool:
    return isinstance(schema, Mapping) and isinstance(schema.get("$id"), str)


def _read_json(path: Path) -> Any:
    with name_os_errors(f"read the schema {path}", Misused):
        found = path.stat()
        # Schemas of other people may refer to a device or a pipe, which never ends.
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_SCHEMA:
            raise Misused(
                f"{path}: a schema must be a regular file of at most {format_size(MAX_SCHEMA)}"
            )
        data = path.read_bytes()
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Misused(f"the schema {path} is not JSON: {error}") from error


def _compile(label: str, schema: Any, base: str, retrieve: Callable[[str], Any]) -> CompiledSchema:
    if not isinstance(schema, dict | bool):
        raise Misused(f"{label} is not a JSON Schema: it must be an object")
    library: Any = importlib.import_module("jsonschema_rs")
    failed: list[Misused] = []

    def read(uri: str) -> Any:
        try:
            return retrieve(uri)
        except Misused as error:
            failed.append(error)
            raise

    try:
        made = library.validator_for(schema, base_uri=base, retriever=read, validate_formats=True)
    except (library.ValidationError, library.ReferencingError, ValueError) as error:
        if failed:
            raise failed[0] from error
        reason = _shorten(getattr(error, "message", "") or str(error))
        at = _format_pointer(getattr(error, "instance_path", ()))
        raise Misused(f"{label} is not a JSON Schema: {reason} (at {at or '/'})") from error
    return CompiledSchema(label, made)
