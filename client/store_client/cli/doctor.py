"""The command doctor: check the client, the store and the network between them."""

import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from store_client.atomic_files import lock_file, read_json
from store_client.auth import credentials as files
from store_client.auth.claims import TokenStatus, format_moment, make_printable
from store_client.auth.credentials import CREDENTIALS_VARIABLE
from store_client.auth.identity import clock_skew, fetch_identity
from store_client.auth.oauth import fetch_service, is_unencrypted
from store_client.auth.tokens import open_tokens
from store_client.cli.context import CommandContext, command
from store_client.cli.terminal import escape_line, style_text
from store_client.configuration import DEFAULT_URL, PROFILE, URL, Configuration
from store_client.definition import load_definition
from store_client.errors import NotAllowed, StoreError, Unreachable
from store_client.http.retries import MAX_DEFINITION, RetryPolicy
from store_client.http.session import HttpSession

if TYPE_CHECKING:
    import httpx

SKEW_S = 30.0
"""Servers forgive clocks so much."""
LITTLE = 10 * 1024**3
VERY_LITTLE = 1024**3
GIB = 1024**3
DEFINITION = "/v1/swagger.json"
HEALTH = "/health"

CheckStatus = Literal["ok", "warn", "fail"]
OK: CheckStatus = "ok"
WARN: CheckStatus = "warn"
FAIL: CheckStatus = "fail"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """The result of one check; `code` is the exit code if it fails."""

    about: str
    verdict: CheckStatus
    text: str
    advice: str = ""
    code: int = 0


@dataclass(frozen=True, slots=True)
class DoctorContext:
    """The configuration and session that are checked."""

    config: Configuration
    session: HttpSession
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    now: Callable[[], float] = time.time
    folder: Path = Path()
    """Where downloads put their cache."""


def run_checks(patient: DoctorContext) -> Iterator[DoctorFinding]:
    """Yield the result of each check; those of the store only if it answers."""
    yield _check_client()
    yield _check_store(patient)
    yield _check_configuration(patient.config)
    # Before anything reads it, which would mend it.
    yield _check_credentials(patient.config)
    yield _check_cache(patient.config)
    yield _check_disk(patient.folder)
    answer, found = _check_server(patient)
    yield found
    if answer is not None:
        yield _check_clock(answer, patient.now())
        yield _check_health(patient.session)
        yield _check_authorization(patient)
        yield _check_login(patient)


def worst_exit_code(findings: list[DoctorFinding]) -> int:
    """The most severe exit code: unreachable, not allowed, anything else."""
    codes = {
        finding.code or StoreError.exit_code for finding in findings if finding.verdict == FAIL
    }
    for code in (Unreachable.exit_code, NotAllowed.exit_code):
        if code in codes:
            return code
    return StoreError.exit_code if codes else 0


def _check_client() -> DoctorFinding:
    own = version("consortium-store-client")
    text = f"store {own}, Python {platform.python_version()} on {platform.system()}"
    return DoctorFinding("client", OK, text)


def _check_store(patient: DoctorContext) -> DoctorFinding:
    config, environ = patient.config, patient.environ
    if config.profile:
        source = f"profile {config.profile}"
    elif environ.get(URL) and not environ.get(PROFILE):
        source = f"{URL} or --url"
    else:
        source = "--url or the default"
    text = f"{config.url} ({source})"
    if is_unencrypted(config.url):
        advice = "use its https URL: others on the network can read tokens and data"
        return DoctorFinding("store in use", WARN, f"{text} is not encrypted", advice)
    if config.url == DEFAULT_URL and not config.profile:
        text = f"{config.url} (a store on this machine; another one: --url or --profile)"
    return DoctorFinding("store in use", OK, text)


def _check_configuration(config: Configuration) -> DoctorFinding:
    try:
        with lock_file(config.home / "doctor", wait_s=1):
            pass
    except StoreError as error:
        return DoctorFinding(
            "configuration", FAIL, str(error), error.hint or "correct its permissions", 1
        )
    return DoctorFinding("configuration", OK, str(config.home))


def _check_credentials(config: Configuration) -> DoctorFinding:
    files.migrate_shared_login(config)
    path, about = config.credentials, "credentials"
    if not path.exists():
        return DoctorFinding(about, OK, "none saved for this store and profile")
    if files.is_readable_by_others(path):
        files.make_private(path)
        if files.is_readable_by_others(path):
            advice = f"chmod 600 {path}"
            return DoctorFinding(about, FAIL, f"other users can read {path}", advice, 1)
        advice = "if you do not trust the other users: store logout, store login"
        return DoctorFinding(
            about, WARN, f"other users could read {path}; it is private now", advice
        )
    if files.read_login(config) is None:
        advice = "store login; or store logout, which removes it"
        return DoctorFinding(about, FAIL, f"{path} is not a valid login file", advice, 4)
    return DoctorFinding(about, OK, f"{path}, private")


def _check_cache(config: Configuration) -> DoctorFinding:
    kept = sorted(config.definitions.glob("*.json")) if config.definitions.is_dir() else []
    broken = [path.name for path in kept if "store" not in read_json(path)]
    if broken:
        text = f"{len(broken)} of {len(kept)} cached definitions cannot be read"
        return DoctorFinding("cache", WARN, text, "store clear-cache")
    return DoctorFinding("cache", OK, f"{len(kept)} definition(s) in {config.definitions}")


def _check_disk(folder: Path) -> DoctorFinding:
    place = folder.absolute()
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        text = f"{place}: {error.strerror or error}"
        return DoctorFinding("disk", WARN, text, "download elsewhere")
    text = f"{free / GIB:.1f} GiB free for downloads in {place / '.store'}"
    if not os.access(place, os.W_OK):
        return DoctorFinding("disk", WARN, f"{place} is not writable", "download elsewhere")
    if free < LITTLE:
        advice = "delete files you do not need from .store, or download elsewhere"
        return DoctorFinding("disk", FAIL if free < VERY_LITTLE else WARN, text, advice, 1)
    return DoctorFinding("disk", OK, text)


def _check_server(patient: DoctorContext) -> "tuple[httpx.Response | None, DoctorFinding]":
    config, session = patient.config, patient.session
    try:
        found = load_definition(session, config, fresh=True)
        answer = session.request("GET", DEFINITION, authorize=False, limit=MAX_DEFINITION)
    except StoreError as error:
        advice = error.hint or "check the URL and the network"
        return None, DoctorFinding("server", FAIL, str(error), advice, error.exit_code)
    text = f"{make_printable(found.title)}, {len(found.operations)} operations"
    info = answer.json().get("info", {})
    if release := info.get("version"):
        text = f"{text}, version {make_printable(release)}"
    return answer, DoctorFinding("server", OK, text)


def _check_clock(answer: "httpx.Response", now_s: float) -> DoctorFinding:
    if "Date" not in answer.headers:
        advice = (
            "compare this machine's clock with another one: tokens and signed URLs depend on it"
        )
        return DoctorFinding("clock", WARN, "the server sent no Date header", advice)
    ahead = clock_skew(answer, now_s)
    if abs(ahead) <= SKEW_S:
        return DoctorFinding("clock", OK, "matches the server's")
    side = "ahead of" if ahead > 0 else "behind"
    text = f"is {abs(ahead):.0f} s {side} the server's"
    return DoctorFinding(
        "clock", WARN, text, "set this machine's clock: tokens and signed URLs depend on it"
    )


def _check_health(session: HttpSession) -> DoctorFinding:
    try:
        session.request("GET", HEALTH, authorize=False, repeatable=False)
    except StoreError as error:
        advice = "some requests may fail; ask the operators of the store"
        return DoctorFinding("health", WARN, f"the store is not healthy: {error}", advice)
    return DoctorFinding("health", OK, "healthy")


def _check_authorization(patient: DoctorContext) -> DoctorFinding:
    about = "authorization"
    try:
        address = load_definition(patient.session, patient.config).auth_url
        if not address:
            advice = "log in with a token: store login --access-token -"
            return DoctorFinding(about, WARN, "the store names no authorization service", advice)
        found = fetch_service(patient.session, address)
    except StoreError as error:
        advice = error.hint or "login and token renewal may fail"
        return DoctorFinding(about, WARN, str(error), advice)
    return DoctorFinding(about, OK, found.issuer)


def _check_login(patient: DoctorContext) -> DoctorFinding:
    config, session, environ = patient.config, patient.session, patient.environ
    tokens = open_tokens(config, environ=environ, now=patient.now)
    try:
        if tokens.bearer() is None:
            text = "not logged in: only public requests work"
            return DoctorFinding("login", WARN, text, "store login")
        who = fetch_identity(session, config, tokens, environ=environ, now=patient.now)
    except StoreError as error:
        return DoctorFinding("login", FAIL, str(error), error.hint, error.exit_code)
    how = f" by {CREDENTIALS_VARIABLE}" if environ.get(CREDENTIALS_VARIABLE) else ""
    text = f"as {who.email}{how}"
    if who.renews:
        return DoctorFinding("login", OK, f"{text}; renews itself")
    if who.expires is not None:
        text = f"{text} until {format_moment(who.expires)}"
    if who.status is not TokenStatus.GOOD:
        return DoctorFinding("login", WARN, f"{text}: {who.status.value}", "store login")
    return DoctorFinding("login", OK, text)


HASTY = RetryPolicy(waits_s=(1,), unknown_retries=0, retry_after_cap_s=5, connect_s=5, read_s=20)
"""Short, because the doctor should answer fast."""
COLOURS = {OK: "green", WARN: "yellow", FAIL: "red"}


@command(
    "doctor",
    help="Find problems and how to solve them. Exit code: 7 if the store does "
    "not answer, 4 if it rejects your login, 1 for any other problem, else 0.",
    example="store doctor --url https://store.example",
)
def doctor(here: CommandContext) -> None:
    findings: list[DoctorFinding] = []
    with HttpSession(here.config.url, policy=HASTY) as session:
        for finding in run_checks(DoctorContext(here.config, session, folder=Path.cwd())):
            findings.append(finding)
            if not here.json:
                _print_finding(finding)
    if here.json:
        found = [asdict(finding) for finding in findings]
        here.show([{name: one[name] for name in one if name != "code"} for one in found])
    click.get_current_context().exit(worst_exit_code(findings))


def _print_finding(finding: DoctorFinding) -> None:
    mark = style_text(f"{finding.verdict:4}", fg=COLOURS[finding.verdict])
    click.echo(f"{mark}  {finding.about:14} {escape_line(finding.text)}")
    if finding.advice and finding.verdict != OK:
        click.echo(f"{'':20}→ {escape_line(finding.advice)}")
