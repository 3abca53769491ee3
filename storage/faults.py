"""What went wrong in an operator's command, in one sentence with its cause."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from config.settings import SettingsError
from storage.errors import CatalogDamaged, StoreError

RESTORE = "bring a copy of it back, or make it again with `python -m ops rebuild catalog`"


@contextmanager
def exit_with_sentence(code_of: Callable[[Exception], int]) -> Iterator[None]:
    """End the process with the sentence, and an exit code, if the block fails with such a fault."""
    try:
        yield
    except (SettingsError, StoreError, OSError) as error:
        sys.stderr.write(f"Error: {explain(error)}\n")
        sys.exit(code_of(error))


def explain(error: Exception) -> str:
    """The sentence; the cause is the operator's to know, while users of the API are not told it."""
    if isinstance(error, StoreError):
        return _of_store(error)
    if isinstance(error, OSError) and error.strerror:
        named = f"{error.filename}: " if error.filename else ""
        return f"{named}{error.strerror}"
    return str(error)


def _of_store(error: StoreError) -> str:
    cause = getattr(error.__cause__, "orig", None) or error.__cause__
    told = str(cause).strip().splitlines() if cause is not None else []
    said = error.detail
    if told and told[0] not in said:
        said = f"{said.rstrip('.')}: {told[0]}"
    return f"{said}; {RESTORE}" if isinstance(error, CatalogDamaged) else said
