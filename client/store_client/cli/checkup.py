"""What `store doctor` looks at, each as one finding with what to do about it."""

import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from store_client.configuration import DEFAULT_URL, PROFILE, URL, Configuration
from store_client.definition import load
from store_client.errors import NotAllowed, StoreError, Unreachable
from store_client.login import kept as files
from store_client.login.checking import ahead_of
from store_client.login.discovery import found_at, in_the_clear
from store_client.login.expiry import Standing, moment, printable
from store_client.login.tokens import VARIABLE, tokens_of
from store_client.login.whoami import whoami
from store_client.private_files import locked, read_json
from store_client.transport.limits import LARGEST_DEFINITION
from store_client.transport.session import Session

if TYPE_CHECKING:
    import httpx

SKEW_S = 30.0
"""Servers forgive clocks so much."""
LITTLE = 10 * 1024**3
VERY_LITTLE = 1024**3
GIB = 1024**3
DEFINITION = "/v1/swagger.json"
HEALTH = "/health"

Verdict = Literal["ok", "warn", "fail"]
OK: Verdict = "ok"
WARN: Verdict = "warn"
FAIL: Verdict = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `code` is the exit code that a fault of it means."""

    about: str
    verdict: Verdict
    text: str
    advice: str = ""
    code: int = 0


@dataclass(frozen=True, slots=True)
class Patient:
    """Whose client is looked at, and how it asks."""

    config: Configuration
    session: Session
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    now: Callable[[], float] = time.time
    folder: Path = Path()
    """Where downloads put their cache."""


def examined(patient: Patient) -> Iterator[Finding]:
    """Every finding, as it is made; what needs the store is left out once it does not answer."""
    yield _client()
    yield _which(patient)
    yield _folder(patient.config)
    # Before anything reads it, which would mend it.
    yield _file(patient.config)
    yield _cache(patient.config)
    yield _disk(patient.folder)
    answer, found = _reached(patient)
    yield found
    if answer is not None:
        yield _clock(answer, patient.now())
        yield _health(patient.session)
        yield _authorization(patient)
        yield _login(patient)


def exit_code(findings: list[Finding]) -> int:
    """The gravest reason: no answer, not allowed, anything else."""
    codes = {
        finding.code or StoreError.exit_code for finding in findings if finding.verdict == FAIL
    }
    for code in (Unreachable.exit_code, NotAllowed.exit_code):
        if code in codes:
            return code
    return StoreError.exit_code if codes else 0


def _client() -> Finding:
    own = version("consortium-store-client")
    text = f"store {own}, Python {platform.python_version()} on {platform.system()}"
    return Finding("client", OK, text)


def _which(patient: Patient) -> Finding:
    config, environ = patient.config, patient.environ
    if config.profile:
        source = f"profile {config.profile}"
    elif environ.get(URL) and not environ.get(PROFILE):
        source = f"{URL} or --url"
    else:
        source = "--url, or what is meant when nothing is said"
    text = f"{config.url} ({source})"
    if in_the_clear(config.url):
        advice = "use its https address: whoever is on the way can read tokens and data"
        return Finding("store in use", WARN, f"{text} is not encrypted", advice)
    if config.url == DEFAULT_URL and not config.profile:
        text = f"{config.url} (a store on this machine; another one: --url or --profile)"
    return Finding("store in use", OK, text)


def _folder(config: Configuration) -> Finding:
    try:
        with locked(config.home / "doctor", wait_s=1):
            pass
    except StoreError as error:
        return Finding("configuration", FAIL, str(error), error.hint or "mend its rights", 1)
    return Finding("configuration", OK, str(config.home))


def _file(config: Configuration) -> Finding:
    files.migrate(config)
    path, about = config.credentials, "credentials"
    if not path.exists():
        return Finding(about, OK, "none are kept for this store and profile")
    if files.open_to_others(path):
        files.make_private(path)
        if files.open_to_others(path):
            advice = f"chmod 600 {path}"
            return Finding(about, FAIL, f"{path} can be read by others", advice, 1)
        advice = "if you do not trust the people of this machine: store logout, store login"
        return Finding(about, WARN, f"{path} could be read by others, and is private now", advice)
    if files.read(config) is None:
        advice = "store login; or store logout, which removes it"
        return Finding(about, FAIL, f"{path} cannot be read, or holds no login", advice, 4)
    return Finding(about, OK, f"{path}, readable by you alone")


def _cache(config: Configuration) -> Finding:
    kept = sorted(config.definitions.glob("*.json")) if config.definitions.is_dir() else []
    broken = [path.name for path in kept if "store" not in read_json(path)]
    if broken:
        text = f"{len(broken)} of {len(kept)} cached definitions cannot be read"
        return Finding("cache", WARN, text, "store clear-cache")
    return Finding("cache", OK, f"{len(kept)} definition(s) in {config.definitions}")


def _disk(folder: Path) -> Finding:
    place = folder.absolute()
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        text = f"{place}: {error.strerror or error}"
        return Finding("disk", WARN, text, "download elsewhere")
    text = f"{free / GIB:.1f} GiB free for downloads in {place / '.store'}"
    if not os.access(place, os.W_OK):
        return Finding("disk", WARN, f"{place} cannot be written to", "download elsewhere")
    if free < LITTLE:
        advice = "remove what is not needed of .store, or download elsewhere"
        return Finding("disk", FAIL if free < VERY_LITTLE else WARN, text, advice, 1)
    return Finding("disk", OK, text)


def _reached(patient: Patient) -> "tuple[httpx.Response | None, Finding]":
    config, session = patient.config, patient.session
    try:
        found = load(session, config, fresh=True)
        answer = session.ask("GET", DEFINITION, authorize=False, limit=LARGEST_DEFINITION)
    except StoreError as error:
        advice = error.hint or "is the URL right, and this machine on the network?"
        return None, Finding("server", FAIL, str(error), advice, error.exit_code)
    text = f"{printable(found.title)}, {len(found.operations)} operations"
    info = answer.json().get("info", {})
    if release := info.get("version"):
        text = f"{text}, version {printable(release)}"
    return answer, Finding("server", OK, text)


def _clock(answer: "httpx.Response", now_s: float) -> Finding:
    if "Date" not in answer.headers:
        advice = "compare this machine's with another one: tokens and signed URLs go by it"
        return Finding("clock", WARN, "the server does not say what time it is", advice)
    ahead = ahead_of(answer, now_s)
    if abs(ahead) <= SKEW_S:
        return Finding("clock", OK, "is as the server's")
    side = "ahead of" if ahead > 0 else "behind"
    text = f"is {abs(ahead):.0f} s {side} the server's"
    return Finding("clock", WARN, text, "set this machine's: tokens and signed URLs go by it")


def _health(session: Session) -> Finding:
    try:
        session.ask("GET", HEALTH, authorize=False, repeatable=False)
    except StoreError as error:
        advice = "some of what you do may fail; the people who run it can see why"
        return Finding("health", WARN, f"the store is not well: {error}", advice)
    return Finding("health", OK, "the store says that it is well")


def _authorization(patient: Patient) -> Finding:
    about = "authorization"
    try:
        address = load(patient.session, patient.config).auth_url
        if not address:
            advice = "log in with a token: store login --access-token -"
            return Finding(about, WARN, "the store names no authorization service", advice)
        found = found_at(patient.session, address)
    except StoreError as error:
        advice = error.hint or "logging in, and staying logged in, may fail"
        return Finding(about, WARN, str(error), advice)
    return Finding(about, OK, found.issuer)


def _login(patient: Patient) -> Finding:
    config, session, environ = patient.config, patient.session, patient.environ
    tokens = tokens_of(config, environ=environ, now=patient.now)
    try:
        if tokens.bearer() is None:
            text = "nobody is logged in: what is open to everybody works"
            return Finding("login", WARN, text, "store login")
        who = whoami(session, config, tokens, environ=environ, now=patient.now)
    except StoreError as error:
        return Finding("login", FAIL, str(error), error.hint, error.exit_code)
    how = f" by {VARIABLE}" if environ.get(VARIABLE) else ""
    text = f"as {who.email}{how}"
    if who.renews:
        return Finding("login", OK, f"{text}; renews itself")
    if who.expires is not None:
        text = f"{text} until {moment(who.expires)}"
    if who.standing is not Standing.GOOD:
        return Finding("login", WARN, f"{text}: {who.standing.value}", "store login")
    return Finding("login", OK, text)
