"""Both applications on one store, with real tokens and the objects of the permissions table."""

import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from flask.testing import FlaskClient
from joserfc.jwk import RSAKey

from api.app import build_verifier, create_app
from api.authz import create_auth_app
from auth import service_accounts
from auth.accounts import AuditContext
from auth.service_accounts import ServiceAccounts, parse_public_key
from auth.tokens.issuance import TokenSpec, issue_token
from auth.tokens.signing_keys import SigningKeyFile, SigningKeys
from config import Settings
from storage.stores import Stores
from tests.api.builders import AREA, INGEST, READER, VERSION, Depositor, uuid_of
from tests.api.conftest import verify
from tests.auth.builders import segment, signed
from tests.conftest import Outbox, draining
from tests.permissions_table import COLLECTION, POLICY, Row

NOW = 1_780_000_000.0
AUTH = "https://auth.example"
LATER = "2026-02-01T000000.000000Z"
PEOPLE = {
    name: f"{name}@example.org"
    for name in ("disabled", "stranger", "reader", "other", "robot", "admin", "member")
} | {"ingester": "ingest@example.org"}
CLAIMS = {"disabled": ("store_admin",), "other": ("store_ingest",), "admin": ("store_admin",)}
"""Groups that the tokens of some claim; what the others may is in the records."""

_WORD = re.compile("<([a-z_]+)>")


@dataclass
class World:
    """Both applications, as whoever asks them sees them."""

    settings: Settings
    stores: Stores
    job_queue: Outbox
    things: dict[str, Any] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    drain: Callable[[], int] = field(init=False)
    robot: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, auto_kid=True))
    _numbers: Any = field(default_factory=lambda: count(0xF0000))

    def __post_init__(self) -> None:
        self.drain = draining(self.stores, self.job_queue)
        accounts = ServiceAccounts(self.stores.catalog, lifetime_s=3600)
        self._verify = build_verifier(self.settings, lambda: NOW, accounts=accounts).verify
        self.auth = create_auth_app(
            self.settings, self.stores.catalog, verify=self._verify, clock=lambda: NOW
        ).test_client(use_cookies=False)
        self.store = self.opened()
        # Where what is asked for comes from; tokens are names there.
        built = create_app(self.settings, self.stores, job_queue=self.job_queue, verify=verify)
        self.depositor = Depositor(built.test_client(), self.drain)
        self.closed = self.opened(closed_operations=("*",))

    def opened(self, **changed: Any) -> FlaskClient:
        """A process of the store with some settings changed."""
        settings = replace(self.settings, **changed)
        app = create_app(settings, self.stores, job_queue=self.job_queue, verify=self._verify)
        return app.test_client()

    def status(self, client: FlaskClient, row: Row, caller: str) -> int:
        """What the caller is answered."""
        given = {"json": self.filled(row.body, caller)} if row.body is not None else {}
        if row.content:
            kind = "application/x-www-form-urlencoded" if client is self.auth else "text/plain"
            given = {"data": row.content, "content_type": row.content_type or kind}
        return self.ask(client, caller, row.method, self.filled(row.path, caller), **given)

    def ask(self, client: FlaskClient, caller: str, method: str, path: str, **given: Any) -> int:
        """The status of one request."""
        answer = client.open(
            path,
            method=method,
            base_url=AUTH if client is self.auth else None,
            headers=self.shown(caller),
            **given,
        )
        if answer.status_code == 401:
            assert answer.headers["WWW-Authenticate"]
        return answer.status_code

    def shown(self, caller: str) -> dict[str, str]:
        """The header that the caller sends."""
        return {"Authorization": f"Bearer {self.tokens[caller]}"} if caller != "anonymous" else {}

    def admin(self, method: str, path: str, body: Any = None) -> Any:
        """An administrator's request to the authorization service, which works."""
        answer = self.auth.open(
            path, method=method, base_url=AUTH, json=body, headers=self.shown("admin")
        )
        assert answer.status_code in (200, 201), answer.text
        return answer.json

    def fresh(self) -> str:
        """A uuid that nothing has."""
        return uuid_of(next(self._numbers))

    def person(self, *, policy: Any = None, **more: Any) -> str:
        """Somebody new with a record and a token that claims nothing; their address."""
        email = f"{self.fresh()}@example.org"
        self.admin("POST", "/v1/user", {"user_id": email, "policy": policy, **more})
        self.tokens[email] = self.token(email)
        return email

    def staged(self, caller: str) -> str:
        """A file in an upload area of the caller's own, as a source."""
        area = f"/v1/area/{self.fresh()}"
        for method, path in (("POST", area), ("PUT", f"{area}/files/s.txt")):
            answer = self.store.open(path, method=method, data=b"s", headers=self.shown(caller))
            assert answer.status_code == 201, answer.text
        return str((answer.json or {})["url"])

    def token(self, email: str, *groups: str, **changed: Any) -> str:
        """A token of an operator's."""
        given = {"issuer": AUTH, "audience": ["store"], "now": NOW, "token_id": "1", **changed}
        return issue_token(self.keys, TokenSpec(email, groups, 3600), **given)

    @property
    def keys(self) -> SigningKeys:
        """What tokens are signed with."""
        return SigningKeyFile(self.settings.home, self.settings.secret_key).read()

    def filled(self, asked: Any, caller: str) -> Any:
        """What the table asks for, with the names of what is there."""
        if isinstance(asked, dict):
            return {name: self.filled(value, caller) for name, value in asked.items()}
        if isinstance(asked, list):
            return [self.filled(value, caller) for value in asked]
        if not isinstance(asked, str):
            return asked
        if whole := _WORD.fullmatch(asked):
            return self._thing(whole[1], caller)
        return _WORD.sub(lambda word: str(self._thing(word[1], caller)), asked)

    def _thing(self, word: str, caller: str) -> Any:
        if word == "fresh":
            return self.fresh()
        found = self.things[word]
        return found.get(caller, "file:///none") if word.startswith("own_") else found


def peopled(world: World) -> World:
    """With tokens for every caller, and records for those who have one."""
    admin, key = (PEOPLE["admin"], "store_admin"), world.keys.signing_key
    kid = str(key.kid)
    world.tokens |= {
        name: world.token(email, *CLAIMS.get(name, ())) for name, email in PEOPLE.items()
    }
    world.tokens |= {
        "malformed": "nonsense",
        "expired": world.token(*admin, now=NOW - 10_000),
        "elsewhere": world.token(*admin, audience=["elsewhere"]),
        "foreign": world.token(*admin, issuer="https://other.example"),
        "unsigned": _forged(world.tokens["admin"], kid, "none"),
        "confused": _forged(world.tokens["admin"], kid, "HS256", key.as_pem(private=False)),
        "robot": _robots(world),
    }
    for kind, name in (("role", "does"), ("role", "did"), ("group", "team"), ("group", "gone")):
        policy = {"policy": POLICY} if kind == "role" else {}
        world.admin("POST", f"/v1/{kind}", {f"{kind}_id": name, **policy})
    for name in ("reader", "ingester", "robot", "disabled", "member"):
        roles = ["store_ingest"] if name in ("ingester", "robot") else []
        world.admin("POST", "/v1/user", {"user_id": PEOPLE[name], "roles": roles})
    world.admin("PUT", f"/v1/user/{PEOPLE['disabled']}?status=disabled")
    world.things |= {"role": "does", "old_role": "did", "group": "team", "old_group": "gone"}
    world.things |= {name: PEOPLE[name] for name in ("reader", "member")}
    return world


def _forged(token: str, kid: str, algorithm: str, secret: bytes = b"") -> str:
    """The same claims under another header; without a secret, unsigned."""
    said = f"{segment({'alg': algorithm, 'kid': kid})}.{token.split('.')[1]}"
    return f"{said}.{segment(hmac.digest(secret, said.encode(), 'sha256')) if secret else ''}"


def _robots(world: World) -> str:
    """The token that a service account on the list signed itself."""
    key = parse_public_key(world.robot.as_pem(private=False).decode())
    with world.stores.catalog.write() as tx:
        service_accounts.add_account_key(
            tx, PEOPLE["robot"], key, by=AuditContext("operator", "test", "1")
        )
    own = dict.fromkeys(("iss", "sub", "email"), PEOPLE["robot"])
    return signed(world.robot, {**own, "aud": "store", "iat": NOW, "exp": NOW + 3600})


def furnished(world: World) -> World:
    """With what the requests name; the deposits are the ingester's, the subscriptions the
    reader's."""
    depositor, client = world.depositor, world.depositor.client
    world.things |= {"version": VERSION, "area": AREA, "entry": depositor.file(0x20)}
    for number, name in enumerate(("bundle", "patched", "buried", "doomed"), start=1):
        world.things[name] = depositor.bundle(number)
    world.things |= {"file": uuid_of(0x20), "source": depositor.stage(b"staged", "s.txt")}
    world.things["own_source"] = {
        caller: world.staged(caller) for caller in ("ingester", "other", "robot", "admin")
    }
    world.things["left_area"] = world.fresh()
    _made(client.post(f"/v1/area/{world.things['left_area']}", headers=INGEST))
    for name in ("upload", "whole_upload", "left_upload"):
        world.things[name] = _begun(client)
    world.things["task"] = depositor.put_file(uuid_of(0x21), b"later").json["task_id"]
    world.drain()
    for name in ("collection", "left"):
        world.things[name] = world.fresh()
        query = f"uuid={world.things[name]}&version={VERSION}&replica=aws"
        _made(client.put(f"/v1/collections?{query}", json=COLLECTION, headers=INGEST))
    begun = client.post(f"/v1/bundles/{world.things['bundle']}/checkout?replica=aws")
    world.things["checkout"] = _made(begun)["checkout_job_id"]
    _subscribe(world, client)
    world.drain()
    return world


def _begun(client: FlaskClient) -> str:
    """An upload into the area, of which everything came."""
    path = f"/v1/area/{AREA}/uploads/u.txt"
    begun = _made(client.post(path, json={"size": 7}, headers=INGEST))
    where = {"upload_id": begun["upload_id"], "part": 1}
    _made(client.put(path, query_string=where, data=b"content", headers=INGEST))
    return str(begun["upload_id"])


def _subscribe(world: World, client: FlaskClient) -> None:
    for name in ("subscription", "ended", "replayed"):
        body = {"callback_url": "http://127.0.0.1:9/told"}
        made = client.put("/v1/subscriptions?replica=aws", json=body, headers=READER)
        world.things[name] = _made(made)["uuid"]
    own = f"/v1/subscriptions/{world.things['subscription']}"
    tested = client.post(f"{own}/test?replica=aws", headers=READER)
    world.things["delivery"] = _made(tested)["id"]
    replayed = client.post(f"{own}/replay?replica=aws", json={}, headers=READER)
    world.things["replay"] = _made(replayed)["replay_id"]


def _made(answer: Any) -> Mapping[str, Any]:
    assert answer.status_code in (200, 201, 202), answer.text
    found: Mapping[str, Any] = answer.json
    return found
