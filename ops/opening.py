"""What an operator's command works on: the open stores of this home, and the replicas it named."""

from dataclasses import replace

from config import Settings
from ops import tokens
from storage.connecting import connect
from storage.model import REPLICAS, Replica
from storage.stores import Stores


def opened(settings: Settings) -> Stores:
    """The stores, with the secret that this home keeps."""
    return connect(replace(settings, secret_key=tokens.secret_key(settings)))


def chosen(replica: str | None) -> list[Replica]:
    """The replica of that name, or all."""
    return [name for name in REPLICAS if replica in (None, name)]
