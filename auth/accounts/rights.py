"""What the settings say of people's rights, as far as this room asks."""

from typing import Protocol


class Rights(Protocol):
    """The part of Settings that gives rights whatever the records say."""

    @property
    def deployment(self) -> str: ...
    @property
    def administrators(self) -> tuple[str, ...]: ...
    @property
    def ingest_groups(self) -> tuple[str, ...]: ...
    @property
    def admin_groups(self) -> tuple[str, ...]: ...
    @property
    def decisions_kept(self) -> int: ...
