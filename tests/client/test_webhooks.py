"""Webhooks: requests that the server builds are verified, whatever framework received them."""

import asyncio
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import aiohttp.test_utils
import aiohttp.web
import django.conf
import django.core.handlers.asgi
import django.core.handlers.wsgi
import flask
import httpx
import pytest
import starlette.applications
import starlette.requests
import starlette.responses
import starlette.routing

from examples.webhooks import signature_errors
from pipelines.deliveries import WebhookRequest, build_request
from store_client import Misused, StoreError, webhooks
from store_client.webhooks import InvalidSignature, WebhookEvent, verify
from tests.http_server import serving_app
from tests.pipelines.delivery_builders import NOW_US, a_due
from web.samples import verify_signature

pytestmark = pytest.mark.spec("WHK-01")

SECRET = 'a secret with ümlauts and " quotes'
BUNDLE, VERSION = "11111111-1111-4111-8111-111111111111", "2026-01-01T000000.000000Z"
SUBSCRIPTION = a_due().subscription_uuid
PAYLOAD = {
    "transaction_id": a_due().uuid,
    "subscription_id": SUBSCRIPTION,
    "match": {"bundle_uuid": BUNDLE, "bundle_version": VERSION},
    "event_type": "TOMBSTONE",
    "bundle_url": f"https://store.example/v1/bundles/{BUNDLE}",
    "event_timestamp": "2026-01-01T000001.000000Z",
    "attachments": {"organism": "Danio rerio ä"},
}
NOW_S = NOW_US / 1e6
URL = "https://receiver.example/hook%20one/ä?x=%2F1&y"
TARGET = "/hook%20one/%C3%A4?x=%2F1&y"


def built(*secrets: str, attempt: int = 2, **due: Any) -> WebhookRequest:
    """A request as the server sends it."""
    given = {"payload": json.dumps(PAYLOAD, ensure_ascii=False), "callback_url": URL} | due
    keys = [secret.encode() for secret in secrets or (SECRET,)]
    return build_request(a_due(**given), attempt=attempt, now_us=NOW_US, keys=keys)


def check(
    sent: WebhookRequest,
    secrets: Any = SECRET,
    *,
    changed: Mapping[str, str | None] = {},
    body: bytes | None = None,
    target: str = TARGET,
    method: str = "POST",
    **more: Any,
) -> WebhookEvent:
    """Verify a request as plain headers, some of them changed, or removed if None."""
    merged = {**sent.headers, **changed}
    return verify(
        {name: value for name, value in merged.items() if value is not None},
        secrets,
        body=sent.body if body is None else body,
        method=method,
        target=target,
        **({"clock": lambda: NOW_S} | more),
    )


SCHEMES = ("standard", "http")


@pytest.mark.parametrize("scheme", [None, *SCHEMES])
@pytest.mark.parametrize("encoding", ["application/json", "multipart/form-data"])
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_verifies_what_the_server_signs(scheme: Any, encoding: str, method: str) -> None:
    fields = {"about": 'x"; name="payload', "more": "--store-"}
    sent = built(encoding=encoding, method=method, form_fields=fields)
    event = check(sent, scheme=scheme, method=method)
    assert event == WebhookEvent(
        delivery_id=a_due().uuid,
        subscription_id=SUBSCRIPTION,
        kind="TOMBSTONE",
        bundle_uuid=BUNDLE,
        bundle_version=VERSION,
        is_test=False,
        attempt=2,
        timestamp="2026-01-01T000001.000000Z",
        bundle_url=f"https://store.example/v1/bundles/{BUNDLE}",
        attachments={"organism": "Danio rerio ä"},
        payload=PAYLOAD,
    )
    assert event.bundle_fqid == f"{BUNDLE}.{VERSION}"


def test_reads_the_payload_from_the_form_field_of_the_subscription() -> None:
    sent = built(encoding="multipart/form-data", payload_form_field='the "data"')
    assert check(sent, payload_form_field='the "data"').bundle_uuid == BUNDLE
    with pytest.raises(InvalidSignature, match="no field 'payload'"):
        check(sent)


def test_takes_the_boundary_of_a_form_from_the_signed_body() -> None:
    inner = PAYLOAD | {"match": {"bundle_uuid": "forged", "bundle_version": VERSION}}
    form = (
        f'--x\r\nContent-Disposition: form-data; name="payload"\r\n\r\n{json.dumps(inner)}\r\n--x--'
    )
    sent = built(encoding="multipart/form-data", form_fields={"a": form})
    event = check(sent, changed={"Content-Type": "multipart/form-data; boundary=x"})
    assert event.bundle_uuid == BUNDLE


def test_events_of_elasticsearch_subscriptions_are_new_bundles() -> None:
    payload = {name: value for name, value in PAYLOAD.items() if name != "event_type"}
    assert check(built(payload=json.dumps(payload | {"es_query": {}}))).kind == "CREATE"


def test_marks_tests() -> None:
    payload = {name: value for name, value in PAYLOAD.items() if name != "bundle_url"}
    event = check(built(payload=json.dumps(payload | {"test": True}), is_test=True))
    assert (event.is_test, event.bundle_url) == (True, None)


def refused(*given: Any, **more: Any) -> str:
    with pytest.raises(InvalidSignature) as caught:
        check(*given, **more)
    assert SECRET not in f"{caught.value} {caught.value.hint}"
    return str(caught.value)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_rejects_a_changed_body(scheme: str) -> None:
    sent = built()
    refused(sent, scheme=scheme, body=sent.body + b" ")
    refused(sent, scheme=scheme, body=b"")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("secrets", ["another", ["another", "x"], SECRET.upper(), [b"\xff"]])
def test_rejects_another_secret(scheme: str, secrets: Any) -> None:
    assert "is not by this secret" in refused(built(), secrets, scheme=scheme)


@pytest.mark.parametrize(
    ("scheme", "name"),
    [
        *(("standard", name) for name in ("webhook-id", "webhook-timestamp", "webhook-signature")),
        *(("http", name) for name in ("Host", "Date", "Digest", "Authorization")),
    ],
)
def test_rejects_missing_changed_and_repeated_headers(scheme: Any, name: str) -> None:
    sent = built()
    value = sent.headers[name]
    joined = f"{value},{value}"  # as WSGI servers join repeated headers
    for changed in (None, "", value[:-1], f"{value}0", joined, "ä", "\udc80", "9" * 5000):
        refused(sent, scheme=scheme, changed={name: changed})
    later = {"webhook-timestamp": str(int(NOW_S) + 1), "Date": "Thu, 01 Jan 2026 00:00:01 GMT"}
    if name in later:
        assert "changed on its way" in refused(sent, scheme=scheme, changed={name: later[name]})
    pairs = [*sent.headers.items(), (name.upper(), value)]
    with pytest.raises(InvalidSignature, match=f"{name.lower()}: the header is repeated"):
        verify(pairs, SECRET, body=sent.body, method="POST", target=TARGET, clock=lambda: NOW_S)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("late_s", "accepted"), [(300, True), (-300, True), (301, False), (-301, False)]
)
def test_rejects_old_notifications_and_those_of_the_future(
    scheme: str, late_s: int, accepted: bool
) -> None:
    if accepted:
        check(built(), scheme=scheme, clock=lambda: NOW_S + late_s)
    else:
        when = "301 s in the future" if late_s < 0 else "301 s ago"
        assert when in refused(built(), scheme=scheme, clock=lambda: NOW_S + late_s)
    check(built(), scheme=scheme, clock=lambda: NOW_S + late_s, tolerance_s=301)


@pytest.mark.parametrize("target", ["/hook%20one/%C3%A4", "/hook one/ä?x=%2F1&y", f"{TARGET}&z"])
def test_http_signatures_cover_the_target_and_method(target: str) -> None:
    assert "changed on its way" in refused(built(), target=target, scheme="http")
    assert "changed on its way" in refused(built(), method="PUT", scheme="http")
    check(built(), target=target)  # Standard Webhooks do not


@pytest.mark.parametrize(
    ("part", "instead", "reason"),
    [
        ('algorithm="hmac-sha256"', 'algorithm="none"', "algorithm must be"),
        ('algorithm="hmac-sha256"', 'algorithm="hmac-sha1"', "algorithm must be"),
        ('algorithm="hmac-sha256"', 'algorithm="hs2019"', "algorithm must be"),
        ('algorithm="hmac-sha256"', 'algorithm="rsa-sha256"', "algorithm must be"),
        ('algorithm="hmac-sha256",', "", "algorithm must be"),
        (' digest"', '"', "headers must be"),
        ("(request-target) host", "host", "headers must be"),
        ('headers="(request-target) host date digest",', "", "headers must be"),
        ("Signature ", "Bearer ", "of the scheme Signature"),
        ("Signature ", "Signature x, ", "of the scheme Signature"),
        ('keyId="', 'keyId="a",keyId="', "must be|repeated|scheme"),
        (",signature=", ',signature="a",signature=', "repeated"),
    ],
)
def test_rejects_confused_algorithms_and_parameters(part: str, instead: str, reason: str) -> None:
    sent = built()
    changed = sent.headers["Authorization"].replace(part, instead)
    assert changed != sent.headers["Authorization"]
    with pytest.raises(InvalidSignature, match=reason):
        check(sent, changed={"Authorization": changed}, scheme="http")


@pytest.mark.parametrize("version", ["v1a,", "v2,", ",", ""])
def test_rejects_other_versions_of_standard_webhooks(version: str) -> None:
    sent = built()
    changed = sent.headers["webhook-signature"].replace("v1,", version)
    refused(sent, changed={"webhook-signature": changed})


@pytest.mark.parametrize("headers", [{}, [], {"webhook-id": "1", "Date": "now"}])
def test_rejects_unsigned_requests(headers: Any) -> None:
    with pytest.raises(InvalidSignature, match="neither webhook-signature nor Authorization"):
        verify(headers, SECRET, body=b"{}", method="POST", target="/")


def test_without_the_target_only_standard_webhooks_are_verified() -> None:
    sent = built()
    headers = dict(sent.headers)
    verify(headers, SECRET, body=sent.body, clock=lambda: NOW_S)
    del headers["webhook-signature"]
    with pytest.raises(InvalidSignature, match="without the method and target"):
        verify(headers, SECRET, body=sent.body, clock=lambda: NOW_S)


@pytest.mark.parametrize(
    "secrets", ["", b"", [], {}, [""], ["x", ""], {"id": ""}, {"id": []}, None, 7, [None], "\ud800"]
)
def test_rejects_empty_and_missing_secrets(secrets: Any) -> None:
    with pytest.raises(Misused, match="secrets: "):
        check(built(), secrets)
    with pytest.raises(Misused, match="secrets: "):
        verify({}, secrets, body=b"")


@pytest.mark.parametrize("tolerance", [0, -1, float("nan")])
def test_rejects_senseless_tolerances(tolerance: float) -> None:
    with pytest.raises(Misused, match="tolerance_s"):
        check(built(), tolerance_s=tolerance)


def test_secrets_are_replaced_without_a_gap() -> None:
    old, new = "the old one", SECRET
    rotating = built(new, old)
    for secrets in (old, new, [old, new], [b"the old one"], {"a": old}, {"a": ["x", new]}):
        check(rotating, secrets)
    check(rotating, [old, new], scheme="http")
    refused(rotating, old, scheme="http")  # Authorization is by the new one at once


def test_key_ids_choose_the_secret() -> None:
    mine = built(hmac_key_id="mine")
    check(mine, {"mine": SECRET, "other": "x"}, scheme="http")
    assert "no secret for keyId 'mine'" in refused(mine, {"other": SECRET}, scheme="http")
    refused(mine, {"mine": "x", "other": SECRET}, scheme="http")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_secret_of_a_subscription_signs_for_no_other(scheme: str) -> None:
    own, other = f"store:{SUBSCRIPTION}", "store:another"
    check(built(), {own: SECRET}, scheme=scheme)
    check(built(), {own: SECRET, other: "x"}, scheme=scheme)
    forged = built(hmac_key_id=other)
    assert "another subscription" in refused(forged, {own: "x", other: SECRET}, scheme=scheme)


def test_the_id_to_recognize_repetitions_by_is_signed() -> None:
    payload = PAYLOAD | {"transaction_id": "another"}
    assert "transaction_id" in refused(built(payload=json.dumps(payload)))
    assert check(built(payload=json.dumps(payload)), scheme="http").delivery_id == "another"


@pytest.mark.parametrize(
    "payload",
    [
        "",
        "[]",
        "null",
        "{",
        "[" * 100_000,
        '{"match": NaN}',
        json.dumps(PAYLOAD | {"match": None}),
        json.dumps(PAYLOAD | {"event_type": "PING"}),
        json.dumps(PAYLOAD | {"event_type": []}),
        json.dumps(PAYLOAD | {"subscription_id": 1}),
        json.dumps(PAYLOAD | {"attachments": "x"}),
        f'{{"match": {"9" * 5000}}}',
    ],
)
def test_rejects_signed_bodies_that_are_no_notification(payload: str) -> None:
    for scheme in SCHEMES:
        assert "not a notification" in refused(built(payload=payload), scheme=scheme)


@pytest.mark.parametrize("attempt", ["", "0x2", "-1", "9" * 5000, "²"])
def test_a_strange_attempt_header_counts_as_the_first(attempt: str) -> None:
    assert check(built(), changed={"X-STORE-NOTIFY-ATTEMPT": attempt}).attempt == 1


@pytest.mark.parametrize("request_", [None, 7, "headers", [1], {}.keys])
def test_rejects_what_has_no_headers(request_: Any) -> None:
    with pytest.raises(Misused, match="request: "):
        verify(request_, SECRET, body=b"")


def test_needs_the_body() -> None:
    with pytest.raises(Misused, match="body: the bytes"):
        verify({}, SECRET)
    with pytest.raises(Misused, match="must be bytes"):
        verify({}, SECRET, body="{}")  # type: ignore[arg-type]


def test_scheme_is_known() -> None:
    with pytest.raises(Misused, match="scheme: "):
        verify({}, SECRET, body=b"", scheme="none")  # type: ignore[arg-type]


def test_the_error_is_one_of_the_client() -> None:
    assert issubclass(InvalidSignature, StoreError)


# Both ways: the client signs as the server does, and programs to copy agree.


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_signs_as_the_server_does(method: str) -> None:
    sent = built(method=method)
    signed = webhooks.sign(
        SECRET,
        sent.body,
        delivery_id=a_due().uuid,
        host="receiver.example",
        target=TARGET,
        method=method,
        key_id=f"store:{SUBSCRIPTION}",
        now_s=NOW_S + 0.9,
    )
    assert signed.items() <= sent.headers.items()
    for scheme in SCHEMES:
        check(WebhookRequest(method, "", signed, sent.body), scheme=scheme, method=method)


@pytest.mark.parametrize(
    ("secret", "changed"), [(SECRET, False), ("another", False), (SECRET, True)]
)
def test_programs_to_copy_agree(secret: str, changed: bool) -> None:
    """About requests of this moment, since they look at the clock themselves."""
    body = json.dumps(PAYLOAD).encode()
    signed = webhooks.sign(
        SECRET, body, delivery_id=a_due().uuid, host="receiver.example", target=TARGET
    )
    body = body + b" " if changed else body
    headers = {name.lower(): value for name, value in signed.items()}

    def is_valid(scheme: Any) -> bool:
        try:
            verify(headers, secret, body=body, method="POST", target=TARGET, scheme=scheme)
        except InvalidSignature:
            return False
        return True

    valid = secret == SECRET and not changed
    assert is_valid("standard") is is_valid("http") is valid
    assert verify_signature.verify_webhook(headers, body, [secret]) is valid
    assert verify_signature.verify_http_signature(headers, body, secret, "POST", TARGET) is valid
    assert (signature_errors(headers, TARGET, body, secret) == []) is valid


# Frameworks


Verified = WebhookEvent | InvalidSignature


def judge(work: Callable[[], WebhookEvent]) -> tuple[Verified, int]:
    try:
        return work(), 204
    except InvalidSignature as error:
        return error, 403


def now() -> float:
    return NOW_S


def flask_app(seen: list[Verified], scheme: Any) -> Any:
    app = flask.Flask("receiver")

    @app.route("/<path:path>", methods=["POST"])
    def receive(path: str) -> tuple[str, int]:
        found, status = judge(lambda: verify(flask.request, SECRET, scheme=scheme, clock=now))
        seen.append(found)
        return "", status

    return app


def django_wsgi_app(seen: list[Verified], scheme: Any) -> Any:
    if not django.conf.settings.configured:
        django.conf.settings.configure()

    def app(environ: Any, start_response: Any) -> list[bytes]:
        request = django.core.handlers.wsgi.WSGIRequest(environ)
        found, status = judge(lambda: verify(request, SECRET, scheme=scheme, clock=now))
        seen.append(found)
        start_response(f"{status} Whatever", [])
        return []

    return app


@contextmanager
def by_wsgiref(app: Any) -> Iterator[str]:
    """A server that tells only the decoded path."""

    class Handler(WSGIRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with make_server("127.0.0.1", 0, app, handler_class=Handler) as server:
        yield from run_server(server)


def run_server(server: Any) -> Iterator[str]:
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()


@pytest.mark.spec("WHK-02")
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("make", [flask_app, django_wsgi_app])
@pytest.mark.parametrize("serve", [by_wsgiref, serving_app])
def test_verifies_requests_of_wsgi_frameworks(make: Any, scheme: str, serve: Any) -> None:
    seen: list[Verified] = []
    with serve(make(seen, scheme)) as base, httpx.Client(trust_env=False) as client:
        post_and_check(
            lambda sent: client.post(f"{base}{TARGET}", headers=sent[0], content=sent[1]), seen
        )


def post_and_check(post: Callable[[tuple[Any, bytes]], Any], seen: list[Verified]) -> None:
    sent = built()
    assert post((sent.headers, sent.body)).status_code == 204
    assert isinstance(seen[-1], WebhookEvent)
    assert seen[-1].bundle_uuid == BUNDLE
    assert post((sent.headers, sent.body + b" ")).status_code == 403
    assert post(({}, sent.body)).status_code == 403
    assert len(seen) == 3


def starlette_app(seen: list[Verified], scheme: Any) -> Any:
    async def receive(request: starlette.requests.Request) -> starlette.responses.Response:
        body = await request.body()
        found, status = judge(lambda: verify(request, SECRET, body=body, scheme=scheme, clock=now))
        seen.append(found)
        return starlette.responses.Response(status_code=status)

    route = starlette.routing.Route("/{path:path}", receive, methods=["POST"])
    return starlette.applications.Starlette(routes=[route])


def django_asgi_app(seen: list[Verified], scheme: Any) -> Any:
    if not django.conf.settings.configured:
        django.conf.settings.configure()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        request = django.core.handlers.asgi.ASGIRequest(scope, io.BytesIO(body))
        found, status = judge(lambda: verify(request, SECRET, scheme=scheme, clock=now))
        seen.append(found)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    return app


@pytest.mark.spec("WHK-02")
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("make", [starlette_app, django_asgi_app])
def test_verifies_requests_of_asgi_frameworks(make: Any, scheme: str) -> None:
    seen: list[Verified] = []

    async def post(sent: tuple[Any, bytes]) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(make(seen, scheme))) as client:
            return await client.post(URL, headers=sent[0], content=sent[1])

    post_and_check(lambda sent: asyncio.run(post(sent)), seen)


@pytest.mark.spec("WHK-02")
def test_starlette_requests_need_their_body_awaited() -> None:
    request = starlette.requests.Request({"type": "http", "headers": [], "path": "/"})
    with pytest.raises(Misused) as caught:
        verify(request, SECRET)
    assert "await request.body()" in caught.value.hint


@pytest.mark.spec("WHK-02")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_verifies_requests_of_aiohttp(scheme: Any) -> None:
    seen: list[Verified] = []

    async def receive(request: aiohttp.web.Request) -> aiohttp.web.Response:
        body = await request.read()
        found, status = judge(lambda: verify(request, SECRET, body=body, scheme=scheme, clock=now))
        seen.append(found)
        return aiohttp.web.Response(status=status)

    async def post(sent: tuple[Any, bytes]) -> httpx.Response:
        app = aiohttp.web.Application()
        app.router.add_post("/{path:.*}", receive)
        async with aiohttp.test_utils.TestServer(app) as server, httpx.AsyncClient() as client:
            url = f"http://{server.host}:{server.port}{TARGET}"
            return await client.post(url, headers=sent[0], content=sent[1])

    post_and_check(lambda sent: asyncio.run(post(sent)), seen)


@contextmanager
def http_server(seen: list[Verified], scheme: Any) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found, status = judge(lambda: verify(self, SECRET, scheme=scheme, clock=now))
            seen.append(found)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        yield from run_server(server)


@pytest.mark.spec("WHK-02")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_verifies_requests_of_http_server(scheme: Any) -> None:
    seen: list[Verified] = []
    with http_server(seen, scheme) as base, httpx.Client(trust_env=False) as client:
        post_and_check(
            lambda sent: client.post(f"{base}{TARGET}", headers=sent[0], content=sent[1]), seen
        )
        chunked = client.post(base, content=iter([b"{}"]))
        assert chunked.status_code == 403
        assert "content-length" in str(seen[-1])


@pytest.mark.spec("WHK-02")
def test_takes_raw_headers_of_asgi() -> None:
    sent = built()
    raw = [(name.lower().encode(), value.encode()) for name, value in sent.headers.items()]
    verify(raw, SECRET, body=sent.body, method="POST", target=TARGET, scheme="http", clock=now)
