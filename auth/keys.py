"""What is kept in `<home>/secrets`: the service's own signing keys and the store's secrets.

Every file is made once, whole, with mode 0600: of two processes that start together one wins and
both use what it wrote. Nothing here is logged or put into an error.
"""

import fcntl
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, RSAKey

from storage.errors import Invalid, Unavailable
from storage.sealing import MIN_SECRET

SigningKey = RSAKey | ECKey
Algorithm = Literal["RS256", "ES256"]

SIGNING_FILE = "signing-keys.json"
SECRET_FILE = "store"
KEEP_RETIRED = 2

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")


@dataclass(frozen=True)
class SigningKeys:
    """The service's private keys: the first one signs, all of them verify."""

    keys: tuple[SigningKey, ...]

    @property
    def signing(self) -> SigningKey:
        """The key that new tokens are signed with."""
        return self.keys[0]

    @property
    def algorithms(self) -> tuple[Algorithm, ...]:
        """Signature algorithms of all keys, each once, the signing key's first."""
        return tuple(dict.fromkeys(algorithm_of(key) for key in self.keys))

    def jwks(self) -> dict[str, Any]:
        """The public halves as a JWK set."""
        return {"keys": [_published(key) for key in self.keys]}


def algorithm_of(key: SigningKey) -> Algorithm:
    """The one algorithm that a key of ours signs with."""
    return "RS256" if isinstance(key, RSAKey) else "ES256"


def signing_keys(home: Path) -> SigningKeys:
    """The keys of this home, made on first use; Unavailable when their file cannot be used."""
    text = _once(_folder(home) / SIGNING_FILE, lambda: _written((_generate("RS256"),)))
    try:
        first, *others = (_imported(data) for data in json.loads(text)["keys"])
        return SigningKeys((first, *others))
    except (JoseError, ValueError, TypeError, LookupError) as error:
        raise Unavailable("The signing keys of this service cannot be used") from error


class KeyFile:
    """The keys of this home, parsed again only when their file has changed; for many threads."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._held: tuple[tuple[int, int], SigningKeys] | None = None

    def read(self) -> SigningKeys:
        """The keys as they are now; Unavailable when their file cannot be used."""
        held, state = self._held, self._state()
        if held is None or state is None or held[0] != state:
            # The state is older than what is read after it, so a change in between is seen later.
            keys = signing_keys(self._home)
            self._held = held = (state or (0, 0), keys)
        return held[1]

    def _state(self) -> tuple[int, int] | None:
        try:
            found = (self._home / "secrets" / SIGNING_FILE).stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns


def rotate(home: Path, algorithm: Algorithm = "RS256", *, keep: int = KEEP_RETIRED) -> SigningKeys:
    """Sign with a new key from now on; the newest `keep` retired ones still verify."""
    with _locked(_folder(home)):
        held = signing_keys(home)
        keys = (_generate(algorithm), *held.keys[:keep])
        _replace(_folder(home) / SIGNING_FILE, _written(keys))
    return SigningKeys(keys)


def secret(home: Path, name: str = SECRET_FILE, *, given: str = "") -> bytes:
    """The secret that the operator gave, else the one kept under this name, made on first use."""
    if given:
        if len(given) < MIN_SECRET:
            raise Invalid(f"STORE_SECRET_KEY is shorter than {MIN_SECRET} characters")
        return given.encode()
    if not _NAME.fullmatch(name):
        raise ValueError("not a name of a secret")
    # Kept as text, so that an operator can move it into STORE_SECRET_KEY and nothing changes.
    text = _once(_folder(home) / name, lambda: secrets.token_hex(32) + "\n").strip()
    if len(text) < MIN_SECRET:
        raise Unavailable("The secret of this store cannot be used")
    return text.encode()


def _generate(algorithm: Algorithm) -> SigningKey:
    if algorithm == "RS256":
        return RSAKey.generate_key(2048, auto_kid=True)
    return ECKey.generate_key("P-256", auto_kid=True)


def _imported(data: dict[str, Any]) -> SigningKey:
    key = JWKRegistry.import_key(data)
    if not isinstance(key, RSAKey | ECKey) or not key.is_private:
        raise ValueError("not a private key that signs")
    if isinstance(key, ECKey) and key.curve_name != "P-256":
        raise ValueError("not a curve that ES256 signs with")
    key.ensure_kid()
    return key


def _published(key: SigningKey) -> dict[str, Any]:
    return key.as_dict(private=False, use="sig", alg=algorithm_of(key))


def _written(keys: tuple[SigningKey, ...]) -> str:
    return json.dumps({"keys": [key.as_dict(private=True) for key in keys]}, indent=1) + "\n"


def _folder(home: Path) -> Path:
    folder = home / "secrets"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise Unavailable("The folder of secrets cannot be made") from error
    return folder


def _once(path: Path, make: Callable[[], str]) -> str:
    """The file's text; whoever finds it absent makes it, and the first to finish wins."""
    try:
        if not path.exists():
            _create(path, make())
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"The secret {path.name} cannot be read") from error


def _create(path: Path, text: str) -> None:
    """Publish a whole file under a free name; a name already taken is left as it is."""
    temporary = _temporary(path, text)
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()
    _sync(path.parent)


def _replace(path: Path, text: str) -> None:
    os.replace(_temporary(path, text), path)
    _sync(path.parent)


def _temporary(path: Path, text: str) -> Path:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with open(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return temporary


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One rotation at a time, over all processes of this machine."""
    with open(os.open(folder / ".lock", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
