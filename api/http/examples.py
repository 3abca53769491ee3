"""Examples for the OpenAPI definition.

The examples tell how `sample.json` is deposited, bundled, found and delivered. An example in a
schema takes precedence; the tables here serve required members without one. Examples of objects and
lists are built from those of their members. A test sends every request and validates every example.
"""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

UUID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
OTHER_UUID = "0f5e9b9a-3c5b-4f0e-9d7b-6a3b3c0f5e11"
VERSION = "2026-01-31T235959.000000Z"
OBJECT_ID = f"{UUID}.{VERSION}"
SAMPLE = b'{"organism": "Danio rerio"}\n'
"""The bytes of `sample.json`."""

_FQID = {"uuid": UUID, "version": VERSION}
_CHECKSUMS = {
    "crc32c": "4f1dab61",
    "s3_etag": "b3ae3fe9abcd78a9edf55a4c782c3f2f",
    "sha1": "819da0e5c9fc28523d0d4ec4bc08cafb52b50839",
    "sha256": "567b04600cc779603f2f1c5d2a0e74e7ce0289a660bd93dacd34e4d32afb7059",
}
_FILE = {
    "name": "sample.json",
    **_FQID,
    "content-type": "application/json",
    "size": len(SAMPLE),
    "indexed": True,
    **_CHECKSUMS,
}
_LINK = {"type": "file", **_FQID}
_QUERY = {"query": {"match": {"files.sample_json.organism": "danio"}}}
_BUNDLE_URL = f"https://store.example/v1/bundles/{UUID}?version={VERSION}&replica=aws"
_PAYLOAD = {
    "transaction_id": OTHER_UUID,
    "subscription_id": UUID,
    "event_type": "CREATE",
    "match": {"bundle_uuid": UUID, "bundle_version": VERSION},
    "jmespath_query": "event_type == 'CREATE'",
    "bundle_url": _BUNDLE_URL,
    "event_timestamp": VERSION,
}

MEMBER_EXAMPLES: Mapping[str, Any] = {
    **_CHECKSUMS,
    "age_s": 0.8,
    "at": VERSION,
    "attempts": 1,
    "bundle": f"{UUID}.{VERSION}",
    "bundle_fqid": f"{UUID}.{VERSION}",
    "bundle_info": _FQID,
    "bundle_url": _BUNDLE_URL,
    "bundle_uuid": UUID,
    "bundle_version": VERSION,
    "bundles": 20,
    "bytes": len(SAMPLE),
    "bytes_done": len(SAMPLE),
    "bytes_total": len(SAMPLE),
    "callback_url": "https://pipeline.example/notify",
    "checkout_job_id": OTHER_UUID,
    "checksums": _CHECKSUMS,
    "code": "checksum_mismatch",
    "content-type": "application/json",
    "creator_uid": 8008,
    "cursor": "AQq8oU2f0ZyM5aJv1xkYl3NbIjQyIl0",
    "deliveries": 0,
    "description": "What the *first* release is made of.",
    "detail": "The file's sha256 is not the one that was declared.",
    "details": {"release": 1},
    "diverged_total": 0,
    "encoding": "application/json",
    "es_query": _QUERY,
    "event_id": OTHER_UUID,
    "event_type": "CREATE",
    "events_left": 20,
    "expression": "files.sample_json[0].organism",
    "files": 1,
    "files_total": 1,
    "form_fields": {},
    "from_date": VERSION,
    "has_more": False,
    "hmac_secret_key": "correct horse battery staple",
    "id": OTHER_UUID,
    "indexed": True,
    "journal_id": "00000000000000000001-00000000000000000020",
    "kind": "bundle",
    "matches": True,
    "method": "POST",
    "more": False,
    "name": "sample.json",
    "number": 1,
    "offset": 0,
    "oldest_s": 0.8,
    "owner": "curator@example.org",
    "page_count": 1,
    "parked": False,
    "payload_form_field": "payload",
    "per_page": 100,
    "reason": "Too many fields.",
    "recorded": VERSION,
    "replay_id": OTHER_UUID,
    "replica": "aws",
    "request_id": "3f0d2c1b9a8e4f57b6c5d4e3f2a1b0c9",
    "retried": 3,
    "rows": 2,
    "search_score": None,
    "seconds": 0.012,
    "seen": VERSION,
    "shape_descriptor": "unversioned",
    "since": VERSION,
    "size": len(SAMPLE),
    "state": "RUNNING",
    "status": "SUCCEEDED",
    "step": "sync",
    "stream_url": "https://store.example/objects/journal",
    "subscription_type": "jmespath",
    "task_id": OTHER_UUID,
    "timeDeleted": VERSION,
    "timed_out": False,
    "timestamp": VERSION,
    "to_date": VERSION,
    "total_hits": 1,
    "transaction_id": OTHER_UUID,
    "type": "file",
    "unindexed_total": 0,
    "uri": f"https://store.example/v1/area/{UUID}/",
    "url": f"https://store.example/v1/area/{UUID}/files/sample.json",
    "uuid": UUID,
    "version": VERSION,
    "window_s": 3600,
}
"""Examples by the name of a required member."""

SCHEMA_EXAMPLES: Mapping[str, Any] = {
    "Attachment.type": "jmespath",
    "AttemptAnswer.status": 200,
    "CheckoutStatus.location": f"file:///srv/store/checkout/{OTHER_UUID}/",
    "CollectionAnswer.name": "Kidney, first release",
    "DeliveryAnswer.state": "delivered",
    "DeliveryDetail.state": "delivered",
    "EventDocument.files": {"sample_json": [{"organism": "Danio rerio"}]},
    "EventDocument.manifest": {"creator_uid": 8008, "files": [_FILE]},
    "Integrity.period_s": 2_592_000,
    "DamagedObject.replica": "gcp",
    "DamagedObject.key": f"blobs/{_CHECKSUMS['sha256'][:2]}/{_CHECKSUMS['sha256']}",
    "DamagedObject.reason": "its bytes differ from its key",
    "DamagedObject.found": VERSION,
    "LagAnswer.kind": "bundle",
    "LagAnswer.versions": 20,
    "LagAnswer.p50_s": 0.4,
    "LagAnswer.p99_s": 1.9,
    "FileResult.task_id": OTHER_UUID,
    "PatchBody.add_files": [{**_FQID, "name": "copies/sample.json", "indexed": False}],
    "PatchBody.remove_files": [{**_FQID, "name": "sample.json"}],
    "PatchCollectionBody.add_contents": [_LINK],
    "PatchCollectionBody.remove_contents": [{"type": "bundle", **_FQID}],
    "ReplicaIntegrity.objects": 2000,
    "ReplicaIntegrity.verified": 1999,
    "ReplicaIntegrity.damaged": 1,
    "ReplicaIntegrity.repaired": 3,
    "ReplicaIntegrity.oldest_unverified_s": 1_296_000,
    "ReplicaStateAnswer.state": "present",
    "SubscriptionAnswer.jmespath_query": "event_type == 'CREATE'",
    "SubscriptionAnswer.state": "active",
    "DryRunBundle.payload": _PAYLOAD,
    "WebhookRequestAnswer.body": json.dumps(_PAYLOAD),
    "WebhookRequestAnswer.url": "https://pipeline.example/notify",
    "DrsContent.id": OBJECT_ID,
    "DrsObject.id": OBJECT_ID,
    "FacetAnswer.total": 20,
    "FacetAnswer.facets": {
        "files.sample_json.organism": [
            {"value": "Danio rerio", "count": 17},
            {"value": "Mus musculus", "count": 3},
        ],
        "files.sample_json.organsim": [],
    },
    "FacetAnswer.unknown_fields": {"files.sample_json.organsim": ["files.sample_json.organism"]},
    "SearchField.name": "files.sample_json.organism",
    "SearchField.kind": "string",
    "SearchField.documents": 20,
    "UnindexedDocument.reason": "The document has more fields than one index may have.",
}
"""Examples by `<schema>.<member>`; the member may be optional."""


@dataclass(frozen=True)
class Examples:
    """Examples by the name of a required member, and by `<schema>.<member>`."""

    members: Mapping[str, Any]
    schemas: Mapping[str, Any]


STORE_EXAMPLES = Examples(MEMBER_EXAMPLES, SCHEMA_EXAMPLES)


def add_examples(document: Mapping[str, Any], examples: Examples) -> dict[str, Any]:
    """Return the definition with an example for each member, JSON body and JSON response."""
    result = copy.deepcopy(dict(document))
    for name, schema in result["components"]["schemas"].items():
        for member, part in schema.get("properties", {}).items():
            _set_example(part, f"{name}.{member}", examples.schemas)
            if member in schema.get("required", ()) and "items" not in part:
                _set_example(part, member, examples.members)
    for methods in result["paths"].values():
        for operation in methods.values():
            _add_body_examples(result, operation)
    return result


def _set_example(part: dict[str, Any], key: str, table: Mapping[str, Any]) -> None:
    """Set a member's example, unless it has one or is a reference."""
    if "example" not in part and "$ref" not in part and key in table:
        part["example"] = copy.deepcopy(table[key])


def _add_body_examples(document: Mapping[str, Any], operation: Mapping[str, Any]) -> None:
    """Add an example of each JSON body of one operation."""
    bodies = [operation.get("requestBody", {})]
    bodies += [part for status, part in operation["responses"].items() if status < "3"]
    for body in bodies:
        content = body.get("content", {}).get("application/json")
        if content is not None:
            content["example"] = make_example(document, content["schema"])


def make_example(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
    """Return a value that the schema accepts: its own example, or one built from its members'."""
    schema = resolve_reference(document, schema)
    if "example" in schema:
        return schema["example"]
    if schema.get("type") == "array":
        return [make_example(document, schema["items"])]
    required = schema.get("required", ())
    return {
        name: make_example(document, part)
        for name, part in schema.get("properties", {}).items()
        if name in required or "example" in part
    }


def resolve_reference(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema that a reference names, or the schema itself."""
    name = schema.get("$ref", "").rpartition("/")[2]
    target: Mapping[str, Any] = document["components"]["schemas"][name] if name else schema
    return target
