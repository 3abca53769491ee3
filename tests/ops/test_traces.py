"""Traces of a running store, at a collector that speaks OTLP."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socket import create_server
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from config import SettingsError, load_settings
from ops.local_store import LOG, LocalStore, running_store
from ops.procfile import ROOT
from storage.opentelemetry_traces import CollectorTracer
from storage.tracing import Tracer, bind_traceparent, join_request, split_request
from tests.api.builders import AREA
from tests.builders import new_uuid, version
from tests.http_server import serving
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.spec("OPS-03")

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{CALLER}-01"
SECRET_QUERY = "do-not-record"


@dataclass
class Collected:
    """What a collector and a receiver of deliveries got."""

    spans: list[Span] = field(default_factory=list)
    resources: list[dict[str, str]] = field(default_factory=list)
    deliveries: list[dict[str, str]] = field(default_factory=list)

    def of_trace(self) -> dict[str, list[Span]]:
        """Spans of the caller's trace by name."""
        found: dict[str, list[Span]] = {}
        for span in list(self.spans):
            if span.trace_id.hex() == TRACE:
                found.setdefault(span.name, []).append(span)
        return found


def make_handler(collected: Collected) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/traces":
                sent = ExportTraceServiceRequest.FromString(body)
                for one in sent.resource_spans:
                    named = {item.key: item.value.string_value for item in one.resource.attributes}
                    collected.resources.append(named)
                    for scope in one.scope_spans:
                        collected.spans.extend(scope.spans)
            else:
                collected.deliveries.append({k.lower(): v for k, v in self.headers.items()})
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args: Any) -> None:
            """Log nothing."""

    return Handler


def deposit(store: LocalStore, callback: str, headers: dict[str, str]) -> None:
    """Subscribe, then deposit a bundle of one file, with these headers."""
    bearer = {"Authorization": f"Bearer {store.token}"}
    with httpx.Client(base_url=f"{store.api}/v1", trust_env=False, timeout=30) as http:
        http.headers.update(bearer)
        body = {"callback_url": callback, "jmespath_query": "manifest.files"}
        http.put("/subscriptions", params={"replica": "aws"}, json=body).raise_for_status()
        http.post(f"/area/{AREA}").raise_for_status()
        http.headers.update(headers)
        staged = http.put(f"/area/{AREA}/files/a.txt", content=b"content")
        staged.raise_for_status()
        file, named = new_uuid(), {"version": version(1)}
        body = {"creator_uid": 1, "source_url": staged.json()["url"]}
        http.put(f"/files/{file}", params=named, json=body).raise_for_status()
        entry = {"uuid": file, "version": version(1), "name": "a.txt", "indexed": False}
        body = {"creator_uid": 1, "files": [entry]}
        asked = {**named, "replica": "aws"}
        http.put(f"/bundles/{new_uuid()}", params=asked, json=body).raise_for_status()


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collected]:
    collected = Collected()
    wanted = {"put_file", "put_bundle", "verify", "sync", "index", "match", "deliver"}
    wanted |= {"auth_get_jwks.json"}
    with ExitStack() as stack:
        url = stack.enter_context(serving(make_handler(collected)))
        settings = {"STORE_TRACES_URL": f"{url}/v1/traces"}
        home = tmp_path_factory.mktemp("store")
        store = stack.enter_context(running_store(home, settings))
        asked = {"traceparent": TRACEPARENT, "X-Request-Id": "deposit-1"}
        deposit(store, f"{url}/callback?token={SECRET_QUERY}", asked)
        keys = f"{store.auth}/.well-known/jwks.json"
        httpx.get(keys, headers=asked, trust_env=False, timeout=30).raise_for_status()
        until(lambda: collected.deliveries and wanted <= collected.of_trace().keys())
        yield collected
        assert '"request_id": "deposit-1"' in (home / LOG).read_text()
        assert TRACE not in (home / LOG).read_text()


def test_deposit_with_subscription_is_one_connected_trace(traced: Collected) -> None:
    spans = [span for group in traced.of_trace().values() for span in group]
    known = {span.span_id.hex() for span in spans} | {CALLER}
    assert {span.parent_span_id.hex() for span in spans} <= known
    requests = {span.span_id for span in spans if span.kind == Span.SPAN_KIND_SERVER}
    for name, kind in (
        ("verify", Span.SPAN_KIND_CONSUMER),
        ("match", Span.SPAN_KIND_CONSUMER),
        ("deliver", Span.SPAN_KIND_CLIENT),
    ):
        for span in traced.of_trace()[name]:
            assert span.kind == kind
            assert span.parent_span_id in requests
            assert span.start_time_unix_nano < span.end_time_unix_nano


def test_spans_keep_the_request_id(traced: Collected) -> None:
    for name, spans in traced.of_trace().items():
        for span in spans:
            attributes = {item.key: item.value.string_value for item in span.attributes}
            assert attributes["store.request_id"] == "deposit-1", name


def test_delivery_continues_the_trace(traced: Collected) -> None:
    (span,) = traced.of_trace()["deliver"]
    expected = f"00-{TRACE}-{span.span_id.hex()}-01"
    assert [headers["traceparent"] for headers in traced.deliveries] == [expected]


def test_both_processes_name_the_service(traced: Collected) -> None:
    assert {resource["service.name"] for resource in traced.resources} == {"store"}
    assert len({resource["service.instance.id"] for resource in traced.resources}) == 2


def test_spans_hold_no_url_token_or_name(traced: Collected) -> None:
    text = " ".join(str(span.attributes) for span in traced.spans)
    for hidden in (SECRET_QUERY, "://", "a.txt", AREA, "Bearer", "@"):
        assert hidden not in text, hidden


def test_probes_are_not_traced(traced: Collected) -> None:
    # The supervisor asks for /health until the store is ready.
    assert not {"get_health", "get_readyz", "get_livez"} & {span.name for span in traced.spans}


def test_without_tracing_no_process_imports_opentelemetry(tmp_path: Path) -> None:
    collected = Collected()
    # Each process writes every module that it imports to its standard error.
    verbose = {"PYTHONPROFILEIMPORTTIME": "1"}
    with serving(make_handler(collected)) as url, running_store(tmp_path, verbose) as store:
        deposit(store, f"{url}/callback", {"traceparent": TRACEPARENT})
        until(lambda: collected.deliveries)
    log = (tmp_path / LOG).read_text()
    # The web process and the worker.
    assert sum(line.endswith("| storage.tracing") for line in squeezed(log)) == 2
    assert [line for line in squeezed(log) if "opentelemetry" in line] == []
    assert "traceparent" not in collected.deliveries[0]


def squeezed(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if "import time:" in line]


RECORD = """
import json, sys, time
from storage.opentelemetry_traces import CollectorTracer
tracer = CollectorTracer(sys.argv[1], 1.0)
slow = 0
for _ in range(10_000):
    began = time.monotonic()
    tracer.start("server", "").end("get_bundle", {"a": 1})
    slow += time.monotonic() - began > 1.5
print(json.dumps({"slow": slow}))
"""


@pytest.mark.parametrize("accepts", [True, False])
def test_dead_collector_blocks_neither_requests_nor_the_end(accepts: bool) -> None:
    # Connections to a server that never accepts them are established, and hang.
    with create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if not accepts:
            server.close()
        done = subprocess.run(
            [sys.executable, "-c", RECORD, f"http://127.0.0.1:{port}/v1/traces"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
    assert done.returncode == 0, done.stderr
    # Each of the 20 batches would take 2 s; a busy machine may delay a call or two.
    assert json.loads(done.stdout)["slow"] <= 2


def test_share_of_traces_is_limited_also_for_callers() -> None:
    url = "http://127.0.0.1:9/v1/traces"
    none, every = CollectorTracer(url, 0.0), CollectorTracer(url, 1.0)
    assert none.start("server", "").traceparent == ""
    assert none.start("server", TRACEPARENT, is_foreign=True).traceparent == ""
    assert every.start("server", TRACEPARENT, is_foreign=True).traceparent[3:35] == TRACE
    # The store has decided to record it.
    assert none.start("consumer", TRACEPARENT).traceparent[3:35] == TRACE
    assert every.start("server", TRACEPARENT).traceparent[3:35] == TRACE
    assert every.start("server", f"00-{TRACE}-{CALLER}-00").traceparent == ""
    for bad in ("x", "00-0-0-01", f"{TRACEPARENT};x", "00-" + "0" * 32 + f"-{CALLER}-01"):
        started = every.start("server", bad, is_foreign=True).traceparent
        assert started
        assert started[3:35] not in (TRACE, "0" * 32)


def test_ids_that_a_caller_chooses_are_not_recorded_more_often() -> None:
    tracer = CollectorTracer("http://127.0.0.1:9/v1/traces", 0.01, exporter=InMemorySpanExporter())
    chosen = [f"00-{number:016x}{1:016x}-{CALLER}-01" for number in range(1, 1_001)]
    found = [tracer.start("server", parent, is_foreign=True).traceparent for parent in chosen]
    # Ten are expected.
    assert sum(map(bool, found)) < 100


def test_jobs_keep_request_id_and_trace_context() -> None:
    assert join_request("r-1") == "r-1"
    with bind_traceparent(TRACEPARENT):
        kept = join_request("r-1")
        assert join_request(kept) == kept
    assert split_request(kept) == ("r-1", TRACEPARENT)
    assert split_request("r-1") == ("r-1", "")
    with bind_traceparent(Tracer().start("server", TRACEPARENT).traceparent):
        assert join_request("r-1") == "r-1"


@pytest.mark.parametrize(
    "url", ["collector:4318", "ftp://collector", "http://", "http://a:b@collector", "http://c:x"]
)
def test_collector_must_be_an_http_url_without_password(url: str) -> None:
    with pytest.raises(SettingsError, match="STORE_TRACES_URL: must be an http or https URL") as e:
        load_settings({"STORE_TRACES_URL": url})
    assert "a:b" not in str(e.value)
