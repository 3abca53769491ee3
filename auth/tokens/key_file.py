"""The file of the signing keys, in `<home>/secrets`. Nothing of it is logged or put into an error.

Where an operator gives the store's secret, the keys are sealed with it. A secret that lies in the
same folder would protect nothing.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from joserfc.errors import JoseError

from auth.private_files import (
    FOLDER,
    SECRET_FILE,
    locked,
    once,
    private_folder,
    replace,
    secret,
)
from auth.tokens.keys import Algorithm, SigningKeys, document, followed, lasting, new_keys, read
from storage.errors import Unavailable
from storage.sealing import Sealer, derive

SIGNING_FILE = "signing-keys.json"

_SEALED = "sealed"
_CONTEXT = b"signing keys"


def signing_keys(home: Path, given: str = "") -> SigningKeys:
    """The keys of this home, made on first use; Unavailable when their file cannot be used. `given`
    is the secret of the settings."""
    text = _text(home, given)
    with _usable():
        return read(_opened(text, home, given))


def _text(home: Path, given: str) -> str:
    path = private_folder(home) / SIGNING_FILE
    return once(path, lambda: _written(new_keys(), _sealer(home, given)))


@contextmanager
def _usable() -> Iterator[None]:
    """Unavailable for whatever joserfc or Python makes of a file that is none."""
    try:
        yield
    except (JoseError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise Unavailable("The signing keys of this service cannot be used") from error


class KeyFile:
    """The keys of this home, parsed again only when their file has changed; for many threads."""

    def __init__(self, home: Path, given: str = "") -> None:
        self._home, self._given = home, given
        self._held: tuple[tuple[int, int], SigningKeys] | None = None

    def read(self) -> SigningKeys:
        """The keys as they are now; Unavailable when their file cannot be used."""
        held, state = self._held, self._state()
        if held is None or state is None or held[0] != state:
            # The state is older than what is read after it, so a change in between is seen later.
            keys = signing_keys(self._home, self._given)
            self._held = held = (state or (0, 0), keys)
        return held[1]

    def _state(self) -> tuple[int, int] | None:
        try:
            found = (self._home / FOLDER / SIGNING_FILE).stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns


def rotate(
    home: Path,
    algorithm: Algorithm = "RS256",
    *,
    now: float,
    life_s: float,
    given: str = "",
    drop: bool = False,
) -> SigningKeys:
    """Sign with a new key from now on. Those before verify until the last token that each signed
    has ended, where an application's lives `life_s`; or, with `drop`, not at all, even if their
    file cannot be read."""
    with locked(private_folder(home)):
        keys = new_keys(algorithm)
        if not drop:
            keys = followed(signing_keys(home, given), keys, now, life_s)
        _keep(home, keys, given)
    return keys


def signing_until(home: Path, until: float, given: str = "") -> SigningKeys:
    """The keys, to sign a token that ends then: the key is kept for as long, whatever is rotated.
    On a machine that may only read them nothing can be written down."""
    try:
        with locked(private_folder(home)):
            held = signing_keys(home, given)
            kept = lasting(held, until)
            if kept is not held:
                _keep(home, kept, given)
            return kept
    except OSError:
        return signing_keys(home, given)


def seal_keys(home: Path, given: str) -> bool:
    """Seal keys that lie open although there is a secret to seal them with; False when there was
    nothing to do, or the file may only be read."""
    try:
        with locked(private_folder(home)):
            text = _text(home, given)
            with _usable():
                if _sealer(home, given) is None or _SEALED in json.loads(text):
                    return False
            _keep(home, signing_keys(home, given), given)
            return True
    except OSError:
        return False


def _keep(home: Path, keys: SigningKeys, given: str) -> None:
    replace(private_folder(home) / SIGNING_FILE, _written(keys, _sealer(home, given)))


def _written(keys: SigningKeys, sealer: Sealer | None) -> str:
    if sealer is None:
        return json.dumps(document(keys), indent=1) + "\n"
    sealed = sealer.seal(json.dumps(document(keys)).encode(), _CONTEXT)
    return json.dumps({_SEALED: base64.b64encode(sealed).decode()}) + "\n"


def _opened(text: str, home: Path, given: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(text)
    if _SEALED not in found:
        return found
    sealer = Sealer(derive(secret(home, given=given), _CONTEXT))
    opened: Mapping[str, Any] = json.loads(sealer.open(base64.b64decode(found[_SEALED]), _CONTEXT))
    return opened


def _sealer(home: Path, given: str) -> Sealer | None:
    """Seals with the operator's secret; None when that is the one that lies beside the keys."""
    if not given:
        return None
    try:
        beside = (home / FOLDER / SECRET_FILE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        beside = ""
    return None if given == beside else Sealer(derive(given.encode(), _CONTEXT))
