"""Bytes to be sent, from whatever holds them: bytes, a path, an open file, or what makes pieces."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from store_client.errors import Misused

PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Content:
    """What makes the pieces of a body; `again`: more than once. `size` None: not known."""

    pieces: Callable[[], Iterable[bytes]]
    size: int | None
    again: bool = True


def content_of(given: Any) -> Content:
    """Bytes, a Path, a file open for reading bytes, or a function that gives pieces. Misused."""
    if isinstance(given, bytes | bytearray | memoryview):
        whole = bytes(given)
        return Content(lambda: (whole,) if whole else (), len(whole))
    if isinstance(given, Path):
        return Content(lambda: _of_path(given), _size(given))
    if hasattr(given, "read"):
        return _of_file(given)
    if callable(given):
        return Content(cast(Callable[[], Iterable[bytes]], given), None)
    raise Misused(
        f"content: must be bytes, a path or an open file, and is {type(given).__name__}",
        hint='text is encoded first: content="...".encode()',
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise Misused(f"cannot read {path}: {error.strerror or error}") from error


def _of_path(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from _pieces(file)


def _of_file(file: BinaryIO) -> Content:
    """From where it stands; one that cannot go back is sent once."""
    if not file.seekable():
        return Content(lambda: _pieces(file), None, again=False)
    start = file.tell()
    size = file.seek(0, 2) - start
    file.seek(start)

    def pieces() -> Iterator[bytes]:
        file.seek(start)
        return _pieces(file)

    return Content(pieces, size)


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        if not isinstance(piece, bytes):
            raise Misused("content: the file must be open for bytes", hint='open it with "rb"')
        yield piece
