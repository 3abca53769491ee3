"""Architecture rules checked on the syntax tree: layers, imports, sizes."""

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

CLIENT = "store_client"

MAY_IMPORT: dict[str, set[str]] = {
    "config": set(),
    "storage": {"config"},
    "pipelines": {"storage"},
    "auth": {"storage"},
    "workers": {"pipelines", "storage", "config"},
    "api": {"workers", "pipelines", "auth", "storage", "config"},
    "web": {"api", "workers", "pipelines", "auth", "storage", "config"},
    "ops": {"workers", "pipelines", "auth", "storage", "config"},
    "store_client": set(),
}
"""Imports go down only: a layer may import itself and these."""

ENQUEUE_ONLY = {"api", "ops", "web"}
"""Layers that may enqueue jobs but import no other worker code."""

PIPELINES_MAY_IMPORT = (
    "storage.errors",
    "storage.json_codec",
    "storage.model",
    "storage.protocols",
    "storage.keys",
    "storage.metrics",
    "storage.stores",
    "storage.catalog",
    "storage.crc32c",
    "storage.search.documents",
    "storage.search.evaluator",
    "storage.search.grammar",
    "storage.search.words",
)
"""Protocols, errors, formats and the query language, never a vendor's module."""

CLIENT_FLOORS = (
    "errors",
    "identifiers checksums names content_types progress atomic_files search",
    "local_files references webhooks",
    "configuration",
    "http",
    "definition",
    "auth",
    "calls",
    "client",
    "validation",
    "transfer",
    "areas downloads listener",
    "remote",
    "uploads",
    "library",
    "frames",
    "async_client",
    "cli",
    "",
)
"""Folders of `client/store_client/` and its own modules, from the ground up; above all of them the
package itself, by what it exports."""

ALLOWED_IN = {
    "boto3": {"storage", "store_client"},
    "botocore": {"storage", "store_client"},
    "obstore": {"storage"},
    "google": {"storage", "store_client"},
    "google_crc32c": {"storage", "store_client"},
    "sqlalchemy": {"storage"},
    "alembic": {"storage"},
    "opensearchpy": {"storage"},
    "redis": {"storage", "workers"},
    "opentelemetry": {"storage"},
    "psycopg": {"storage"},
    "jmespath": {"pipelines"},
    "jsonschema_rs": {"storage", "store_client"},
    "crcmod": {"storage"},
    "joserfc": {"auth", "store_client"},
    "authlib": {"auth"},
    "argon2": {"auth"},
    "httpcore": {"auth"},
    "cryptography": {"auth", "storage"},
    "dramatiq": {"workers"},
    "apscheduler": {"workers"},
    "aiohttp": {"workers"},
    "flask": {"api", "web"},
    "werkzeug": {"api", "web"},
    "markupsafe": {"api", "web"},
    "marshmallow": {"api", "web"},
    "markdown_it": {"web"},
    "nh3": {"web"},
    "msgspec": {"api", "auth", "pipelines"},
    "apispec": {"api"},
    "gunicorn": {"api"},
    "click": {"ops", "store_client"},
    "rich": {"ops", "store_client"},
}
"""Third-party packages that only some layers may import."""

SELECTS_ENGINES = "storage.engines"
"""Imports the engine that a setting's URL names, when it is opened."""

GENERIC_NAMES = re.compile(r"(utils?|helpers?|managers?|process_.*)")

LONGEST_FUNCTION = 60
P90_FUNCTION = 30
LONGEST_MODULE = 600

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Imported:
    """One import: the module that is named and where."""

    module: str
    line: int
    in_function: bool


@dataclass(frozen=True)
class Module:
    """One shipped module."""

    path: Path
    name: str
    tree: ast.Module
    lines: int

    @property
    def layer(self) -> str:
        return self.name.partition(".")[0]

    def functions(self) -> list[Function]:
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))


def shipped() -> list[Module]:
    return [module for layer in MAY_IMPORT for module in modules_of(layer)]


@functools.cache
def modules_of(layer: str) -> tuple[Module, ...]:
    paths = sorted(place_of(layer).rglob("*.py"))
    return tuple(read(path) for path in paths if "versions" not in path.parts)


def place_of(layer: str) -> Path:
    """The client is a distribution of its own, and its package lies one deeper."""
    return (ROOT / "client" if layer == CLIENT else ROOT) / layer


def read(path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] == "client" else parts
    name = ".".join(part for part in parts if part != "__init__")
    return Module(path, name, ast.parse(text), len(text.splitlines()))


def imports(module: Module) -> Iterator[Imported]:
    inside = {id(node) for function in module.functions() for node in ast.walk(function)}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Imported(alias.name, node.lineno, id(node) in inside)
        elif isinstance(node, ast.ImportFrom):
            for name in targets(node):
                yield Imported(name, node.lineno, id(node) in inside)


@functools.cache
def names_of_modules() -> frozenset[str]:
    return frozenset(module.name for module in shipped())


def targets(node: ast.ImportFrom) -> Iterator[str]:
    """`from a import b` names the module a.b if there is one, else a."""
    for alias in node.names:
        whole = f"{node.module}.{alias.name}"
        yield whole if whole in names_of_modules() else node.module or ""


def complaints(found: Iterator[str]) -> None:
    assert list(found) == []


def layer_of(name: str) -> str:
    return name.partition(".")[0]


def test_rooms_import_downhill() -> None:
    complaints(
        f"{module}:{item.line} imports {item.module}"
        for module in shipped()
        for item in imports(module)
        if layer_of(item.module) in MAY_IMPORT
        and layer_of(item.module) != module.layer
        and layer_of(item.module) not in MAY_IMPORT[module.layer]
    )


def test_third_parties_stay_in_their_rooms() -> None:
    complaints(
        f"{module}:{item.line} imports {item.module}"
        for module in shipped()
        for item in imports(module)
        if module.layer not in ALLOWED_IN.get(layer_of(item.module), {module.layer})
    )


def test_entry_layers_import_of_workers_only_what_enqueues() -> None:
    complaints(
        f"{module}:{item.line} imports {item.module}"
        for module in shipped()
        if module.layer in ENQUEUE_ONLY
        for item in imports(module)
        if layer_of(item.module) == "workers"
        and item.module not in ("workers.redis_broker", "workers.hints")
    )


def test_pipelines_import_no_engine_of_storage() -> None:
    complaints(
        f"{module}:{item.line} imports {item.module}"
        for module in modules_of("pipelines")
        for item in imports(module)
        if layer_of(item.module) == "storage"
        and item.module != "storage"
        and not item.module.startswith(PIPELINES_MAY_IMPORT)
    )


def test_only_engines_are_imported_in_functions() -> None:
    complaints(
        f"{module}:{item.line} imports {item.module}"
        for module in shipped()
        for item in imports(module)
        if item.in_function and module.name != SELECTS_ENGINES
    )


def test_shipped_code_imports_no_tests_or_benches() -> None:
    complaints(
        f"{module}:{item.line} imports {item.module}"
        for module in shipped()
        for item in imports(module)
        if layer_of(item.module) in ("tests", "bench")
    )


def test_imports_are_absolute() -> None:
    complaints(
        f"{module}:{node.lineno}"
        for module in shipped()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and node.level
    )


def test_modules_form_no_cycle() -> None:
    graph = {
        module.name: {item.module for item in imports(module)} & names_of_modules()
        for module in shipped()
    }
    assert find_cycle(graph) is None


def find_cycle(graph: dict[str, set[str]]) -> list[str] | None:
    """Take away, again and again, what imports nothing that is left; a cycle remains."""
    left = {name: wanted - {name} for name, wanted in graph.items()}
    while free := {name for name, wanted in left.items() if not wanted & left.keys()}:
        left = {name: wanted for name, wanted in left.items() if name not in free}
    return sorted(left) or None


def test_finds_a_cycle() -> None:
    assert find_cycle({"a": {"b"}, "b": {"a"}, "c": {"a"}, "d": set()}) == ["a", "b", "c"]
    assert find_cycle({"a": {"b"}, "b": set()}) is None


@pytest.mark.parametrize("layer", ["pipelines", "auth"])
def test_parts_of_a_layer_form_no_cycle(layer: str) -> None:
    """A package counts as one part: what it imports must not import it back."""
    graph: dict[str, set[str]] = {}
    for module in modules_of(layer):
        imported = {part_of_layer(i.module) for i in imports(module) if layer_of(i.module) == layer}
        graph.setdefault(part_of_layer(module.name), set()).update(imported - {""})
    assert find_cycle(graph) is None


def part_of_layer(name: str) -> str:
    """A folder, or one of the layer's own modules; "" for the layer itself."""
    return f"{name}.".split(".")[1]


def test_folders_of_the_client_import_downhill() -> None:
    floor = {name: at for at, names in enumerate(CLIENT_FLOORS) for name in names.split() or [""]}
    complaints(
        f"{module} uses {other}"
        for module in modules_of(CLIENT)
        for other in (*(item.module for item in imports(module)), *imported_late(module))
        if layer_of(other) == CLIENT
        and (below := part_of_layer(other)) != (own := part_of_layer(module.name))
        and floor[below] >= floor[own]
    )
    assert {part_of_layer(module.name) for module in modules_of(CLIENT)} == {*floor}


def imported_late(module: Module) -> Iterator[str]:
    """Modules of ours that are named by text, to be imported when they are needed."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and node.value in names_of_modules() - {CLIENT}:
            yield node.value


def folder(name: str) -> str:
    """The folder of a layer that a module is in; "" for the layer itself."""
    return name.split(".")[1] if name.count(".") > 1 else ""


def test_no_module_has_a_generic_name() -> None:
    complaints(
        str(module)
        for module in shipped()
        if any(GENERIC_NAMES.fullmatch(part) for part in module.name.split("."))
    )


def test_no_function_is_too_long() -> None:
    complaints(
        f"{module}:{function.lineno} {function.name}: {length(function)} lines"
        for module in shipped()
        for function in module.functions()
        if length(function) > LONGEST_FUNCTION
    )


def test_nine_of_ten_functions_are_short() -> None:
    lengths = sorted(length(function) for module in shipped() for function in module.functions())
    assert lengths[int(len(lengths) * 0.9)] <= P90_FUNCTION


def length(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def test_no_module_is_too_long() -> None:
    complaints(
        f"{module}: {module.lines} lines" for module in shipped() if module.lines > LONGEST_MODULE
    )


def test_every_module_has_a_docstring() -> None:
    complaints(str(module) for module in shipped() if not ast.get_docstring(module.tree))


@pytest.mark.parametrize("layer", [*MAY_IMPORT, "tests"])
def test_every_folder_with_code_is_a_package(layer: str) -> None:
    folders = {
        path.parent for path in place_of(layer).rglob("*.py") if "versions" not in path.parts
    }
    complaints(str(folder) for folder in folders if not (folder / "__init__.py").exists())


def test_only_settings_and_entry_points_read_environment() -> None:
    complaints(
        f"{module}:{node.lineno}"
        for module in shipped()
        if module.layer in ("storage", "pipelines", "auth", "config")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
        and node.attr in ("environ", "getenv")
        and id(node) not in defaulted(module)
    )


MAY_DELETE_OR_REPLACE = {
    "pipelines.garbage_collection.delete_expired": "blobs: garbage collection",
    "pipelines.copies.store_bytes": "blobs: repair, by bytes in memory",
    "pipelines.copies.complete_upload": "blobs: repair, by an upload",
    "pipelines.copies.undo_copy": "blobs, checkouts: undoes the copy just made, pinned",
    "pipelines.integrity._replace_from": "records: repair, from another replica",
    "pipelines.purges.erase_record": "records: of what is purged",
    "pipelines.integrity.delete_late_records": "records: of what is purged",
    "pipelines.purges._end_checkouts": "checkouts: of what is purged",
    "pipelines.checkouts.expire": "checkouts: of old jobs",
    "pipelines.journals.erase_from_bucket": "journals: those that are past or damaged",
    "pipelines.recovery.epochs.advance_epoch": "marks of epochs that are over",
    "pipelines.areas._store_file": "upload areas: a file is uploaded again",
    "pipelines.area_uploads._assemble": "upload areas: an upload by parts",
    "pipelines.area_files._delete_object": "upload areas: a file that came too late, or has no room",
    "pipelines.area_uploads._empty_area": "upload areas: the area is deleted",
    "pipelines.area_uploads._sign_urls": "upload areas: signed URLs of one file",
    "pipelines.area_uploads.sign": "upload areas: the same, inside",
    "pipelines.area_uploads._issue_credentials": "upload areas: credentials of one area",
    "pipelines.recovery.backups.remove_old_backups": "backups: those past retention",
    "pipelines.recovery.backups.save_backup": "backups: one that was damaged on its way",
    "workers.redis_broker._drop_messages": "no objects: lists of the queue in Redis",
}
"""The functions that call a verb which deletes or replaces objects of a bucket, and the key space
that they touch. Blobs are deleted by garbage collection and replaced by repair, by nothing else."""

DELETING_VERBS = {"delete", "sign_upload", "issue_credentials"}
"""Verbs of a bucket that delete, or let others replace; any verb may take `replace`."""


def deletes_or_replaces(node: ast.AST, modules: set[str]) -> bool:
    """Whether a node calls such a verb of an object; a function of a module is none."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    of = node.func.value
    if isinstance(of, ast.Name) and of.id in modules:
        return False
    return node.func.attr in DELETING_VERBS or any(word.arg == "replace" for word in node.keywords)


def imported_names(module: Module) -> set[str]:
    nodes = (
        node for node in ast.walk(module.tree) if isinstance(node, ast.Import | ast.ImportFrom)
    )
    return {alias.asname or alias.name for node in nodes for alias in node.names}


def test_only_garbage_collection_and_repair_delete_or_replace_blobs() -> None:
    found = {
        f"{module.name}.{function.name}"
        for layer in ("pipelines", "workers", "api", "web", "ops")
        for module in modules_of(layer)
        for names in [imported_names(module)]
        for function in module.functions()
        for node in ast.walk(function)
        if deletes_or_replaces(node, names)
    }
    assert found == {*MAY_DELETE_OR_REPLACE}
    of_blobs = {name for name, what in MAY_DELETE_OR_REPLACE.items() if what.startswith("blobs")}
    assert {name.rpartition(".")[0] for name in of_blobs} == {
        "pipelines.garbage_collection",
        "pipelines.copies",
    }


def defaulted(module: Module) -> set[int]:
    """`os.environ` where a library's own switch is set, which reads nothing."""
    return {
        id(node.value)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and node.attr == "setdefault"
    }
