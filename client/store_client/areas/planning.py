"""Which local files are meant, and what each will be called in the area.

A file is called as it is; those of a directory keep their places in it: `reads/a.fastq` of the
directory `run7` that was given is `reads/a.fastq`.
"""

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from store_client.areas.reading import Outgoing
from store_client.directories import below, status_of
from store_client.errors import Misused
from store_client.names import fault


def plan(
    paths: Sequence[Path],
    *,
    kind_of: Callable[[str], str],
    target: str | None = None,
    extension: str | None = None,
) -> tuple[Outgoing, ...]:
    """Every file of these paths, by name; Misused names what cannot be sent.

    `target` is the name of a single file, `extension` the ending of those wanted of directories.
    """
    _check(paths, target=target, extension=extension)
    found: dict[str, Outgoing] = {}
    for path, name in _named(paths, extension=extension):
        made = _outgoing(path, name if target is None else target, kind_of=kind_of)
        twin = found.setdefault(unicodedata.normalize("NFC", made.name), made)
        if twin.path.absolute() != path.absolute():
            raise Misused(
                f"{twin.path} and {path} would both be called {made.name}",
                hint="send them by two commands, into two areas, or rename one",
            )
    if not found:
        which = f" that end with {_ending(extension)}" if extension else ""
        raise Misused(f"there are no files{which} in {', '.join(map(str, paths))}")
    return tuple(sorted(found.values(), key=lambda one: one.name))


def _check(paths: Sequence[Path], *, target: str | None, extension: str | None) -> None:
    for path in paths:
        if not path.exists():
            raise Misused(f"there is no {path}")
        if extension and not path.is_dir():
            raise Misused(
                f"{path} is no directory", hint="--file-extension chooses files of directories"
            )
    if target is None:
        return
    if len(paths) != 1 or paths[0].is_dir():
        raise Misused("--target-filename names a single file", hint="give one path, of a file")


def _named(paths: Iterable[Path], *, extension: str | None) -> Iterator[tuple[Path, str]]:
    for path in paths:
        if not path.is_dir():
            yield path, path.name
            continue
        for found, name in below(str(path)):
            if extension is None or name.endswith(_ending(extension)):
                yield Path(found), name


def _ending(extension: str) -> str:
    return f".{extension.lstrip('.')}"


def _outgoing(path: Path, name: str, *, kind_of: Callable[[str], str]) -> Outgoing:
    wrong = fault(name)
    if wrong is not None:
        raise Misused(f"an area cannot have a file {name!r}: {wrong}", hint="rename it")
    return Outgoing(path, name, kind_of(name), status_of(str(path)).st_size)
