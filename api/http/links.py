"""What the definition says beyond single operations: which operation takes what another answered
(OpenAPI's links), and the requests that the store itself sends (OpenAPI's callbacks)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from marshmallow import Schema

from api.schemas.subscriptions import Notification
from pipelines.deliveries import ATTEMPT_HEADER, TEST_HEADER

JSON = "application/json"


@dataclass(frozen=True)
class Link:
    """An operation that continues from an answer; parameters by where their values come from."""

    operation: str
    path: Mapping[str, str]
    """Parameters of the other operation that equal those of this path, by name."""
    answered: Mapping[str, str] = field(default_factory=dict)
    """Parameters that are members of the answer, by JSON pointer."""
    query: Sequence[str] = ()
    """Parameters of both queries."""
    status: str = "2"
    """How the status of the answers begins that have these members."""
    body: Mapping[str, str] = field(default_factory=dict)
    """Members of the other request's body that are members of the answer, by JSON pointer."""
    description: str = ""

    def describe(self) -> dict[str, Any]:
        """Return the link object."""
        parameters = {name: f"$request.path.{own}" for name, own in self.path.items()}
        parameters |= {name: f"$response.body#/{where}" for name, where in self.answered.items()}
        parameters |= {name: f"$request.query.{name}" for name in self.query}
        link: dict[str, Any] = {"operationId": self.operation, "parameters": parameters}
        if self.body:
            link["requestBody"] = {
                name: f"$response.body#/{where}" for name, where in self.body.items()
            }
        if self.description:
            link["description"] = self.description
        return link


@dataclass(frozen=True)
class Callback:
    """A request to a URL that a body named."""

    url: str
    """JSON pointer of the URL in the body."""
    summary: str
    description: str
    payload: type[Schema]
    headers: Mapping[str, str]

    def describe(self) -> dict[str, Any]:
        """Return the callback object."""
        parameters = [
            {"name": name, "in": "header", "description": about, "schema": {"type": "string"}}
            for name, about in self.headers.items()
        ]
        request = {
            "summary": self.summary,
            "description": self.description,
            "parameters": parameters,
            "requestBody": {"required": True, "content": {JSON: {"schema": self.payload}}},
            "responses": {
                "2XX": {"description": "Accepted."},
                "default": {"description": "Failed: it is sent again, with growing delays."},
            },
        }
        return {f"{{$request.body#/{self.url}}}": {"post": request}}


def add_links(responses: Mapping[str, dict[str, Any]], links: Sequence[Link]) -> None:
    """Add the links of an operation to its successful responses that have a body."""
    for status, response in responses.items():
        if links and status.startswith("2") and JSON in response.get("content", {}):
            response["links"] = {
                link.operation: link.describe() for link in links if status.startswith(link.status)
            }


_VERSION = {"version": "version"}
_UUID = {"uuid": "uuid"}
_REPLICA = ("replica",)
_SUBSCRIPTION_TYPE = {"subscription_type": "subscription_type"}
_UPLOAD_ID = {"upload_id": "upload_id"}
_NEEDS_REPLICA = "Only if the request named a `replica`; else name the one of the source's scheme."

STORE_LINKS: Mapping[str, Sequence[Link]] = {
    "put_file": (
        Link("get_file", _UUID, _VERSION, _REPLICA, description=_NEEDS_REPLICA),
        Link("head_file", _UUID, _VERSION, _REPLICA, description=_NEEDS_REPLICA),
        Link("get_file_bundles", _UUID, _VERSION, _REPLICA, description=_NEEDS_REPLICA),
        Link("get_task", {}, {"task_id": "task_id"}, status="202"),
    ),
    "put_bundle": (
        Link("get_bundle", _UUID, _VERSION, _REPLICA),
        Link("get_bundle_archive", _UUID, _VERSION, _REPLICA),
        Link("post_bundles_checkout", _UUID, _VERSION, _REPLICA),
        Link("patch_bundle", _UUID, _VERSION, _REPLICA),
        Link("delete_bundle", _UUID, _VERSION, _REPLICA),
    ),
    "patch_bundle": (Link("get_bundle", {}, {**_UUID, **_VERSION}, _REPLICA),),
    "post_bundles_checkout": (
        Link("get_bundles_checkout", {}, {"checkout_job_id": "checkout_job_id"}, _REPLICA),
    ),
    "put_collection": (
        Link("get_collection", {}, {**_UUID, **_VERSION}, _REPLICA),
        Link("patch_collection", {}, {**_UUID, **_VERSION}, _REPLICA),
    ),
    "patch_collection": (Link("get_collection", {}, {**_UUID, **_VERSION}, _REPLICA),),
    "put_subscription": (
        Link("get_subscription", {}, {**_UUID, **_SUBSCRIPTION_TYPE}, _REPLICA),
        Link("test_subscription", {}, _UUID, _REPLICA),
        Link("get_deliveries", {}, _UUID, _REPLICA),
        Link("replay_subscription", {}, _UUID, _REPLICA),
        Link("delete_subscription", {}, {**_UUID, **_SUBSCRIPTION_TYPE}, _REPLICA),
    ),
    "replay_subscription": (Link("get_replay", _UUID, {"id": "replay_id"}, _REPLICA),),
    "post_area": (Link("get_area", _UUID), Link("post_area_credentials", _UUID)),
    "post_area_upload": (
        Link("get_area_upload", {**_UUID, "filename": "filename"}, _UPLOAD_ID),
        Link("put_area_part", {**_UUID, "filename": "filename"}, _UPLOAD_ID),
        Link("post_area_upload_complete", {**_UUID, "filename": "filename"}, body=_UPLOAD_ID),
    ),
}
"""By the operation that answers."""

STORE_CALLBACKS: Mapping[str, Mapping[str, Callback]] = {
    "put_subscription": {
        "delivery": Callback(
            "callback_url",
            "An event that matches",
            "Sent for each event that matches, at least once, until a response is 2xx. The"
            " subscription's `method` and `encoding` decide between POST and PUT, and between JSON"
            " and a form whose field `payload_form_field` is this JSON. The signature headers are"
            " there if the subscription has a secret.",
            Notification,
            {
                "webhook-id": "The delivery; the same in each attempt.",
                "webhook-timestamp": "When it was signed, in seconds since 1970.",
                "webhook-signature": "The signatures of Standard Webhooks, `v1,<base64>`.",
                "Digest": "SHA-256 of the body.",
                ATTEMPT_HEADER: "The number of the attempt, from 1.",
                TEST_HEADER: "`true` for test deliveries.",
            },
        )
    }
}
