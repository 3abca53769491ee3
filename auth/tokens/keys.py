"""What is kept in `<home>/secrets`: the service's own signing keys and the store's secrets.

A key that signs no more is kept until the last token that it signed has ended: those that
applications get live as long as a setting says, and of those that an operator signs the end is
written down beside the key. Nothing here is logged or put into an error.

Where an operator gives the store's secret, the keys are sealed with it. A secret that lies in the
same folder would protect nothing.
"""

import base64
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, RSAKey

from auth.private_files import FOLDER, locked, once, private_folder, replace
from storage.errors import Invalid, Unavailable
from storage.sealing import MIN_SECRET, Sealer, derive

SigningKey = RSAKey | ECKey
Algorithm = Literal["RS256", "ES256"]

SIGNING_FILE = "signing-keys.json"
SECRET_FILE = "store"
MARGIN_S = 86_400
"""How much longer a retired key is kept: its file may reach another machine later."""
UNKNOWN_S = 366 * 86_400
"""How long a key is kept of which nobody wrote down what it signed: an administrator's token lives
for a year."""

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
_SEALED = "sealed"
_CONTEXT = b"signing keys"


@dataclass(frozen=True)
class SigningKeys:
    """The service's private keys: the first one signs, all of them verify."""

    keys: tuple[SigningKey, ...]
    until: Mapping[str, float] = field(default_factory=dict)
    """By key id: when the last token ends that an operator signed with it."""

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


def signing_keys(home: Path, given: str = "") -> SigningKeys:
    """The keys of this home, made on first use; Unavailable when their file cannot be used. `given`
    is the secret of the settings."""
    path = private_folder(home) / SIGNING_FILE
    text = once(path, lambda: _written(_alone(_generate("RS256")), _sealer(home, given)))
    try:
        return _read(_opened(text, home, given))
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
        keys = _alone(_generate(algorithm))
        if not drop:
            keys = _joined(keys, _retired(signing_keys(home, given), now, life_s), now)
        _keep(home, keys, given)
    return keys


def signing_until(home: Path, until: float, given: str = "") -> SigningKeys:
    """The keys, to sign a token that ends then: the key is kept for as long, whatever is rotated.
    On a machine that may only read them nothing can be written down."""
    try:
        with locked(private_folder(home)):
            held = signing_keys(home, given)
            kid = _id(held.signing)
            if kid in held.until and held.until[kid] < until:
                held = SigningKeys(held.keys, {**held.until, kid: until})
                _keep(home, held, given)
            return held
    except OSError:
        return signing_keys(home, given)


def seal_keys(home: Path, given: str) -> bool:
    """Seal keys that lie open although there is a secret to seal them with; False when there was
    nothing to do, or the file may only be read."""
    try:
        with locked(private_folder(home)):
            held, sealer = signing_keys(home, given), _sealer(home, given)
            text = (home / FOLDER / SIGNING_FILE).read_text(encoding="utf-8")
            if sealer is None or _SEALED in json.loads(text):
                return False
            _keep(home, held, given)
            return True
    except OSError:
        return False


def secret(home: Path, name: str = SECRET_FILE, *, given: str = "") -> bytes:
    """The secret that the operator gave, else the one kept under this name, made on first use."""
    if given:
        if len(given) < MIN_SECRET:
            raise Invalid(f"STORE_SECRET_KEY is shorter than {MIN_SECRET} characters")
        return given.encode()
    if not _NAME.fullmatch(name):
        raise ValueError("not a name of a secret")
    # Kept as text, so that an operator can move it into STORE_SECRET_KEY and nothing changes.
    text = once(private_folder(home) / name, lambda: secrets.token_hex(32) + "\n").strip()
    if len(text) < MIN_SECRET:
        raise Unavailable("The secret of this store cannot be used")
    return text.encode()


def _alone(key: SigningKey) -> SigningKeys:
    """A new key, which has signed nothing yet."""
    return SigningKeys((key,), {_id(key): 0.0})


def _retired(held: SigningKeys, now: float, life_s: float) -> SigningKeys:
    """The same keys, of which none signs any more."""
    signed = held.until.get(_id(held.signing), now + UNKNOWN_S)
    until = {_id(key): held.until.get(_id(key), now + UNKNOWN_S) for key in held.keys}
    until[_id(held.signing)] = max(signed, now + life_s) + MARGIN_S
    return SigningKeys(held.keys, until)


def _joined(made: SigningKeys, retired: SigningKeys, now: float) -> SigningKeys:
    """The new key before those whose tokens have not all ended."""
    kept = [key for key in retired.keys if retired.until[_id(key)] > now]
    until = {_id(key): retired.until[_id(key)] for key in kept}
    return SigningKeys((*made.keys, *kept), {**made.until, **until})


def _id(key: SigningKey) -> str:
    return str(key.kid)


def _generate(algorithm: Algorithm) -> SigningKey:
    if algorithm == "RS256":
        return RSAKey.generate_key(2048, auto_kid=True)
    return ECKey.generate_key("P-256", auto_kid=True)


def _read(document: Mapping[str, Any]) -> SigningKeys:
    first, *others = (_imported(data) for data in document["keys"])
    until = {str(kid): float(at) for kid, at in document.get("until", {}).items()}
    return SigningKeys((first, *others), until)


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


def _keep(home: Path, keys: SigningKeys, given: str) -> None:
    replace(private_folder(home) / SIGNING_FILE, _written(keys, _sealer(home, given)))


def _written(keys: SigningKeys, sealer: Sealer | None) -> str:
    document = {
        "keys": [key.as_dict(private=True) for key in keys.keys],
        "until": dict(keys.until),
    }
    if sealer is None:
        return json.dumps(document, indent=1) + "\n"
    sealed = sealer.seal(json.dumps(document).encode(), _CONTEXT)
    return json.dumps({_SEALED: base64.b64encode(sealed).decode()}) + "\n"


def _opened(text: str, home: Path, given: str) -> Mapping[str, Any]:
    document: Mapping[str, Any] = json.loads(text)
    if _SEALED not in document:
        return document
    sealer = Sealer(derive(secret(home, given=given), _CONTEXT))
    opened: Mapping[str, Any] = json.loads(
        sealer.open(base64.b64decode(document[_SEALED]), _CONTEXT)
    )
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
