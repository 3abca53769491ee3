"""The house's law, held over the syntax tree: what may import what, how large things are."""

import ast
import functools
import re
import statistics
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
    "ops": {"workers", "pipelines", "auth", "storage", "config"},
    "store_client": set(),
}
"""Downhill only: a room may import itself and these."""

ONLY_CHAINS = {"api", "ops"}
"""Rooms that may enqueue but know no worker."""

PIPELINES_MAY_TOUCH = (
    "storage.errors",
    "storage.json_codec",
    "storage.json_size",
    "storage.model",
    "storage.protocols",
    "storage.keys",
    "storage.stores",
    "storage.query",
    "storage.catalog",
    "storage.crc32c",
)
"""Protocols, errors and formats, never a vendor's module."""

FLOORS = (
    "keeping queries",
    "finding",
    "journalling",
    "depositing",
    "collecting notifying",
    "replicating recovering",
)
"""Folders of `pipelines/`, from the ground up; its own modules lie below them."""

AUTH_FLOORS = (
    *("", "digests", "seals", "private_files", "bounding"),
    *("policies", "accounts", "tokens", "programs", "login", "openid", "apart"),
    "access",
)
"""Folders of `auth/` and its own modules, from the ground up."""

CLIENT_FLOORS = (
    "errors",
    "versions checksums replacing directories file_locks names kinds content telling leaving",
    "private_files",
    "configuration",
    "transport",
    "definition",
    "login",
    "calling methods",
    "client",
    "areas download",
    "upload",
    "cli",
    "",
)
"""Folders of `client/store_client/` and its own modules, from the ground up; above all of them the
package itself, by what it exports."""

LIVES_IN = {
    "boto3": {"storage", "store_client"},
    "botocore": {"storage", "store_client"},
    "obstore": {"storage"},
    "google": {"storage", "store_client"},
    "google_crc32c": {"storage", "store_client"},
    "sqlalchemy": {"storage"},
    "alembic": {"storage"},
    "opensearchpy": {"storage"},
    "redis": {"storage", "workers"},
    "psycopg": {"storage"},
    "jmespath": {"pipelines"},
    "crcmod": {"storage"},
    "joserfc": {"auth", "store_client"},
    "authlib": {"auth"},
    "argon2": {"auth"},
    "httpcore": {"auth"},
    "cryptography": {"auth", "storage"},
    "dramatiq": {"workers"},
    "apscheduler": {"workers"},
    "aiohttp": {"workers"},
    "flask": {"api"},
    "werkzeug": {"api"},
    "marshmallow": {"api"},
    "msgspec": {"api", "pipelines"},
    "apispec": {"api"},
    "gunicorn": {"api"},
    "click": {"ops", "store_client"},
    "rich": {"ops", "store_client"},
}
"""Third parties that live in some rooms only."""

SELECTS_ENGINES = "storage.engines"
"""Imports what a setting's URL names, when it is opened."""

GENERIC_NAMES = re.compile(r"(utils?|helpers?|managers?|process_.*)")

LONGEST_FUNCTION = 50
P90_FUNCTION = 25
MEDIAN_FUNCTION = 8
LONGEST_MODULE = 500

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
    def room(self) -> str:
        return self.name.partition(".")[0]

    def functions(self) -> list[Function]:
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))


def shipped() -> list[Module]:
    return [module for room in MAY_IMPORT for module in modules_of(room)]


@functools.cache
def modules_of(room: str) -> tuple[Module, ...]:
    paths = sorted(place_of(room).rglob("*.py"))
    return tuple(read(path) for path in paths if "versions" not in path.parts)


def place_of(room: str) -> Path:
    """The client is a distribution of its own, and its package lies one deeper."""
    return (ROOT / "client" if room == CLIENT else ROOT) / room


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


def room_of(name: str) -> str:
    return name.partition(".")[0]


def test_rooms_import_downhill() -> None:
    complaints(
        f"{module}:{item.line} imports {item.module}"
        for module in shipped()
        for item in imports(module)
        if room_of(item.module) in MAY_IMPORT
        and room_of(item.module) != module.room
        and room_of(item.module) not in MAY_IMPORT[module.room]
    )


def test_third_parties_stay_in_their_rooms() -> None:
    complaints(
        f"{module}:{item.line} imports {item.module}"
        for module in shipped()
        for item in imports(module)
        if module.room not in LIVES_IN.get(room_of(item.module), {module.room})
    )


def test_entry_rooms_know_no_worker_but_what_sends() -> None:
    complaints(
        f"{module}:{item.line} imports {item.module}"
        for module in shipped()
        if module.room in ONLY_CHAINS
        for item in imports(module)
        if room_of(item.module) == "workers"
        and item.module not in ("workers.redis_broker", "workers.hints")
    )


def test_pipelines_see_protocols_and_the_catalog_but_no_vendors_module() -> None:
    complaints(
        f"{module}:{item.line} imports {item.module}"
        for module in modules_of("pipelines")
        for item in imports(module)
        if room_of(item.module) == "storage"
        and item.module != "storage"
        and not item.module.startswith(PIPELINES_MAY_TOUCH)
    )


def test_only_engines_are_imported_inside_a_function() -> None:
    complaints(
        f"{module}:{item.line} imports {item.module}"
        for module in shipped()
        for item in imports(module)
        if item.in_function and module.name != SELECTS_ENGINES
    )


def test_nothing_shipped_imports_tests_or_benchmarks() -> None:
    complaints(
        f"{module}:{item.line} imports {item.module}"
        for module in shipped()
        for item in imports(module)
        if room_of(item.module) in ("tests", "bench")
    )


def test_imports_are_absolute() -> None:
    complaints(
        f"{module}:{node.lineno}"
        for module in shipped()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and node.level
    )


def test_modules_form_no_circle() -> None:
    graph = {
        module.name: {item.module for item in imports(module)} & names_of_modules()
        for module in shipped()
    }
    assert circle(graph) is None


def circle(graph: dict[str, set[str]]) -> list[str] | None:
    """Take away, again and again, what imports nothing that is left; a circle remains."""
    left = {name: wanted - {name} for name, wanted in graph.items()}
    while free := {name for name, wanted in left.items() if not wanted & left.keys()}:
        left = {name: wanted for name, wanted in left.items() if name not in free}
    return sorted(left) or None


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"a"}, "c": {"a"}, "d": set()}) == ["a", "b", "c"]
    assert circle({"a": {"b"}, "b": set()}) is None


def test_folders_of_pipelines_import_downhill() -> None:
    floor = {name: at for at, names in enumerate(FLOORS, 1) for name in names.split()}
    complaints(
        f"{module}:{item.line} imports {item.module}"
        for module in modules_of("pipelines")
        for item in imports(module)
        if room_of(item.module) == "pipelines"
        and (own := folder(module.name)) != (other := folder(item.module))
        and floor.get(other, 0) >= floor.get(own, 0)
    )
    assert {folder(module.name) for module in modules_of("pipelines")} == {"", *floor}


def test_folders_of_auth_import_downhill() -> None:
    floor = {name: at for at, name in enumerate(AUTH_FLOORS)}
    complaints(
        f"{module}:{item.line} imports {item.module}"
        for module in modules_of("auth")
        for item in imports(module)
        if room_of(item.module) == "auth"
        and floor[part_of_room(item.module)] > floor[part_of_room(module.name)]
    )
    assert {part_of_room(module.name) for module in modules_of("auth")} == {*AUTH_FLOORS}


def part_of_room(name: str) -> str:
    """A folder, or one of the room's own modules; "" for the room itself."""
    return f"{name}.".split(".")[1]


def test_folders_of_the_client_import_downhill() -> None:
    floor = {name: at for at, names in enumerate(CLIENT_FLOORS) for name in names.split() or [""]}
    complaints(
        f"{module} uses {other}"
        for module in modules_of(CLIENT)
        for other in (*(item.module for item in imports(module)), *imported_late(module))
        if room_of(other) == CLIENT
        and (below := part_of_room(other)) != (own := part_of_room(module.name))
        and floor[below] >= floor[own]
    )
    assert {part_of_room(module.name) for module in modules_of(CLIENT)} == {*floor}


def imported_late(module: Module) -> Iterator[str]:
    """Modules of ours that are named by text, to be imported when they are needed."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and node.value in names_of_modules() - {CLIENT}:
            yield node.value


def folder(name: str) -> str:
    """The folder of a room that a module is in; "" for the room itself."""
    return name.split(".")[1] if name.count(".") > 1 else ""


def test_no_file_has_a_name_that_says_nothing() -> None:
    complaints(
        str(module)
        for module in shipped()
        if any(GENERIC_NAMES.fullmatch(part) for part in module.name.split("."))
    )


def test_no_function_is_longer_than_a_page() -> None:
    complaints(
        f"{module}:{function.lineno} {function.name}: {length(function)} lines"
        for module in shipped()
        for function in module.functions()
        if length(function) > LONGEST_FUNCTION
    )


def test_functions_are_small_as_a_rule() -> None:
    lengths = sorted(length(function) for module in shipped() for function in module.functions())
    assert statistics.median(lengths) <= MEDIAN_FUNCTION
    assert lengths[int(len(lengths) * 0.9)] <= P90_FUNCTION


def length(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def test_no_module_is_longer_than_it_may_be() -> None:
    complaints(
        f"{module}: {module.lines} lines" for module in shipped() if module.lines > LONGEST_MODULE
    )


def test_every_module_says_what_lives_there() -> None:
    complaints(str(module) for module in shipped() if not ast.get_docstring(module.tree))


@pytest.mark.parametrize("room", [*MAY_IMPORT, "tests"])
def test_every_folder_with_code_is_a_package(room: str) -> None:
    folders = {path.parent for path in place_of(room).rglob("*.py") if "versions" not in path.parts}
    complaints(str(folder) for folder in folders if not (folder / "__init__.py").exists())


def test_only_the_settings_and_the_entry_points_read_the_environment() -> None:
    complaints(
        f"{module}:{node.lineno}"
        for module in shipped()
        if module.room in ("storage", "pipelines", "auth", "config")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
        and node.attr in ("environ", "getenv")
        and id(node) not in defaulted(module)
    )


MAY_DELETE_OR_REPLACE = {
    "pipelines.keeping.blob_life._reap": "blobs: garbage collection",
    "pipelines.keeping.repair.store_bytes": "blobs: repair, by bytes in memory",
    "pipelines.keeping.repair.complete_upload": "blobs: repair, by an upload",
    "pipelines.keeping.repair.undo_copy": "blobs, checkouts: undoes the copy just made, pinned",
    "pipelines.keeping.integrity._replaced": "records: repair, from another replica",
    "pipelines.keeping.integrity._withdraw_purged": "records: one that was purged meanwhile",
    "pipelines.depositing.purging.erase": "records: of what is purged",
    "pipelines.depositing.purging.withdraw": "records: of what is purged",
    "pipelines.depositing.purging._end_checkouts": "checkouts: of what is purged",
    "pipelines.depositing.checkouts.expire": "checkouts: of old jobs",
    "pipelines.journalling.journals.erase_from": "journals: those that are past or damaged",
    "pipelines.recovering.epochs._tidy": "marks of epochs that are over",
    "pipelines.depositing.areas._keep": "upload areas: a file is uploaded again",
    "pipelines.depositing.areas._keep_large": "upload areas: a file is uploaded again",
    "pipelines.depositing.area_completing._put_together": "upload areas: an upload by parts",
    "pipelines.depositing.area_files._removed": "upload areas: a file that came too late",
    "pipelines.depositing.area_removing._deleted": "upload areas: the area is deleted",
    "pipelines.depositing.area_credentials._signed": "upload areas: signed URLs of one file",
    "pipelines.depositing.area_credentials.sign": "upload areas: the same, inside",
    "pipelines.depositing.area_credentials._lent": "upload areas: credentials of one area",
    "workers.redis_broker._forget": "no objects: lists of the queue in Redis",
}
"""The functions that call a verb which deletes or replaces objects of a bucket, and the key space
that they touch. Blobs are deleted by garbage collection and replaced by repair, by nothing else."""

DELETING_VERBS = {"delete", "sign_upload", "lend"}
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
        for room in ("pipelines", "workers", "api", "ops")
        for module in modules_of(room)
        for names in [imported_names(module)]
        for function in module.functions()
        for node in ast.walk(function)
        if deletes_or_replaces(node, names)
    }
    assert found == {*MAY_DELETE_OR_REPLACE}
    of_blobs = {name for name, what in MAY_DELETE_OR_REPLACE.items() if what.startswith("blobs")}
    assert {name.rpartition(".")[0] for name in of_blobs} == {
        "pipelines.keeping.blob_life",
        "pipelines.keeping.repair",
    }


def defaulted(module: Module) -> set[int]:
    """`os.environ` where a library's own switch is set, which reads nothing."""
    return {
        id(node.value)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and node.attr == "setdefault"
    }
