"""What is known of a request when it is judged: the keys that conditions of policies ask for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from flask import Request

from api.senders import is_secure, sender
from auth.accounts.limits import ASKED_LENGTH
from auth.policies import keys
from auth.policies.model import Value
from storage.model import Principal


@dataclass(frozen=True)
class Circumstances:
    """Tells of requests that came through so many proxies; `clock` tells seconds since 1970."""

    proxies: int
    clock: Callable[[], float]

    def of(self, request: Request, principal: Principal | None) -> Mapping[str, Value]:
        """What is known; a key whose value is not is absent."""
        now = int(self.clock())
        address = sender(request, self.proxies)
        told = {
            keys.SOURCE_IP: None if address is None else str(address),
            keys.SECURE_TRANSPORT: is_secure(request, self.proxies),
            keys.CURRENT_TIME: _moment(now),
            keys.EPOCH_TIME: now,
            # The client's own word, as much of it as an evaluation takes.
            keys.USER_AGENT: request.headers.get("User-Agent", "")[:ASKED_LENGTH] or None,
        }
        shown = {} if principal is None else _shown(principal)
        return {key: value for key, value in {**told, **shown}.items() if value is not None}


def _shown(principal: Principal) -> Mapping[str, Value | None]:
    issued_at = principal.issued_at
    return {
        keys.TOKEN_ISSUE_TIME: None if issued_at is None else _moment(issued_at),
        keys.ISSUER: principal.issuer,
    }


def _moment(seconds: float) -> str:
    """As ISO 8601 has it, in whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
