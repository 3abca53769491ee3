"""The store's own secret, as this home keeps it."""

from auth.private_files import FOLDER, SECRET_FILE, secret
from config import Settings
from storage.sealing import instance_id


def secret_key(settings: Settings) -> str:
    """The store's secret: the operator's, else the one that this home keeps."""
    return secret(settings.home, given=settings.secret_key).decode()


def instance(settings: Settings) -> str | None:
    """Which store this home is; None when no store was ever started in it."""
    kept = settings.home / FOLDER / SECRET_FILE
    if not settings.secret_key and not kept.exists():
        return None
    return instance_id(secret_key(settings).encode())
