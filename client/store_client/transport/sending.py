"""One request as it goes out, and what it means that no whole answer came back."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from store_client.transport.limits import LARGEST_ANSWER


@dataclass(frozen=True, slots=True)
class Sent:
    """One request, as it goes out."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | Iterable[bytes] | None = None
    limit: int | None = LARGEST_ANSWER
    """Bytes of the answer's body; None: any, for callers that stream it."""


class Broken(Exception):
    """No whole answer came."""

    def __init__(self, message: str, *, sent: bool, hint: str = "", lasting: bool = False) -> None:
        super().__init__(message)
        self.hint = hint
        self.sent = sent
        """The server may have acted on it."""
        self.lasting = lasting
        """It will not be otherwise the next time."""
