"""What a session asks for tokens; where they are kept and renewed is known elsewhere."""

from dataclasses import dataclass, field
from typing import Protocol


class Tokens(Protocol):
    """Whose token is shown; asked by many threads."""

    def bearer(self) -> str | None:
        """A token that is still good; None for nobody."""

    def renewed(self, refused: str) -> str | None:
        """Another one, when the server refused that; None when there is none."""


@dataclass(frozen=True, slots=True)
class GivenToken:
    """One token that somebody gave, for as long as it lasts."""

    token: str = field(repr=False)

    def bearer(self) -> str | None:
        """It."""
        return self.token

    def renewed(self, refused: str) -> str | None:
        """There is no other."""
        return None
