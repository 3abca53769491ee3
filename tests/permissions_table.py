"""Expected answers per operation and caller, for both applications.

In a request `<word>` stands for something that is there (`tests/api/permissions/deployment.py` makes it), and
`<fresh>` for a uuid that is new each time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CALLERS: Mapping[str, str] = {
    "anonymous": "a caller without a token",
    "bad": "a caller with an invalid token, each kind in turn",
    "disabled": "a disabled user whose token claims `store_admin`",
    "stranger": "a user without a record",
    "reader": "a user without further roles, the owner of the subscription",
    "ingester": "a user with the role `store_ingest`, the owner of the collection and the area",
    "other": "another user who claims `store_ingest`",
    "robot": "a service account with the role `store_ingest`",
    "admin": "a user who claims `store_admin`",
}
"""In the order of the columns."""

BAD: Mapping[str, str] = {
    "malformed": "not a token",
    "expired": "expired",
    "elsewhere": "for another audience",
    "foreign": "of another issuer, signed with our key",
    "unsigned": "with `alg: none`",
    "confused": "signed by HS256 with our public key as the secret",
}


@dataclass(frozen=True)
class Row:
    """One request, and the statuses that the callers get, in the order of CALLERS."""

    operation: str
    statuses: str
    request: str
    body: Any = None
    content: str = ""
    """A body that is no JSON: text for the store, a form for the authorization service."""
    content_type: str = ""
    """Its type, if it is another one."""
    owner: str = ""
    """What only the owner may do, whatever the policies say."""

    @property
    def method(self) -> str:
        return self.request.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.request.partition(" ")[2]

    @property
    def expected(self) -> dict[str, int]:
        """The status of each caller, of each bad token for itself."""
        given = dict(zip(CALLERS, map(int, self.statuses.split()), strict=True))
        bad = given.pop("bad")
        return {"anonymous": given.pop("anonymous"), **dict.fromkeys(BAD, bad), **given}


FILES = {"creator_uid": 7, "files": ["<entry>"]}
COLLECTION = {"name": "n", "description": "d", "details": {}, "contents": []}
SPAN = {"since": "2026-01-01T000000.000000Z"}
CALLBACK = {"callback_url": "http://127.0.0.1:9/told"}
POLICY = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": ["store:GetBundle"], "Resource": ["*"]}],
}

FORM = '--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\ncontent\r\n--b--\r\n'

OF_ITS_OWNER = "Owner only; others get 403."
IS_HIDDEN = "Owner only; others get 404."

# fmt: off
STORE: tuple[Row, ...] = (
    # one column each:                    nob bad dis str rea ing oth rob adm
    Row("get_bundles_all",                "200 401 403 200 200 200 200 200 200", "GET /v1/bundles/all?replica=aws"),
    Row("get_bundle",                     "200 401 403 200 200 200 200 200 200", "GET /v1/bundles/<bundle>?replica=aws"),
    Row("get_bundle_archive",             "200 401 403 200 200 200 200 200 200", "GET /v1/bundles/<bundle>/archive?replica=aws"),
    Row("put_bundle",                     "401 401 403 403 403 201 201 201 201", "PUT /v1/bundles/<fresh>?version=<version>&replica=aws", FILES),
    Row("patch_bundle",                   "401 401 403 403 403 200 200 200 200", "PATCH /v1/bundles/<patched>?version=<version>&replica=aws", {}),
    Row("delete_bundle",                  "401 401 403 403 403 200 200 200 200", "DELETE /v1/bundles/<buried>?version=<version>&replica=aws", {"reason": "r"}),
    Row("delete_bundle",                  "401 401 403 403 403 200 200 200 200", "DELETE /v1/bundles/<doomed>?replica=aws", {"reason": "r"}),
    Row("post_bundles_checkout",          "200 401 403 200 200 200 200 200 200", "POST /v1/bundles/<bundle>/checkout?replica=aws"),
    Row("post_bundles_checkout_elsewhere","401 401 403 200 200 200 200 200 200", "POST /v1/bundles/<bundle>/checkout?replica=aws", {"destination": "lab-1"}),
    Row("get_bundles_checkout",           "200 401 403 200 200 200 200 200 200", "GET /v1/bundles/checkout/<checkout>?replica=aws"),
    Row("put_file",                       "401 401 403 403 403 202 202 202 202", "PUT /v1/files/<fresh>?version=<version>&replica=aws", {"source_url": "<own_source>", "creator_uid": 7}),
    Row("put_file",                       "401 401 403 403 403 202 403 403 403", "PUT /v1/file/<fresh>?version=<version>", {"source_url": "<source>", "creator_uid": 7}, owner="From the caller's own upload area, else 403."),
    Row("put_files",                      "401 401 403 403 403 200 200 200 200", "PUT /v1/files?replica=aws", {"files": [{"uuid": "<fresh>", "version": "<version>", "source_url": "<own_source>", "creator_uid": 7}]}),
    Row("get_file",                       "302 401 403 302 302 302 302 302 302", "GET /v1/files/<file>?replica=aws"),
    Row("head_file",                      "200 401 403 200 200 200 200 200 200", "HEAD /v1/files/<file>?replica=aws"),
    Row("get_file_bundles",               "200 401 403 200 200 200 200 200 200", "GET /v1/files/<file>/bundles?replica=aws"),
    Row("get_drs_service_info",           "200 401 403 200 200 200 200 200 200", "GET /v1/ga4gh/drs/v1/service-info"),
    Row("get_drs_object",                 "200 401 403 200 200 200 200 200 200", "GET /v1/ga4gh/drs/v1/objects/<file>.<version>"),
    Row("get_drs_access",                 "200 401 403 200 200 200 200 200 200", "GET /v1/ga4gh/drs/v1/objects/<file>.<version>/access/aws"),
    Row("get_task",                       "200 401 403 200 200 200 200 200 200", "GET /v1/tasks/<task>"),
    Row("get_collections",                "401 401 403 403 403 200 200 200 200", "GET /v1/collections", owner="Lists your own only."),
    Row("put_collection",                 "401 401 403 403 403 201 201 201 201", "PUT /v1/collections?uuid=<fresh>&version=<version>&replica=aws", COLLECTION),
    Row("put_collection",                 "401 401 403 403 403 200 403 403 403", "PUT /v1/collections?uuid=<collection>&version=<version>&replica=aws", COLLECTION, owner="New versions by the owner only; others get 403."),
    Row("get_collection",                 "401 401 403 403 403 200 403 403 403", "GET /v1/collections/<collection>?replica=aws", owner=OF_ITS_OWNER),
    Row("patch_collection",               "401 401 403 403 403 200 403 403 403", "PATCH /v1/collections/<collection>?version=<version>&replica=aws", {}, owner=OF_ITS_OWNER),
    Row("patch_collection",               "401 401 403 403 403 200 403 403 403", "PATCH /v1/collections?uuid=<collection>&version=<version>&replica=aws", {}, owner=OF_ITS_OWNER),
    Row("delete_collection",              "401 401 403 403 403 200 403 403 403", "DELETE /v1/collections/<left>?replica=aws", owner=OF_ITS_OWNER),
    Row("post_search",                    "200 401 403 200 200 200 200 200 200", "POST /v1/search?replica=aws", {"es_query": {}}),
    Row("get_schemas",                    "200 401 403 200 200 200 200 200 200", "GET /v1/schemas"),
    Row("post_search_facets",             "200 401 403 200 200 200 200 200 200", "POST /v1/search/facets?replica=aws", {"es_query": {}, "fields": ["uuid"]}),
    Row("get_search_fields",              "200 401 403 200 200 200 200 200 200", "GET /v1/search/fields?replica=aws"),
    Row("get_events",                     "200 401 403 200 200 200 200 200 200", "GET /v1/events?replica=aws"),
    Row("get_event",                      "200 401 403 200 200 200 200 200 200", "GET /v1/events/<bundle>?version=<version>&replica=aws"),
    Row("get_events_feed",                "200 401 403 200 200 200 200 200 200", "GET /v1/events/feed?replica=aws"),
    Row("get_subscriptions",              "200 401 403 200 200 200 200 200 200", "GET /v1/subscriptions?replica=aws", owner="Lists your own only."),
    Row("put_subscription",               "401 401 403 201 201 201 201 201 201", "PUT /v1/subscriptions?replica=aws", CALLBACK),
    Row("dry_run_subscription",           "401 401 403 200 200 200 200 200 200", "POST /v1/subscriptions/dry-run?replica=aws", CALLBACK),
    Row("get_subscription",               "401 401 403 404 200 404 404 404 404", "GET /v1/subscriptions/<subscription>?replica=aws", owner=IS_HIDDEN),
    Row("delete_subscription",            "401 401 403 404 200 404 404 404 404", "DELETE /v1/subscriptions/<ended>?replica=aws", owner=IS_HIDDEN),
    Row("put_subscription_secret",        "401 401 403 404 200 404 404 404 404", "PUT /v1/subscriptions/<subscription>/secret?replica=aws", {"hmac_secret_key": "s" * 32}, owner=IS_HIDDEN),
    Row("pause_subscription",             "401 401 403 404 200 404 404 404 404", "POST /v1/subscriptions/<subscription>/pause?replica=aws", owner=IS_HIDDEN),
    Row("resume_subscription",            "401 401 403 404 200 404 404 404 404", "POST /v1/subscriptions/<subscription>/resume?replica=aws", owner=IS_HIDDEN),
    Row("get_deliveries",                 "401 401 403 404 200 404 404 404 404", "GET /v1/subscriptions/<subscription>/deliveries?replica=aws", owner=IS_HIDDEN),
    Row("get_delivery",                   "401 401 403 404 200 404 404 404 404", "GET /v1/subscriptions/<subscription>/deliveries/<delivery>?replica=aws", owner=IS_HIDDEN),
    Row("resend_delivery",                "401 401 403 404 202 404 404 404 404", "POST /v1/subscriptions/<subscription>/deliveries/<delivery>/resend?replica=aws", owner=IS_HIDDEN),
    Row("retry_delivery",                 "401 401 403 404 202 404 404 404 404", "POST /v1/subscriptions/<subscription>/deliveries/<delivery>/retry?replica=aws", owner=IS_HIDDEN),
    Row("retry_deliveries",               "401 401 403 404 202 404 404 404 404", "POST /v1/subscriptions/<subscription>/deliveries/retry?replica=aws", SPAN, owner=IS_HIDDEN),
    Row("test_subscription",              "401 401 403 404 202 404 404 404 404", "POST /v1/subscriptions/<subscription>/test?replica=aws", owner=IS_HIDDEN),
    Row("replay_subscription",            "401 401 403 404 202 404 404 404 404", "POST /v1/subscriptions/<replayed>/replay?replica=aws", {}, owner=IS_HIDDEN),
    Row("get_replay",                     "401 401 403 404 200 404 404 404 404", "GET /v1/subscriptions/<subscription>/replays/<replay>?replica=aws", owner=IS_HIDDEN),
    Row("get_replication",                "200 401 403 200 200 200 200 200 200", "GET /v1/replication"),
    Row("get_replication",                "200 401 403 200 200 200 200 200 200", "GET /replication"),
    Row("get_integrity",                  "200 401 403 200 200 200 200 200 200", "GET /v1/integrity"),
    Row("get_integrity",                  "200 401 403 200 200 200 200 200 200", "GET /integrity"),
    Row("post_area",                      "401 401 403 403 403 201 201 201 201", "POST /v1/area/<fresh>"),
    Row("post_area",                      "401 401 403 403 403 200 409 409 409", "POST /v1/area/<area>", owner="Others' areas are 409."),
    Row("head_area",                      "401 401 403 403 403 200 403 403 403", "HEAD /v1/area/<area>", owner=OF_ITS_OWNER),
    Row("get_area",                       "401 401 403 403 403 200 403 403 403", "GET /v1/area/<area>", owner=OF_ITS_OWNER),
    Row("patch_area",                     "401 401 403 403 403 200 403 403 403", "PATCH /v1/area/<area>", {"state": "UNLOCKED"}, owner=OF_ITS_OWNER),
    Row("delete_area",                    "401 401 403 403 403 202 403 403 403", "DELETE /v1/area/<left_area>", owner=OF_ITS_OWNER),
    Row("put_area_files",                 "401 401 403 403 403 201 403 403 403", "PUT /v1/area/<area>/files", content=FORM, content_type="multipart/form-data; boundary=b", owner=OF_ITS_OWNER),
    Row("put_area_file",                  "401 401 403 403 403 201 403 403 403", "PUT /v1/area/<area>/files/a.txt", content="content", owner=OF_ITS_OWNER),
    Row("post_area_file",                 "401 401 403 403 403 202 403 403 403", "POST /v1/area/<area>/files/s.txt", owner=OF_ITS_OWNER),
    Row("get_area_checksum",              "401 401 403 403 403 200 403 403 403", "GET /v1/area/<area>/checksum?filename=s.txt", owner=OF_ITS_OWNER),
    Row("get_area_validate",              "401 401 403 403 403 200 403 403 403", "GET /v1/area/<area>/validate?filename=s.txt", owner=OF_ITS_OWNER),
    Row("get_area_checksums",             "401 401 403 403 403 200 403 403 403", "GET /v1/area/<area>/checksums", owner=OF_ITS_OWNER),
    Row("get_area_validations",           "401 401 403 403 403 200 403 403 403", "GET /v1/area/<area>/validations", owner=OF_ITS_OWNER),
    Row("post_area_upload",               "401 401 403 403 403 201 403 403 403", "POST /v1/area/<area>/uploads/u.txt", {"size": 7}, owner=OF_ITS_OWNER),
    Row("get_area_upload",                "401 401 403 403 403 200 403 403 403", "GET /v1/area/<area>/uploads/u.txt?upload_id=<upload>", owner=OF_ITS_OWNER),
    Row("put_area_part",                  "401 401 403 403 403 200 403 403 403", "PUT /v1/area/<area>/uploads/u.txt?upload_id=<upload>&part=1", content="content", owner=OF_ITS_OWNER),
    Row("post_area_upload_complete",      "401 401 403 403 403 202 403 403 403", "POST /v1/area/<area>/complete/u.txt", {"upload_id": "<whole_upload>"}, owner=OF_ITS_OWNER),
    Row("delete_area_upload",             "401 401 403 403 403 200 403 403 403", "DELETE /v1/area/<area>/uploads/u.txt?upload_id=<left_upload>", owner=OF_ITS_OWNER),
    Row("post_area_part",                 "401 401 403 403 403 200 403 403 403", "POST /v1/area/<area>/parts/u.txt", {"upload_id": "<upload>", "part": 1, "crc32c": "4f1dab61"}, owner=OF_ITS_OWNER),
    Row("post_area_credentials",          "401 401 403 403 403 201 403 403 403", "POST /v1/area/<area>/credentials", {"filenames": ["c.txt"]}, owner=OF_ITS_OWNER),
    Row("get_health",                     "200 200 200 200 200 200 200 200 200", "GET /health"),
    Row("get_metrics",                    "401 401 403 403 403 403 403 403 200", "GET /metrics"),
)

# What looks itself at what it is shown: no status of these is about a right. A bearer token is no
# proof of a client, so who shows one where a client is to prove itself is answered 401.
CODE = "grant_type=authorization_code&client_id=store-cli&code=none&code_verifier=none&redirect_uri=http%3A%2F%2F127.0.0.1%2Fcallback"
ASKED = "response_type=code&client_id=store-cli&redirect_uri=http%3A%2F%2F127.0.0.1%2Fcallback&scope=openid&code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&code_challenge_method=S256"

AUTH: tuple[Row, ...] = (
    # one column each:                    nob bad dis str rea ing oth rob adm
    Row("get_openid_configuration",       "200 200 200 200 200 200 200 200 200", "GET /.well-known/openid-configuration"),
    Row("get_jwks.json",                  "200 200 200 200 200 200 200 200 200", "GET /.well-known/jwks.json"),
    Row("post_oauth_token",               "400 401 401 401 401 401 401 401 401", "POST /oauth/token", content=CODE),
    Row("post_oauth_revoke",              "200 401 401 401 401 401 401 401 401", "POST /oauth/revoke", content="client_id=store-cli&token=none"),
    Row("post_oauth_device",              "200 401 401 401 401 401 401 401 401", "POST /oauth/device_authorization", content="client_id=store-cli"),
    Row("get_oauth_userinfo",             "401 401 401 200 200 200 200 401 200", "GET /oauth/userinfo"),
    Row("post_oauth_userinfo",            "401 401 401 200 200 200 200 401 200", "POST /oauth/userinfo"),
    Row("get_oauth_authorize",            "302 302 302 302 302 302 302 302 302", f"GET /oauth/authorize?{ASKED}"),
    Row("post_oauth_authorize",           "303 303 303 303 303 303 303 303 303", "POST /oauth/authorize", content=ASKED),
    Row("get_login",                      "302 302 302 302 302 302 302 302 302", "GET /login?redirect_uri=http://127.0.0.1/callback"),
    Row("get_logout",                     "200 200 200 200 200 200 200 200 200", "GET /logout"),
    Row("post_logout",                    "303 303 303 303 303 303 303 303 303", "POST /logout", content="state=x"),
    Row("get_v1_users",                   "401 401 403 403 403 403 403 403 200", "GET /v1/users?per_page=30"),
    Row("post_v1_user",                   "401 401 403 403 403 403 403 403 201", "POST /v1/user", {"user_id": "<fresh>@example.org"}),
    Row("get_v1_user",                    "401 401 403 403 200 403 403 403 200", "GET /v1/user/<reader>", owner="Own record only."),
    Row("put_v1_user",                    "401 401 403 403 403 403 403 403 200", "PUT /v1/user/<reader>?status=enabled"),
    Row("get_v1_user_owns",               "401 401 403 403 200 403 403 403 200", "GET /v1/user/<reader>/owns", owner="Own record only."),
    Row("get_v1_user_groups",             "401 401 403 403 200 403 403 403 200", "GET /v1/user/<reader>/groups", owner="Own record only."),
    Row("put_v1_user_group",              "401 401 403 403 403 403 403 403 200", "PUT /v1/user/<member>/groups?action=add", {"groups": ["<group>"]}),
    Row("get_v1_user_roles",              "401 401 403 403 200 403 403 403 200", "GET /v1/user/<reader>/roles", owner="Own record only."),
    Row("put_v1_user_role",               "401 401 403 403 403 403 403 403 200", "PUT /v1/user/<member>/roles?action=add", {"roles": ["<role>"]}),
    Row("put_v1_user_policy",             "401 401 403 403 403 403 403 403 200", "PUT /v1/user/<member>/policy", {"policy": POLICY}),
    Row("put_v1_user_policy",             "401 401 403 403 403 403 403 403 200", "PUT /v1/user/<reader>/policy", {"policy": None}),
    Row("get_v1_groups",                  "401 401 403 403 403 403 403 403 200", "GET /v1/groups"),
    Row("post_v1_group",                  "401 401 403 403 403 403 403 403 201", "POST /v1/group", {"group_id": "<fresh>"}),
    Row("get_v1_group",                   "401 401 403 403 403 403 403 403 200", "GET /v1/group/<group>"),
    Row("delete_v1_group",                "401 401 403 403 403 403 403 403 200", "DELETE /v1/group/<old_group>"),
    Row("get_v1_group_roles",             "401 401 403 403 403 403 403 403 200", "GET /v1/group/<group>/roles"),
    Row("put_v1_group_role",              "401 401 403 403 403 403 403 403 200", "PUT /v1/group/<group>/roles?action=add", {"roles": ["<role>"]}),
    Row("get_v1_group_users",             "401 401 403 403 403 403 403 403 200", "GET /v1/group/<group>/users"),
    Row("put_v1_group_user",              "401 401 403 403 403 403 403 403 200", "PUT /v1/group/<group>/users?action=add", {"users": ["<member>"]}),
    Row("put_v1_group_policy",            "401 401 403 403 403 403 403 403 200", "PUT /v1/group/<group>/policy", {"policy": POLICY}),
    Row("get_v1_roles",                   "401 401 403 403 403 403 403 403 200", "GET /v1/roles"),
    Row("post_v1_role",                   "401 401 403 403 403 403 403 403 201", "POST /v1/role", {"role_id": "<fresh>", "policy": POLICY}),
    Row("get_v1_role",                    "401 401 403 403 403 403 403 403 200", "GET /v1/role/<role>"),
    Row("delete_v1_role",                 "401 401 403 403 403 403 403 403 200", "DELETE /v1/role/<old_role>"),
    Row("put_v1_role_policy",             "401 401 403 403 403 403 403 403 200", "PUT /v1/role/<role>/policy", {"policy": POLICY}),
    Row("post_v1_policies_evaluate",      "401 401 403 403 200 403 403 403 200", "POST /v1/policies/evaluate", {"principal": "<reader>", "action": ["store:GetBundle"], "resource": ["*"]}, owner="Own record only."),
    Row("get_v1_account",                 "401 401 403 200 200 200 200 200 200", "GET /v1/account"),
    Row("get_v1_policies_version",        "401 401 403 200 200 200 200 200 200", "GET /v1/policies/version"),
    Row("get_v1_audit",                   "401 401 403 403 403 403 403 403 200", "GET /v1/audit?who=nobody@example.org"),
    Row("get_health",                     "200 200 200 200 200 200 200 200 200", "GET /health"),
    Row("get_definition",                 "200 200 200 200 200 200 200 200 200", "GET /swagger.json"),
    Row("get_echo",                       "200 200 200 200 200 200 200 200 200", "GET /echo"),
)
# fmt: on

STORE_BESIDE: Mapping[str, str] = {
    "/openapi.json": "the definition",
    "/swagger.json": "the definition",
    "/v1/swagger.json": "the definition",
    "/v1/objects/<bucket>/<path:key>": "bytes, for holders of a presigned URL",
    "/livez": "a probe, for everybody",
    "/readyz": "a probe, for everybody",
}
"""Ways into the store that are no operations: what they are, or who may go them."""

AUTH_BESIDE: Mapping[str, str] = {
    "/": "a page that says what this is",
    "/livez": "a probe, for everybody",
    "/readyz": "a probe, for everybody",
    "/device": "a page for logged-in users; its forms belong to the session",
    "/device/confirm": "the same",
    "/oauth/consent": "the same",
    "/login/select": "a page for everybody who comes with what the service sealed",
    "/login/local": "the same",
    "/login/upstream/<name>": "the same",
    "/login/callback/<name>": "whoever comes back from a provider with the state of their login",
    "/login/account": "a page for logged-in users; its forms belong to the session",
    "/login/password": "the same",
    "/login/applications": "the same",
    "/login/everywhere": "the same",
    "/login/link": "a page for those who have a one-time link of an operator",
    "/logout/confirm": "a form of the session's own page",
    "/logout/done": "a page for everybody",
}
"""The same of the authorization service; its pages look at no bearer token."""
