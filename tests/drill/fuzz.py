"""The fuzzer `python -m tests.drill.fuzz`: generated requests to a whole store.

The served definitions are what they are made of and what the answers are held against. Decision
0024 says what counts as a fault.
"""

import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler
from random import Random
from typing import Any

import click
import httpx
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import from_schema

from ops import local_store
from tests.drill import checks, fuzz_accounts, fuzz_objects
from tests.drill.fuzz_objects import Naming
from tests.drill.fuzz_report import Findings
from tests.http_server import serving
from tests.live.api import ApiClient

SETTINGS = {
    # Who asks for work sees that it goes on, and does not wait for its end.
    "STORE_WAIT_S": "0.3",
    "STORE_PENDING_WAIT_S": "0.3",
    "STORE_DELIVERY_DELAYS_S": "0,1,2,5,10,30,60",
    # Whoever asks for tokens so often would have to wait.
    "STORE_TOKEN_RATE_PER_MINUTE": "0",
    "STORE_LOGIN_RATE_PER_MINUTE": "0",
    # Clouds are asked on this machine, where there are none, and nowhere else.
    "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
    "AWS_ACCESS_KEY_ID": "nobody",
    "AWS_SECRET_ACCESS_KEY": "nobody",
    "STORAGE_EMULATOR_HOST": "http://127.0.0.1:9",
}
NAMED = 0.75
"""The part of the good requests that name what is there."""

EXAMPLES = 1 / 30
"""Generated requests of each operation, for each request wanted. Beside them are what the
definition's own edges come to, some thousands, and sequences; some operations take few."""

REFUSED = [
    "400",
    "401",
    "403",
    "404",
    "405",
    "406",
    "409",
    "413",
    "415",
    "422",
    "428",
    "429",
    "5XX",
]
"""What may answer a request that the definition does not allow."""

CLOSING = ("patch_area", "delete_area")
"""Operations after which nothing comes into an area."""

SHOWN = 25
OF_ACCOUNTS = 0.3
"""Requests to the authorization service, for each to the store."""


@dataclass(frozen=True)
class Target:
    """An application by its definition, what good requests to it name, how many there should be."""

    definition: str
    naming: Callable[[str, Random], Naming | None]
    least: int
    kept: frozenset[str] = frozenset()
    """Uuids of areas that no request locks or deletes."""


@click.command()
@click.option("--seed", type=int, help="Repeat the run of this seed.")
@click.option("--requests", "least", default=5_000, show_default=True, help="Fewer are a fault.")
@click.option("--minutes", default=15.0, show_default=True, help="More are a fault.")
@click.option("--keep", is_flag=True, help="Leave the store's folder behind.")
def fuzz(seed: int | None, least: int, minutes: float, keep: bool) -> None:
    """Make requests of every kind, and hold the answers against the definition."""
    seed = secrets.randbelow(2**31) if seed is None else seed
    click.echo(f"fuzz: seed {seed}, at least {least} requests")
    began = time.monotonic()
    with (
        local_store.temporary_home(keep=keep) as home,
        local_store.running_store(home, SETTINGS) as store,
    ):
        if keep:
            click.echo(f"fuzz: {home}")
        found, late = _run(store, seed, least, began + 60 * minutes)
        faults = [
            *(fault for target, findings in found for fault in findings.faults(target.least)),
            *late,
            *_unwell(store),
        ]
    for _, findings in found:
        click.echo(findings.table())
    for fault in faults[:SHOWN]:
        click.echo(f"fuzz: FAIL {fault}")
    click.echo(
        f"fuzz: {'failed' if faults else 'held'} after {time.monotonic() - began:.0f} s"
        f" ({sum(findings.requests for _, findings in found)} requests, seed {seed}, {len(faults)} faults)"
    )
    sys.exit(1 if faults else 0)


Found = list[tuple[Target, Findings]]


def _run(
    store: local_store.LocalStore, seed: int, least: int, until: float
) -> tuple[Found, list[str]]:
    """What was found at each application, and whether time was too short for all of it."""
    found: Found = []
    with serving(_Receiver) as callback:
        for target in _targets(store, callback, seed, least):
            findings, late = _fuzzed(target, store.token, seed, until)
            found.append((target, findings))
            if late:
                return found, [f"it took too long: {target.definition}"]
    return found, []


def _targets(store: local_store.LocalStore, callback: str, seed: int, least: int) -> list[Target]:
    """The store, and then its authorization service, each with something in it."""
    known = fuzz_objects.deposit(ApiClient.open(store.api, store.token), callback, Random(seed))
    accounts = fuzz_accounts.enrol(store)
    return [
        Target(
            f"{store.api}/v1/swagger.json",
            partial(fuzz_objects.naming, known),
            least,
            frozenset((*known.staging, known.areas[0])),
        ),
        Target(
            f"{store.auth}/swagger.json",
            partial(fuzz_accounts.naming, accounts),
            round(least * OF_ACCOUNTS),
        ),
    ]


def _fuzzed(target: Target, token: str, seed: int, until: float) -> tuple[Findings, bool]:
    document = httpx.get(target.definition, trust_env=False, timeout=30.0).raise_for_status().json()
    config = SchemathesisConfig.from_dict(_config(document, token, seed, target.least))
    schema = schemathesis.openapi.from_dict(document, config=config)
    findings = Findings.of(schema.raw_schema)
    with _prepared(target, seed):
        stream = from_schema(schema).execute()
        for event in stream:
            findings.see(event)
            if time.monotonic() > until:
                stream.stop()
                return findings, True
    return findings, False


class _Receiver(BaseHTTPRequestHandler):
    """Takes whatever a subscription sends, in whatever form."""

    def do_POST(self) -> None:
        """Take it in."""
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_PUT = do_POST  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _config(document: Mapping[str, Any], token: str, seed: int, least: int) -> dict[str, Any]:
    """One request at a time, and nothing that depends on the clock: the seed decides."""
    bearer = {"Authorization": f"Bearer {token}"}
    return {
        "base-url": document["servers"][0]["url"],
        "seed": seed,
        "workers": 1,
        "cache": {"enabled": False},
        "continue-on-failure": True,
        "request-timeout": 60,
        # Where a client proves itself the header is for that.
        "operations": [{"include-name": label, "headers": bearer} for label in _asked(document)],
        # What follows the definition may still be refused: uuids that lead nowhere, and the like.
        # A body may also be refused for its size.
        "checks": {
            "positive_data_acceptance": {"enabled": False},
            "negative_data_rejection": {"expected-statuses": REFUSED},
        },
        "generation": {
            "max-examples": max(1, round(least * EXAMPLES)),
            "no-shrink": True,
            "database": "none",
        },
    }


def _asked(document: Mapping[str, Any]) -> Iterator[str]:
    """Operations that take a token: all but those of OAuth that ask for none."""
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            if "security" in operation or not path.startswith("/oauth/"):
                yield f"{verb.upper()} {path}"


@contextmanager
def _prepared(target: Target, seed: int) -> Iterator[None]:
    """Good requests name what is there; redirects are answers, and not followed."""
    made: Counter[str] = Counter()

    @schemathesis.hook
    def before_call(_context: Any, case: Any, kwargs: dict[str, Any]) -> None:
        kwargs["allow_redirects"] = False
        if _is_good(case):
            # By their number: requests that are alike in all they hold may name different things.
            operation = _operation(case)
            made[operation] += 1
            _name(case, target, Random(f"{seed} {operation} {made[operation]}"))
        # The engine reuses the ids of any answer; another seed, as the first id of this one is kept.
        if _operation(case) in CLOSING and case.path_parameters.get("uuid") in target.kept:
            nobody = fuzz_objects.uuid(Random(f"{seed} nobody"))
            case.path_parameters = {**case.path_parameters, "uuid": nobody}

    try:
        yield
    finally:
        schemathesis.hooks.unregister(before_call)


def _is_good(case: schemathesis.Case[Any]) -> bool:
    """Made to be accepted; sequences bring their own names."""
    meta = case.meta
    own = case.method.upper() == case.operation.method.upper()
    return (
        own
        and meta is not None
        and meta.generation.mode.is_positive
        and meta.phase.name.value != "stateful"
    )


def _operation(case: schemathesis.Case[Any]) -> str:
    return str(case.operation.definition.raw["operationId"])


def _name(case: schemathesis.Case[Any], target: Target, rng: Random) -> None:
    naming = target.naming(_operation(case), rng) if rng.random() < NAMED else None
    if naming is None:
        return
    case.path_parameters = {**case.path_parameters, **naming.path}
    case.query = {**case.query, **naming.query}
    if isinstance(naming.body, bytes):
        case.body = naming.body
    elif naming.body and isinstance(case.body, Mapping):
        case.body = {**case.body, **naming.body}


def _unwell(store: local_store.LocalStore) -> list[str]:
    """What the requests did to the store."""
    died = checks.ended_alone(store, lambda _: 0)
    health = httpx.get(f"{store.api}/health", trust_env=False, timeout=30.0)
    lines = (store.home / local_store.LOG).read_text(errors="replace").splitlines()
    errors = [line for line in lines if '"level": "ERROR"' in line]
    return [
        *(f"ended by itself and was started again: {name}" for name in died),
        *([] if health.status_code == 200 else [f"the store is not well: {health.text}"]),
        *(f"logged: {line}"[: local_store.LONGEST_LINE] for line in errors[:SHOWN]),
    ]


if __name__ == "__main__":
    fuzz()
