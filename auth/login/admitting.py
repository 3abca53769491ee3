"""stub"""

from storage.catalog.engine import Tx


def admit(tx: Tx, email: str) -> None:
    pass
