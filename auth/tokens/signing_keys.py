"""The service's own signing keys: generation, rotation, and their sealed file.

A retired key is kept until the last token that it signed has expired. A setting limits the life
of application tokens; the latest expiry of operator-signed tokens is stored with the key.

If the operator sets the store's secret, it encrypts the keys. A secret in the same folder would
protect nothing.
"""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, RSAKey

from auth.secret_files import (
    SECRETS_FOLDER,
    STORE_SECRET_NAME,
    ensure_secrets_folder,
    load_secret,
    lock_folder,
    read_or_create,
    replace_file,
)
from storage.encryption import SecretBox, derive_key
from storage.errors import Unavailable

PrivateSigningKey = RSAKey | ECKey
GivenSecrets = str | Sequence[str]
"""The store's secret of the settings, alone or before others that are accepted."""
SigningAlgorithm = Literal["RS256", "ES256"]

RETIREMENT_MARGIN_S = 86_400
"""Extra life of a retired key, as other machines may get the file later."""
UNKNOWN_TOKEN_LIFE_S = 366 * 86_400
"""How long a key without a recorded expiry is kept: the administrator's token lives a year."""


@dataclass(frozen=True)
class SigningKeys:
    """The service's private keys: the first signs, all verify."""

    keys: tuple[PrivateSigningKey, ...]
    until: Mapping[str, float] = field(default_factory=dict)
    """By key id: the last expiry of its operator-signed tokens."""

    @property
    def signing_key(self) -> PrivateSigningKey:
        """The key that new tokens are signed with."""
        return self.keys[0]

    @property
    def algorithms(self) -> tuple[SigningAlgorithm, ...]:
        """Signature algorithms of all keys, each once, the signing key's first."""
        return tuple(dict.fromkeys(key_algorithm(key) for key in self.keys))

    def jwks(self) -> dict[str, Any]:
        """The public halves as a JWK set."""
        return {
            "keys": [
                key.as_dict(private=False, use="sig", alg=key_algorithm(key)) for key in self.keys
            ]
        }


def key_algorithm(key: PrivateSigningKey) -> SigningAlgorithm:
    """Return the signature algorithm of a key."""
    return "RS256" if isinstance(key, RSAKey) else "ES256"


def generate_keys(algorithm: SigningAlgorithm = "RS256") -> SigningKeys:
    """Generate a key that has signed nothing."""
    key: PrivateSigningKey
    if algorithm == "RS256":
        key = RSAKey.generate_key(2048, auto_kid=True)
    else:
        key = ECKey.generate_key("P-256", auto_kid=True)
    return SigningKeys((key,), {key_id(key): 0.0})


def rotate_keys(held: SigningKeys, made: SigningKeys, now: float, life_s: float) -> SigningKeys:
    """Put a new key first; keep old keys until their last token expires."""
    signed = held.until.get(key_id(held.signing_key), now + UNKNOWN_TOKEN_LIFE_S)
    until = {
        key_id(key): held.until.get(key_id(key), now + UNKNOWN_TOKEN_LIFE_S) for key in held.keys
    }
    until[key_id(held.signing_key)] = max(signed, now + life_s) + RETIREMENT_MARGIN_S
    retained = tuple(key for key in held.keys if until[key_id(key)] > now)
    return SigningKeys(
        (*made.keys, *retained),
        {**made.until, **{key_id(key): until[key_id(key)] for key in retained}},
    )


def extend_keys(held: SigningKeys, until: float) -> SigningKeys:
    """Record that the first key signs a token until then; return `held` itself if unchanged."""
    kid = key_id(held.signing_key)
    if kid not in held.until or held.until[kid] >= until:
        return held
    return SigningKeys(held.keys, {**held.until, kid: until})


def key_id(key: PrivateSigningKey) -> str:
    """Return the `kid` of a key."""
    return str(key.kid)


def dump_keys(keys: SigningKeys) -> dict[str, Any]:
    """Return all keys as JSON, private too."""
    return {"keys": [key.as_dict(private=True) for key in keys.keys], "until": dict(keys.until)}


def load_keys(document: Mapping[str, Any]) -> SigningKeys:
    """Load dumped keys; raises errors of joserfc or Python if invalid."""
    first, *others = (_parse_key(json.dumps(data, sort_keys=True)) for data in document["keys"])
    until = {str(kid): float(at) for kid, at in document.get("until", {}).items()}
    return SigningKeys((first, *others), until)


# Cached: importing an RSA key takes longer than signing with it, and every part of a process
# that signs or verifies reads the file.
@lru_cache(maxsize=16)
def _parse_key(text: str) -> PrivateSigningKey:
    data: dict[str, Any] = json.loads(text)
    key = JWKRegistry.import_key(data)
    if not isinstance(key, RSAKey | ECKey) or not key.is_private:
        raise ValueError("not a private key that signs")
    if isinstance(key, ECKey) and key.curve_name != "P-256":
        raise ValueError("not a curve that ES256 signs with")
    key.ensure_kid()
    return key


SIGNING_KEYS_FILE = "signing-keys.json"

_SEALED_MEMBER = "sealed"
_SEALING_CONTEXT = b"signing keys"


def read_signing_keys(home: Path, given: GivenSecrets = "") -> SigningKeys:
    """Read this home's keys, created on first use; Unavailable if their file is invalid. `given`
    is the secret of the settings."""
    text = _read_key_file(home, given)
    with _translate_key_errors():
        return load_keys(_open_keys(text, home, given))


def _read_key_file(home: Path, given: GivenSecrets) -> str:
    path = ensure_secrets_folder(home) / SIGNING_KEYS_FILE
    return read_or_create(path, lambda: _format_keys(generate_keys(), _build_sealer(home, given)))


@contextmanager
def _translate_key_errors() -> Iterator[None]:
    """Raise Unavailable if the key file is invalid."""
    try:
        yield
    except (JoseError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise Unavailable("The signing keys of this service cannot be used") from error


class SigningKeyFile:
    """The keys of this home, read again only if their file changes; thread-safe."""

    def __init__(self, home: Path, given: GivenSecrets = "") -> None:
        self._home, self._given = home, given
        self._held: tuple[tuple[int, int], SigningKeys] | None = None

    def read(self) -> SigningKeys:
        """Return the current keys; Unavailable if their file is invalid."""
        cached, state = self._held, self._state()
        if cached is None or state is None or cached[0] != state:
            # The state was taken before reading, so the next read sees a change in between.
            keys = read_signing_keys(self._home, self._given)
            self._held = cached = (state or (0, 0), keys)
        return cached[1]

    def _state(self) -> tuple[int, int] | None:
        try:
            status = (self._home / SECRETS_FOLDER / SIGNING_KEYS_FILE).stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns


def rotate_key_file(
    home: Path,
    algorithm: SigningAlgorithm = "RS256",
    *,
    now: float,
    life_s: float,
    given: GivenSecrets = "",
    drop: bool = False,
) -> SigningKeys:
    """Replace the signing key.

    Old keys verify until their last token expires; application tokens live `life_s`. With `drop`
    they are deleted, even if their file is unreadable."""
    with lock_folder(ensure_secrets_folder(home)):
        keys = generate_keys(algorithm)
        if not drop:
            keys = rotate_keys(read_signing_keys(home, given), keys, now, life_s)
        _write_keys(home, keys, given)
    return keys


def read_keys_until(home: Path, until: float, given: GivenSecrets = "") -> SigningKeys:
    """Return the keys to sign a token that expires then, and record this expiry.

    It keeps the key through rotations, but is not recorded if the file is read-only."""
    try:
        with lock_folder(ensure_secrets_folder(home)):
            keys = read_signing_keys(home, given)
            extended = extend_keys(keys, until)
            if extended is not keys:
                _write_keys(home, extended, given)
            return extended
    except OSError:
        return read_signing_keys(home, given)


def seal_key_file(home: Path, given: GivenSecrets) -> bool:
    """Encrypt a plain key file with the operator's secret.

    Return False if there is nothing to do, or the file is read-only."""
    try:
        with lock_folder(ensure_secrets_folder(home)):
            text = _read_key_file(home, given)
            with _translate_key_errors():
                if _build_sealer(home, given) is None or _SEALED_MEMBER in json.loads(text):
                    return False
            _write_keys(home, read_signing_keys(home, given), given)
            return True
    except OSError:
        return False


def _write_keys(home: Path, keys: SigningKeys, given: GivenSecrets) -> None:
    replace_file(
        ensure_secrets_folder(home) / SIGNING_KEYS_FILE,
        _format_keys(keys, _build_sealer(home, given)),
    )


def _format_keys(keys: SigningKeys, sealer: SecretBox | None) -> str:
    if sealer is None:
        return json.dumps(dump_keys(keys), indent=1) + "\n"
    sealed = sealer.seal(json.dumps(dump_keys(keys)).encode(), _SEALING_CONTEXT)
    return json.dumps({_SEALED_MEMBER: base64.b64encode(sealed).decode()}) + "\n"


def _open_keys(text: str, home: Path, given: GivenSecrets) -> Mapping[str, Any]:
    document: Mapping[str, Any] = json.loads(text)
    if _SEALED_MEMBER not in document:
        return document
    current, *former = _list_secrets(given)
    secrets = [load_secret(home, given=current), *(each.encode() for each in former)]
    sealer = SecretBox(*(derive_key(each, _SEALING_CONTEXT) for each in secrets))
    opened: Mapping[str, Any] = json.loads(
        sealer.open(base64.b64decode(document[_SEALED_MEMBER]), _SEALING_CONTEXT)
    )
    return opened


def _list_secrets(given: GivenSecrets) -> Sequence[str]:
    return (given,) if isinstance(given, str) else given


def _build_sealer(home: Path, given: GivenSecrets) -> SecretBox | None:
    """Seal with the operator's secret; None if it is also stored beside the keys."""
    current, *_ = _list_secrets(given)
    if not current:
        return None
    try:
        beside = (home / SECRETS_FOLDER / STORE_SECRET_NAME).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        beside = ""
    return None if current == beside else SecretBox(derive_key(current.encode(), _SEALING_CONTEXT))


def reseal_key_file(home: Path, given: GivenSecrets) -> bool:
    """Encrypt the keys with the current secret.

    Return False if they are, are not encrypted, or this home has none."""
    path = home / SECRETS_FOLDER / SIGNING_KEYS_FILE
    if not path.exists():
        return False
    with lock_folder(path.parent):
        current, *_ = _list_secrets(given)
        text = path.read_text(encoding="utf-8")
        with _translate_key_errors():
            if _SEALED_MEMBER not in json.loads(text):
                return False
            with suppress(Unavailable):
                _open_keys(text, home, current)
                return False
        _write_keys(home, read_signing_keys(home, given), given)
        return True
