"""Asking GCS: one door for calls, tried again where that may help, and for their errors.

Here a vendor's words become ours; replicas, uploads, copies and depositors' sources all ask so.
Every call may be sent twice when its answer was lost. What creates is conditional: it then learns
of its own success as AlreadyExists, which those who call read back. What replaces or deletes does
the same once more.
"""

import json
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

import urllib3
from google.auth.exceptions import GoogleAuthError
from urllib3.exceptions import HTTPError

from storage.blobs.gcs_client import Call, Connection
from storage.errors import (
    AlreadyExists,
    Forbidden,
    Invalid,
    NotFound,
    RangeNotSatisfiable,
    SourceChanged,
    StoreError,
    Unavailable,
)

Reply = Mapping[str, Any]

FREE: Final = {"ifGenerationMatch": "0"}
"""The condition under which something is created."""
_SURE_S: Final = 60.0
"""Seconds for which a bucket that was seen counts as there."""
_PAUSE_S: Final = 0.25
"""The first pause before a call is tried again is up to so long, each further one up to twice."""
_GOOD: Final = frozenset({200, 201, 204, 206, 308})


class Bucket:
    """A bucket and the connection that reaches it. In one of our `own`, a refusal or an absent
    bucket is a fault of the installation, which may be mended; in a depositor's it is an answer."""

    def __init__(self, name: str, connected: Callable[[], Connection], *, own: bool = True) -> None:
        self.name, self.connected, self.own = name, connected, own
        self._seen = -_SURE_S

    def object(self, key: str, *, service: str = "storage") -> str:
        """The path of an object in the JSON interface, or in one of its services for bytes."""
        return f"{self.objects(service=service)}/{_segment(key)}"

    def objects(self, *, service: str = "storage") -> str:
        """The path of all objects."""
        return f"/{service}/v1/b/{_segment(self.name)}/o"

    def ask(self, call: Call) -> Reply:
        """One call; what it answers."""
        data = self.send(call).data
        try:
            reply: Reply = json.loads(data) if data else {}
        except ValueError as error:
            raise Unavailable(
                f"GCS bucket {self.name} is answered for by something else"
            ) from error
        return reply

    def send(self, call: Call) -> urllib3.BaseHTTPResponse:
        """One call, tried a few times where that may help; its errors in our words."""
        turn = 0
        while True:
            turn += 1
            try:
                answer = self._once(call)
            except Passing as error:
                if turn >= error.attempts:
                    raise Unavailable(str(error)) from error
            else:
                self._seen = time.monotonic()
                return answer
            pause(turn)

    def _once(self, call: Call) -> urllib3.BaseHTTPResponse:
        attempts = 1
        try:
            connection = self.connected()
            attempts = call.tries or connection.limits.attempts
            answer = connection.send(call)
            if answer.status in _GOOD:
                return answer
            said = _said(answer, call)
        except HTTPError as error:
            raise Passing(f"GCS cannot be reached: {error}", attempts) from error
        except GoogleAuthError as error:
            raise Unavailable(f"there are no usable GCS credentials: {error}") from error
        if answer.status in (408, 429) or answer.status >= 500 or _MANGLED in said:
            raise Passing(f"GCS bucket {self.name}: {answer.status} {said}", attempts)
        raise self._ours(answer.status, said, call)

    def _ours(self, status: int, said: str, call: Call) -> StoreError:
        said = f"GCS bucket {self.name}: {status} {said}"
        match status:
            case 404:
                return self._absence(said)
            case 410:
                # A session or a rewrite's token, which ended.
                return NotFound(said)
            case 412:
                free = call.params.get("ifGenerationMatch") == FREE["ifGenerationMatch"]
                return AlreadyExists(said) if free else SourceChanged(said)
            case 416:
                return RangeNotSatisfiable(said)
            case 401 | 403:
                refused = f"{said}: check the store's credentials and the bucket's permissions"
                return Unavailable(refused) if self.own else Forbidden(said)
            case 400 | 405 | 411 | 413:
                return Invalid(said)
        # What we did not ask for, redirects for example.
        return Unavailable(said)

    def _absence(self, said: str) -> StoreError:
        """A 404's words do not tell an absent object from an absent bucket."""
        if not self.own:
            return NotFound(said)
        try:
            self.expect()
        except (NotFound, Forbidden) as error:
            return Unavailable(f"GCS bucket {self.name} is absent or closed to us: {error}")
        return NotFound(said)

    def expect(self) -> None:
        """NotFound when there is no such bucket; not asked again where it was just seen."""
        if time.monotonic() - self._seen < _SURE_S:
            return
        probe = Bucket(self.name, self.connected, own=False)
        probe.ask(Call("GET", self.objects(), {"maxResults": 1, "fields": "kind"}))
        self._seen = time.monotonic()


def _segment(name: str) -> str:
    """A name in a path. Dots would climb, to the bucket's own description for example."""
    if name in (".", ".."):
        raise Invalid("GCS has neither buckets nor objects of such a name")
    return quote(name, safe="")


class Passing(Exception):
    """A failure that may pass, and how often the call may be tried."""

    def __init__(self, said: str, attempts: int) -> None:
        super().__init__(said)
        self.attempts = attempts


_MANGLED: Final = "match calculated"
"""GCS's words when what arrived does not have the checksum that was announced."""


def pause(turn: int) -> None:
    """Wait before the next attempt, with jitter."""
    time.sleep(length_of_pause(turn, random.random()))


def length_of_pause(turn: int, chance: float) -> float:
    """Seconds, by chance between 0 and 1: up to twice as long each turn, and bounded."""
    return chance * _PAUSE_S * (1 << min(turn - 1, 5))


def _said(answer: urllib3.BaseHTTPResponse, call: Call) -> str:
    """An error's own words, whichever of its ways GCS says it in."""
    text = answer.read(decode_content=True) if call.stream else answer.data
    try:
        return str(json.loads(text)["error"]["message"])[:500]
    except (ValueError, KeyError, TypeError):
        return text.decode("utf-8", "replace").strip()[:500]
