"""The operations of a store as typed methods; written by `make docs`, never at run time.

Operations of a store that is newer than this file are found at run time, without types.
"""

# ruff: noqa: A002
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import (
    Any,
    BinaryIO,
    Concatenate,
    Generic,
    Literal,
    NotRequired,
    ParamSpec,
    TypedDict,
    TypeVar,
)
from uuid import UUID

P = ParamSpec("P")
R = TypeVar("R")
I = TypeVar("I")
AnyUuid = str | UUID
Headers = Mapping[str, str] | None
Replica = Literal["aws", "gcp"]

class Answer(Generic[R, I]):
    """What an operation answers, and the items of its pages."""

class TypedMethod(Generic[P, R, I]):
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def iterate(self, *args: P.args, **kwargs: P.kwargs) -> Iterator[I]: ...
    def pages(self, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]: ...

class AsyncTypedMethod(Generic[P, R, I]):
    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def iterate(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[I]: ...
    def pages(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]: ...

def _operation(
    method: Callable[Concatenate[Any, P], Answer[R, I]],
) -> TypedMethod[P, R, I]: ...
def _async_operation(
    method: Callable[Concatenate[Any, P], Answer[R, I]],
) -> AsyncTypedMethod[P, R, I]: ...

class AreaChecksumCounts(TypedDict):
    total: int
    states: ChecksumCounts

class AreaChecksums(TypedDict):
    sha1: str
    sha256: str
    crc32c: str
    s3_etag: str

class AreaCreated(TypedDict):
    uri: str

class AreaCredentials(TypedDict):
    kind: str
    expires: str
    bucket: NotRequired[str]
    prefix: NotRequired[str]
    region: NotRequired[str]
    endpoint: NotRequired[str | None]
    access_key_id: NotRequired[str]
    secret_access_key: NotRequired[str]
    session_token: NotRequired[str]
    access_token: NotRequired[str]
    method: NotRequired[str]
    urls: NotRequired[dict[str, Any]]
    headers: NotRequired[dict[str, Any]]
    max_bytes: NotRequired[int]

class AreaFileAnswer(TypedDict):
    url: str
    size: int
    checksums: AreaChecksums

class AreaFileEntry(TypedDict):
    name: str
    url: str
    size: int
    content_type: str | None
    checksums: dict[str, str] | None
    status: str
    validation: str
    cause: str | None

class AreaFilesAnswer(TypedDict):
    files: list[StoredAreaFile]

class AreaListing(TypedDict):
    uuid: str
    uri: str
    state: str
    files: list[AreaFileEntry]

class AreaPart(TypedDict):
    part: int
    size: int
    md5: str

class AreaPartAddress(TypedDict):
    part: int
    size: int
    direct: bool
    method: str
    url: str
    headers: dict[str, Any]
    expires: NotRequired[str]

class AreaStateAnswer(TypedDict):
    state: str

class AreaUploadAnswer(TypedDict):
    upload_id: str
    size: int
    part_size: int
    part_count: int
    parts: list[int]

class AreaUploadDone(TypedDict):
    url: str
    size: int
    status: str

class AreaValidationCounts(TypedDict):
    total: int
    states: ValidationCounts

class AttemptAnswer(TypedDict):
    number: int
    at: str
    seconds: float
    status: NotRequired[int]
    error: NotRequired[str]
    body: NotRequired[str]

class AttemptDetail(TypedDict):
    number: int
    at: str
    seconds: float
    status: NotRequired[int]
    error: NotRequired[str]
    body: NotRequired[str]
    headers: NotRequired[dict[str, Any]]

class AuditEntry(TypedDict):
    at: str
    who: str
    what: str
    target: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    request_id: str

class AuditLog(TypedDict):
    audit: list[AuditEntry]

class AuthHealthPart(TypedDict):
    status: str
    reason: str

class BacklogAnswer(TypedDict):
    kind: str
    step: str
    replica: str
    parked: bool
    rows: int
    oldest_s: float

class Bundle(TypedDict):
    uuid: str
    version: str
    creator_uid: int
    files: list[FileEntry]
    replication: NotRequired[ReplicaStatesAnswer]

class BundleAnswer(TypedDict):
    bundle: Bundle

class BundleList(TypedDict):
    bundles: list[BundleName]
    has_more: bool
    page_count: int
    per_page: int

class BundleName(TypedDict):
    uuid: str
    version: str

class BundleWritten(TypedDict):
    version: str
    manifest: Manifest

class ChangeAnswer(TypedDict):
    changed: bool

class CheckoutProgressAnswer(TypedDict):
    files: int
    files_total: int
    bytes: int
    bytes_total: int

class CheckoutStarted(TypedDict):
    checkout_job_id: str

class CheckoutStatus(TypedDict):
    status: str
    location: NotRequired[str]
    cause: NotRequired[str]
    progress: CheckoutProgressAnswer
    mail: NotRequired[str]

class ChecksumCounts(TypedDict):
    UNSCHEDULED: int
    SCHEDULED: int
    CHECKSUMMING: int
    CHECKSUMMED: int
    FAILED: int

class ChecksumStatus(TypedDict):
    status: str
    checksums: dict[str, str] | None
    cause: str | None

class CollectionAnswer(TypedDict):
    uuid: str
    version: str
    name: str
    description: str
    details: dict[str, Any]
    contents: list[CollectionItemAnswer]
    owner: str

class CollectionItemAnswer(TypedDict):
    type: str
    uuid: str
    version: str
    path: NotRequired[str]

class CollectionList(TypedDict):
    collections: list[CollectionName]

class CollectionName(TypedDict):
    uuid: str
    version: str

class DamagedObject(TypedDict):
    replica: str
    key: str
    reason: str
    found: str

class DeliveryAnswer(TypedDict):
    id: str
    transaction_id: str
    event_type: str
    bundle_uuid: str
    bundle_version: str
    state: str
    recorded: str
    attempts: list[AttemptAnswer]
    next_attempt: NotRequired[str]
    reason: NotRequired[str]

class DeliveryDetail(TypedDict):
    id: str
    transaction_id: str
    event_type: str
    bundle_uuid: str
    bundle_version: str
    state: str
    recorded: str
    attempts: list[AttemptDetail]
    next_attempt: NotRequired[str]
    reason: NotRequired[str]
    request: NotRequired[WebhookRequestAnswer]

class DeliveryList(TypedDict):
    deliveries: list[DeliveryAnswer]

class DeviceAnswer(TypedDict):
    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str
    expires_in: int
    interval: int

class Discovery(TypedDict):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    userinfo_endpoint: str
    jwks_uri: str
    revocation_endpoint: str
    device_authorization_endpoint: str
    end_session_endpoint: str
    scopes_supported: list[str]
    response_types_supported: list[str]
    response_modes_supported: list[str]
    grant_types_supported: list[str]
    subject_types_supported: list[str]
    id_token_signing_alg_values_supported: list[str]
    token_endpoint_auth_methods_supported: list[str]
    revocation_endpoint_auth_methods_supported: list[str]
    code_challenge_methods_supported: list[str]
    prompt_values_supported: list[str]
    claim_types_supported: list[str]
    claims_supported: list[str]
    authorization_response_iss_parameter_supported: bool
    claims_parameter_supported: bool
    request_parameter_supported: bool
    request_uri_parameter_supported: bool

class DivergedRecord(TypedDict):
    kind: str
    name: str
    replica: str
    seen: str

class DryRunAnswer(TypedDict):
    bundles: list[DryRunBundle]
    timed_out: bool

class DryRunBundle(TypedDict):
    bundle_uuid: str
    bundle_version: str
    matches: bool
    payload: NotRequired[dict[str, Any]]
    error: NotRequired[str]

class Echo(TypedDict):
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]

class EffectiveRole(TypedDict):
    name: str
    groups: list[str]

class Evaluation(TypedDict):
    result: bool
    reason: str
    evaluation_results: list[EvaluationResult]
    grant_stands: bool | None
    policy_version: str

class EvaluationResult(TypedDict):
    action: str
    resource: str
    result: bool
    reason: str
    source: str | None
    statement: str | None
    depends_on: list[str]
    anywhere: bool

class EventDocument(TypedDict):
    event_type: str
    bundle_info: dict[str, Any]
    uuid: str
    manifest: dict[str, Any]
    files: dict[str, Any]
    shape_descriptor: str

class EventList(TypedDict):
    event_streams: list[EventStream]

class EventStream(TypedDict):
    journal_id: str
    from_date: str
    to_date: str
    size: int
    stream_url: str
    events: list[JournalledEvent]

class ExceededQuota(TypedDict):
    kind: str
    name: str
    unit: str
    limit: int
    used: int
    left: int
    requested: int

class FacetAnswer(TypedDict):
    total: int
    facets: dict[str, Any]
    unknown_fields: dict[str, Any]

class Feed(TypedDict):
    events: list[FeedEvent]
    cursor: str

class FeedEvent(TypedDict):
    event_id: str
    event_type: str
    timestamp: str
    replica: str
    bundle_uuid: str
    bundle_version: str
    bundle_url: str

class FieldList(TypedDict):
    fields: list[SearchField]

FileEntry = TypedDict(
    "FileEntry",
    {
        "name": str,
        "uuid": str,
        "version": str,
        "content-type": str,
        "crc32c": str,
        "indexed": bool,
        "s3_etag": str,
        "sha1": str,
        "sha256": str,
        "size": int,
        "url": NotRequired[str],
    },
)

class FileResult(TypedDict):
    version: str
    task_id: NotRequired[str]
    uuid: str
    status: NotRequired[int]
    code: NotRequired[str]
    detail: NotRequired[str]
    errors: NotRequired[dict[str, Any]]
    quota: NotRequired[ExceededQuota]
    retry_after_s: NotRequired[int]

class FileStatus(TypedDict):
    status: str

class FileWritten(TypedDict):
    version: str
    task_id: NotRequired[str]

class FilesWritten(TypedDict):
    files: list[FileResult]

class GroupAnswer(TypedDict):
    policy: dict[str, Any] | None
    built_in: bool
    created: str
    updated: str
    group_id: str

class GroupList(TypedDict):
    groups: list[str]

class Health(TypedDict):
    status: str
    parts: dict[str, AuthHealthPart]

class Integrity(TypedDict):
    at: str
    period_s: float
    replicas: IntegrityReplicas
    damaged: NotRequired[list[DamagedObject]]

class IntegrityReplicas(TypedDict):
    aws: ReplicaIntegrity
    gcp: ReplicaIntegrity

class JournalledEvent(TypedDict):
    event_id: str
    event_type: str
    bundle_uuid: str
    bundle_version: str
    timestamp: str
    offset: int
    size: int

class KeySet(TypedDict):
    keys: list[PublicKey]

class LagAnswer(TypedDict):
    kind: str
    replica: str
    versions: int
    p50_s: NotRequired[float]
    p99_s: NotRequired[float]

class Manifest(TypedDict):
    creator_uid: int
    files: list[FileEntry]

class MetadataSchemaList(TypedDict):
    schemas: list[SchemaPattern]
    documents: dict[str, Any]

class OperationExtent(TypedDict):
    operation: str
    action: str
    extent: str

class Organization(TypedDict):
    name: str
    url: str

class OwnPermissions(TypedDict):
    email: str
    groups: list[str]
    roles: list[EffectiveRole]
    permissions: list[OperationExtent]

class OwnedList(TypedDict):
    resources: list[OwnedThing]

class OwnedThing(TypedDict):
    resource_type: str
    uuid: str
    arn: str

class PendingItem(TypedDict):
    kind: str
    name: str
    step: str
    replica: str
    since: str
    age_s: float
    attempts: int
    parked: bool
    reason: NotRequired[str]

class PolicyVersion(TypedDict):
    policy_version: str

class PublicKey(TypedDict):
    kty: str
    kid: str
    use: str
    alg: str
    n: NotRequired[str]
    e: NotRequired[str]
    crv: NotRequired[str]
    x: NotRequired[str]
    y: NotRequired[str]

class ReplayAnswer(TypedDict):
    replay_id: str
    state: str
    events_left: int
    deliveries: int

class ReplicaIntegrity(TypedDict):
    objects: int
    verified: int
    damaged: int
    repaired: int
    oldest_unverified_s: NotRequired[float]

class ReplicaStateAnswer(TypedDict):
    state: str
    at: NotRequired[str]
    reason: NotRequired[str]

class ReplicaStatesAnswer(TypedDict):
    aws: ReplicaStateAnswer
    gcp: ReplicaStateAnswer

class Replication(TypedDict):
    at: str
    window_s: int
    lag: list[LagAnswer]
    oldest: list[PendingItem]
    backlog: list[BacklogAnswer]
    failures: list[PendingItem]
    diverged: list[DivergedRecord]
    diverged_total: int
    unindexed: list[UnindexedDocument]
    unindexed_total: int

class RetriedAnswer(TypedDict):
    retried: int
    more: bool

class RoleAnswer(TypedDict):
    policy: dict[str, Any] | None
    built_in: bool
    created: str
    updated: str
    role_id: str

class RoleList(TypedDict):
    roles: list[str]

class SchemaPattern(TypedDict):
    pattern: str
    name: str
    digest: str

class SearchAnswer(TypedDict):
    es_query: dict[str, Any]
    results: list[SearchResult]
    total_hits: int

class SearchField(TypedDict):
    name: str
    kind: str
    documents: int

class SearchResult(TypedDict):
    bundle_fqid: str
    bundle_url: str
    search_score: float | None
    metadata: NotRequired[dict[str, Any]]

class ServiceInfo(TypedDict):
    id: str
    name: str
    type: ServiceType
    description: NotRequired[str]
    organization: Organization
    contactUrl: NotRequired[str]
    documentationUrl: str
    version: str

class ServiceType(TypedDict):
    group: str
    artifact: str
    version: str

class StoredAreaFile(TypedDict):
    url: str
    size: int
    checksums: AreaChecksums
    name: str

class SubscriptionAnswer(TypedDict):
    uuid: str
    owner: str
    callback_url: str
    replica: str
    subscription_type: str
    method: str
    encoding: str
    form_fields: dict[str, Any]
    payload_form_field: str
    es_query: NotRequired[dict[str, Any]]
    jmespath_query: NotRequired[str]
    hmac_key_id: NotRequired[str]
    hmac_previous_until: NotRequired[str]
    attachments: NotRequired[dict[str, Any]]
    state: str
    state_since: NotRequired[str]
    state_reason: NotRequired[str]
    failures: NotRequired[int]
    failing_since: NotRequired[str]

class SubscriptionDeleted(TypedDict):
    timeDeleted: str

class SubscriptionList(TypedDict):
    subscriptions: list[SubscriptionAnswer]

class TaskAnswer(TypedDict):
    task_id: str
    status: str
    uuid: str
    version: str
    replica: str
    bytes_done: int
    bytes_total: int
    cause: NotRequired[TaskCause]

class TaskCause(TypedDict):
    code: str
    detail: str
    field: NotRequired[str]
    declared: NotRequired[str]
    computed: NotRequired[str]

class TokenAnswer(TypedDict):
    access_token: str
    token_type: str
    expires_in: int
    refresh_token: str
    scope: str
    id_token: NotRequired[str]

class UnindexedDocument(TypedDict):
    replica: str
    bundle: str
    reason: str

class UserAnswer(TypedDict):
    policy: dict[str, Any] | None
    built_in: bool
    created: str
    updated: str
    user_id: str
    status: str

class UserInfo(TypedDict):
    sub: str
    email: NotRequired[str]
    email_verified: NotRequired[bool]
    name: NotRequired[str]
    preferred_username: NotRequired[str]
    groups: NotRequired[list[str]]

class UserList(TypedDict):
    users: list[str]

class ValidationCounts(TypedDict):
    UNSCHEDULED: int
    VALIDATING: int
    VALIDATED: int
    INVALID: int

class ValidationStatus(TypedDict):
    status: str
    cause: str | None

class WebhookRequestAnswer(TypedDict):
    method: str
    url: str
    body: str

class Operations:
    @_operation
    def delete_area(
        self, *, uuid: AnyUuid, headers: Headers = None,
    ) -> Answer[AreaStateAnswer, Any]:
        """Delete your upload area."""

    @_operation
    def delete_area_upload(
        self, *, uuid: AnyUuid, filename: str, upload_id: str, headers: Headers = None,
    ) -> Answer[dict[str, Any], Any]:
        """Abort an upload."""

    @_operation
    def delete_bundle(
        self, *, uuid: AnyUuid, replica: Replica, reason: str, version: str | None = None,
        headers: Headers = None,
    ) -> Answer[dict[str, Any], Any]:
        """Delete a bundle, or one version of it."""

    @_operation
    def delete_collection(
        self, *, uuid: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Answer[dict[str, Any], Any]:
        """Delete one of your collections."""

    @_operation
    def delete_subscription(
        self, *, uuid: AnyUuid, replica: Replica,
        subscription_type: Literal["jmespath", "elasticsearch"] | None = None,
        headers: Headers = None,
    ) -> Answer[SubscriptionDeleted, Any]:
        """Delete one of your subscriptions."""

    @_operation
    def delete_v1_group(
        self, *, group_id: str, headers: Headers = None,
    ) -> Answer[ChangeAnswer, Any]:
        """Delete a group."""

    @_operation
    def delete_v1_role(self, *, role_id: str, headers: Headers = None) -> Answer[ChangeAnswer, Any]:
        """Delete a role."""

    @_operation
    def dry_run_subscription(
        self, *, replica: Replica, callback_url: str, es_query: Mapping[str, Any] | None = None,
        jmespath_query: str | None = None, method: Literal["POST", "PUT"] | None = None,
        encoding: Literal["application/json", "multipart/form-data"] | None = None,
        form_fields: Mapping[str, Any] | None = None, payload_form_field: str | None = None,
        hmac_key_id: str | None = None, hmac_secret_key: str | None = None,
        attachments: Mapping[str, Any] | None = None, bundles: int | None = None,
        payloads: int | None = None, bundle_uuid: AnyUuid | None = None,
        event_ids: Iterable[AnyUuid] | None = None, subscription_id: AnyUuid | None = None,
        headers: Headers = None,
    ) -> Answer[DryRunAnswer, Any]:
        """Show which of the latest bundles a subscription would match, and the payloads."""

    @_operation
    def get_area(
        self, *, uuid: AnyUuid, per_page: int | None = None, start_at: str | None = None,
        headers: Headers = None,
    ) -> Answer[AreaListing, AreaFileEntry]:
        """List the files of your upload area."""

    @_operation
    def get_area_checksum(
        self, *, uuid: AnyUuid, filename: str, headers: Headers = None,
    ) -> Answer[ChecksumStatus, Any]:
        """Show the checksums of a file of an upload area."""

    @_operation
    def get_area_checksums(
        self, *, uuid: AnyUuid, headers: Headers = None,
    ) -> Answer[AreaChecksumCounts, Any]:
        """Count the files of an upload area by the states of their checksums."""

    @_operation
    def get_area_upload(
        self, *, uuid: AnyUuid, filename: str, upload_id: str, headers: Headers = None,
    ) -> Answer[AreaUploadAnswer, Any]:
        """Show the stored parts of an upload."""

    @_operation
    def get_area_validate(
        self, *, uuid: AnyUuid, filename: str, headers: Headers = None,
    ) -> Answer[ValidationStatus, Any]:
        """Show the validation of a file of an upload area."""

    @_operation
    def get_area_validations(
        self, *, uuid: AnyUuid, headers: Headers = None,
    ) -> Answer[AreaValidationCounts, Any]:
        """Count the files of an upload area by the states of their validation."""

    @_operation
    def get_bundle(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        directurls: bool | None = None, presignedurls: bool | None = None, token: str | None = None,
        per_page: int | None = None, start_at: int | None = None, replication: bool | None = None,
        headers: Headers = None,
    ) -> Answer[BundleAnswer, FileEntry]:
        """Read a bundle."""

    @_operation
    def get_bundle_archive(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        format: Literal["zip", "tar", "bagit", "ro-crate"] | None = None, headers: Headers = None,
    ) -> Answer[Any, Any]:
        """Download a bundle as an archive."""

    @_operation
    def get_bundles_all(
        self, *, replica: Replica, prefix: str | None = None, token: str | None = None,
        per_page: int | None = None, search_after: str | None = None, headers: Headers = None,
    ) -> Answer[BundleList, BundleName]:
        """List bundles."""

    @_operation
    def get_bundles_checkout(
        self, *, checkout_job_id: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Answer[CheckoutStatus, Any]:
        """Show a checkout's status."""

    @_operation
    def get_collection(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        headers: Headers = None,
    ) -> Answer[CollectionAnswer, Any]:
        """Read one of your collections."""

    @_operation
    def get_collections(
        self, *, per_page: int | None = None, start_at: str | None = None, headers: Headers = None,
    ) -> Answer[CollectionList, CollectionName]:
        """List your collections."""

    @_operation
    def get_definition(self, *, headers: Headers = None) -> Answer[dict[str, Any], Any]:
        """This definition."""

    @_operation
    def get_deliveries(
        self, *, uuid: AnyUuid, replica: Replica,
        state: Literal["pending", "delivered", "failed", "superseded", "cancelled"] | None = None,
        event_type: Literal["CREATE", "TOMBSTONE", "DELETE", "TEST"] | None = None,
        bundle_uuid: AnyUuid | None = None, since: str | None = None, until: str | None = None,
        per_page: int | None = None, search_after: str | None = None, headers: Headers = None,
    ) -> Answer[DeliveryList, DeliveryAnswer]:
        """List the deliveries of a subscription."""

    @_operation
    def get_delivery(
        self, *, uuid: AnyUuid, id: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Answer[DeliveryDetail, Any]:
        """Show a delivery with its requests and their results."""

    @_operation
    def get_drs_access(
        self, *, object_id: str, access_id: Replica, headers: Headers = None,
    ) -> Answer[Any, Any]:
        """Get a URL of the bytes of an object of GA4GH DRS."""

    @_operation
    def get_drs_object(
        self, *, object_id: str, expand: bool | None = None, headers: Headers = None,
    ) -> Answer[Any, Any]:
        """Read an object of GA4GH DRS."""

    @_operation
    def get_drs_service_info(self, *, headers: Headers = None) -> Answer[ServiceInfo, Any]:
        """Describe this service to clients of GA4GH DRS."""

    @_operation
    def get_echo(self, *, headers: Headers = None) -> Answer[Echo, Any]:
        """Your request as it arrived, without the secrets in it."""

    @_operation
    def get_event(
        self, *, uuid: AnyUuid, replica: Replica, version: str, headers: Headers = None,
    ) -> Answer[EventDocument, Any]:
        """Read the metadata document of a bundle version."""

    @_operation
    def get_events(
        self, *, replica: Replica, from_date: str | None = None, to_date: str | None = None,
        per_page: int | None = None, token: str | None = None, headers: Headers = None,
    ) -> Answer[EventList, EventStream]:
        """List journals of events."""

    @_operation
    def get_events_feed(
        self, *, replica: Replica, after: str | None = None, per_page: int | None = None,
        from_date: str | None = None, headers: Headers = None,
    ) -> Answer[Feed, Any]:
        """Follow new events."""

    @_operation
    def get_file(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        token: str | None = None, directurl: bool | None = None,
        content_disposition: str | None = None, replication: bool | None = None,
        headers: Headers = None,
    ) -> Answer[Any, Any]:
        """Read a file: a redirect to its content."""

    @_operation
    def get_file_bundles(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        per_page: int | None = None, search_after: str | None = None, headers: Headers = None,
    ) -> Answer[BundleList, BundleName]:
        """List the bundles that contain a file."""

    @_operation
    def get_health(self, *, headers: Headers = None) -> Answer[Health, Any]:
        """Whether every part works."""

    @_operation
    def get_integrity(self, *, headers: Headers = None) -> Answer[Integrity, Any]:
        """Show how many objects are verified, and which are damaged."""

    @_operation
    def get_jwks_json(self, *, headers: Headers = None) -> Answer[KeySet, Any]:
        """The public keys that verify its tokens."""

    @_operation
    def get_login(
        self, *, redirect_uri: str, state: str | None = None, login_hint: str | None = None,
        headers: Headers = None,
    ) -> Answer[Any, Any]:
        """Log in the user of this browser, then redirect to redirect_uri with the same state."""

    @_operation
    def get_logout(
        self, *, id_token_hint: str | None = None, client_id: str | None = None,
        post_logout_redirect_uri: str | None = None, state: str | None = None,
        headers: Headers = None,
    ) -> Answer[Any, Any]:
        """Log out of this service and, if it supports that, of the identity provider."""

    @_operation
    def get_oauth_authorize(
        self, *, response_type: str | None = None, client_id: str | None = None,
        redirect_uri: str | None = None, scope: str | None = None, state: str | None = None,
        nonce: str | None = None, code_challenge: str | None = None,
        code_challenge_method: str | None = None, prompt: str | None = None,
        max_age: str | None = None, headers: Headers = None,
    ) -> Answer[Any, Any]:
        """Authorize an application to act for the user (RFC 6749, OpenID Connect)."""

    @_operation
    def get_oauth_userinfo(self, *, headers: Headers = None) -> Answer[UserInfo, Any]:
        """Whom the access token is of, as far as its scopes let it be known."""

    @_operation
    def get_openid_configuration(self, *, headers: Headers = None) -> Answer[Discovery, Any]:
        """What this service is and does."""

    @_operation
    def get_replay(
        self, *, uuid: AnyUuid, id: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Answer[ReplayAnswer, Any]:
        """Show the progress of a replay."""

    @_operation
    def get_replication(self, *, headers: Headers = None) -> Answer[Replication, Any]:
        """Show replication status."""

    @_operation
    def get_schemas(self, *, headers: Headers = None) -> Answer[MetadataSchemaList, Any]:
        """List the schemas of metadata."""

    @_operation
    def get_search_fields(
        self, *, replica: Replica, prefix: str | None = None, per_page: int | None = None,
        search_after: str | None = None, headers: Headers = None,
    ) -> Answer[FieldList, SearchField]:
        """List the fields that bundles have."""

    @_operation
    def get_subscription(
        self, *, uuid: AnyUuid, replica: Replica,
        subscription_type: Literal["jmespath", "elasticsearch"] | None = None,
        headers: Headers = None,
    ) -> Answer[SubscriptionAnswer, Any]:
        """Read one of your subscriptions."""

    @_operation
    def get_subscriptions(
        self, *, replica: Replica,
        subscription_type: Literal["jmespath", "elasticsearch"] | None = None,
        headers: Headers = None,
    ) -> Answer[SubscriptionList, Any]:
        """List your subscriptions."""

    @_operation
    def get_task(self, *, task_id: AnyUuid, headers: Headers = None) -> Answer[TaskAnswer, Any]:
        """Show how far a file's verification is."""

    @_operation
    def get_v1_account(self, *, headers: Headers = None) -> Answer[OwnPermissions, Any]:
        """Read your own roles and permissions."""

    @_operation
    def get_v1_audit(
        self, *, per_page: int | None = None, next_token: str | None = None, who: str | None = None,
        what: str | None = None, since: str | None = None, until: str | None = None,
        target: str | None = None, headers: Headers = None,
    ) -> Answer[AuditLog, AuditEntry]:
        """Read who changed what."""

    @_operation
    def get_v1_group(self, *, group_id: str, headers: Headers = None) -> Answer[GroupAnswer, Any]:
        """Read a group."""

    @_operation
    def get_v1_group_roles(
        self, *, group_id: str, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Answer[RoleList, str]:
        """List the roles of a group."""

    @_operation
    def get_v1_group_users(
        self, *, group_id: str, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Answer[UserList, str]:
        """List the users in a group."""

    @_operation
    def get_v1_groups(
        self, *, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Answer[GroupList, str]:
        """List groups."""

    @_operation
    def get_v1_policies_version(self, *, headers: Headers = None) -> Answer[PolicyVersion, Any]:
        """Which policies are in force."""

    @_operation
    def get_v1_role(self, *, role_id: str, headers: Headers = None) -> Answer[RoleAnswer, Any]:
        """Read a role."""

    @_operation
    def get_v1_roles(
        self, *, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Answer[RoleList, str]:
        """List roles."""

    @_operation
    def get_v1_user(self, *, user_id: str, headers: Headers = None) -> Answer[UserAnswer, Any]:
        """Read a user."""

    @_operation
    def get_v1_user_groups(
        self, *, user_id: str, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Answer[GroupList, str]:
        """List the groups that a user is in."""

    @_operation
    def get_v1_user_owns(
        self, *, user_id: str, per_page: int | None = None, next_token: str | None = None,
        resource_type: Literal["area", "collection", "subscription"] | None = None,
        headers: Headers = None,
    ) -> Answer[OwnedList, OwnedThing]:
        """List what a user owns."""

    @_operation
    def get_v1_user_roles(
        self, *, user_id: str, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Answer[RoleList, str]:
        """List the roles of a user."""

    @_operation
    def get_v1_users(
        self, *, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Answer[UserList, str]:
        """List users."""

    @_operation
    def head_area(self, *, uuid: AnyUuid, headers: Headers = None) -> Answer[Any, Any]:
        """Check whether your upload area exists."""

    @_operation
    def head_file(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        replication: bool | None = None, headers: Headers = None,
    ) -> Answer[Any, Any]:
        """Read a file's metadata."""

    @_operation
    def patch_area(
        self, *, uuid: AnyUuid, state: Literal["UNLOCKED", "LOCKED"], headers: Headers = None,
    ) -> Answer[AreaStateAnswer, Any]:
        """Lock or unlock your upload area."""

    @_operation
    def patch_bundle(
        self, *, uuid: AnyUuid, version: str, replica: Replica,
        add_files: Iterable[Mapping[str, Any]] | None = None,
        remove_files: Iterable[Mapping[str, Any]] | None = None, headers: Headers = None,
    ) -> Answer[BundleName, Any]:
        """Add files to a bundle and remove files from it."""

    @_operation
    def patch_collection(
        self, *, uuid: AnyUuid, version: str, replica: Replica,
        add_contents: Iterable[Mapping[str, Any]] | None = None,
        remove_contents: Iterable[Mapping[str, Any]] | None = None, name: str | None = None,
        description: str | None = None, details: Mapping[str, Any] | None = None,
        headers: Headers = None,
    ) -> Answer[CollectionName, Any]:
        """Add and remove links of one of your collections, and change its metadata."""

    @_operation
    def pause_subscription(
        self, *, uuid: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Answer[SubscriptionAnswer, Any]:
        """Pause the deliveries of a subscription."""

    @_operation
    def post_area(self, *, uuid: AnyUuid, headers: Headers = None) -> Answer[AreaCreated, Any]:
        """Open an upload area."""

    @_operation
    def post_area_credentials(
        self, *, uuid: AnyUuid, filenames: Iterable[str] | None = None, headers: Headers = None,
    ) -> Answer[AreaCredentials, Any]:
        """Get credentials or URLs to write to an upload area."""

    @_operation
    def post_area_file(
        self, *, uuid: AnyUuid, filename: str, content_type: str | None = None,
        size: int | None = None, checksums: Mapping[str, Any] | None = None,
        headers: Headers = None,
    ) -> Answer[FileStatus, Any]:
        """Register a file uploaded directly to the bucket."""

    @_operation
    def post_area_part(
        self, *, uuid: AnyUuid, filename: str, upload_id: str, part: int, crc32c: str,
        headers: Headers = None,
    ) -> Answer[AreaPartAddress, Any]:
        """Get the URL to put one part of an upload to."""

    @_operation
    def post_area_upload(
        self, *, uuid: AnyUuid, filename: str, size: int, content_type: str | None = None,
        upload_id: str | None = None, headers: Headers = None,
    ) -> Answer[AreaUploadAnswer, Any]:
        """Begin or resume a multipart upload into an upload area."""

    @_operation
    def post_area_upload_complete(
        self, *, uuid: AnyUuid, filename: str, upload_id: str,
        checksums: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Answer[AreaUploadDone, Any]:
        """Complete a multipart upload."""

    @_operation
    def post_bundles_checkout(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        destination: str | None = None, email: str | None = None, headers: Headers = None,
    ) -> Answer[CheckoutStarted, Any]:
        """Check a bundle out."""

    @_operation
    def post_logout(self, *, headers: Headers = None) -> Answer[Any, Any]:
        """Log out, with the parameters in a form."""

    @_operation
    def post_oauth_authorize(self, *, headers: Headers = None) -> Answer[Any, Any]:
        """Authorize an application, with the parameters in a form."""

    @_operation
    def post_oauth_device(
        self, *, client_id: str | None = None, client_secret: str | None = None,
        scope: str | None = None, headers: Headers = None,
    ) -> Answer[DeviceAnswer, Any]:
        """A code for a device without a browser, which a person enters at /device."""

    @_operation
    def post_oauth_revoke(
        self, *, token: str, client_id: str | None = None, client_secret: str | None = None,
        token_type_hint: str | None = None, headers: Headers = None,
    ) -> Answer[Any, Any]:
        """Give a token back."""

    @_operation
    def post_oauth_token(
        self, *, grant_type: str, client_id: str | None = None, client_secret: str | None = None,
        code: str | None = None, redirect_uri: str | None = None, code_verifier: str | None = None,
        refresh_token: str | None = None, device_code: str | None = None, scope: str | None = None,
        headers: Headers = None,
    ) -> Answer[TokenAnswer, Any]:
        """Tokens for a code, a refresh token or a device's code."""

    @_operation
    def post_oauth_userinfo(self, *, headers: Headers = None) -> Answer[UserInfo, Any]:
        """The same; the token may be `access_token` of a body instead of in the header."""

    @_operation
    def post_search(
        self, *, replica: Replica, es_query: Mapping[str, Any],
        output_format: Literal["summary", "raw"] | None = None, per_page: int | None = None,
        search_after: str | None = None, headers: Headers = None,
    ) -> Answer[SearchAnswer, SearchResult]:
        """Find bundles by their metadata."""

    @_operation
    def post_search_facets(
        self, *, replica: Replica, es_query: Mapping[str, Any], fields: Iterable[str],
        size: int | None = None, headers: Headers = None,
    ) -> Answer[FacetAnswer, Any]:
        """Count matching bundles by the values of fields."""

    @_operation
    def post_v1_group(
        self, *, group_id: str, roles: Iterable[str] | None = None,
        policy: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Answer[GroupAnswer, Any]:
        """Make a group."""

    @_operation
    def post_v1_policies_evaluate(
        self, *, principal: str, action: Iterable[str], resource: Iterable[str],
        groups: Iterable[str] | None = None, context: Mapping[str, Any] | None = None,
        grant: str | None = None, headers: Headers = None,
    ) -> Answer[Evaluation, Any]:
        """Say what a principal may do, and why."""

    @_operation
    def post_v1_role(
        self, *, role_id: str, policy: Mapping[str, Any], headers: Headers = None,
    ) -> Answer[RoleAnswer, Any]:
        """Make a role."""

    @_operation
    def post_v1_user(
        self, *, user_id: str, groups: Iterable[str] | None = None,
        roles: Iterable[str] | None = None, policy: Mapping[str, Any] | None = None,
        headers: Headers = None,
    ) -> Answer[UserAnswer, Any]:
        """Make a user."""

    @_operation
    def put_area_file(
        self, *, uuid: AnyUuid, filename: str,
        content: bytes | Path | BinaryIO | Callable[[], Iterable[bytes]] | None = None,
        headers: Headers = None,
    ) -> Answer[AreaFileAnswer, Any]:
        """Put a file into an upload area."""

    @_operation
    def put_area_files(
        self, *, uuid: AnyUuid,
        content: bytes | Path | BinaryIO | Callable[[], Iterable[bytes]] | None = None,
        headers: Headers = None,
    ) -> Answer[AreaFilesAnswer, Any]:
        """Put several small files into an upload area."""

    @_operation
    def put_area_part(
        self, *, uuid: AnyUuid, filename: str, upload_id: str, part: int,
        content: bytes | Path | BinaryIO | Callable[[], Iterable[bytes]] | None = None,
        headers: Headers = None,
    ) -> Answer[AreaPart, Any]:
        """Put one part of an upload."""

    @_operation
    def put_bundle(
        self, *, uuid: AnyUuid, version: str, replica: Replica, creator_uid: int,
        files: Iterable[Mapping[str, Any]], headers: Headers = None,
    ) -> Answer[BundleWritten, Any]:
        """Write a bundle version."""

    @_operation
    def put_collection(
        self, *, uuid: AnyUuid, version: str, replica: Replica, name: str, description: str,
        details: Mapping[str, Any], contents: Iterable[Mapping[str, Any]], headers: Headers = None,
    ) -> Answer[CollectionName, Any]:
        """Write a collection version."""

    @_operation
    def put_file(
        self, *, uuid: AnyUuid, version: str, source_url: str, creator_uid: int,
        replica: Replica | None = None, headers: Headers = None,
    ) -> Answer[FileWritten, Any]:
        """Write a file version."""

    @_operation
    def put_files(
        self, *, replica: Replica, files: Iterable[Mapping[str, Any]], headers: Headers = None,
    ) -> Answer[FilesWritten, Any]:
        """Write several file versions."""

    @_operation
    def put_subscription(
        self, *, replica: Replica, callback_url: str, es_query: Mapping[str, Any] | None = None,
        jmespath_query: str | None = None, method: Literal["POST", "PUT"] | None = None,
        encoding: Literal["application/json", "multipart/form-data"] | None = None,
        form_fields: Mapping[str, Any] | None = None, payload_form_field: str | None = None,
        hmac_key_id: str | None = None, hmac_secret_key: str | None = None,
        attachments: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Answer[SubscriptionAnswer, Any]:
        """Create a subscription."""

    @_operation
    def put_subscription_secret(
        self, *, uuid: AnyUuid, replica: Replica, hmac_secret_key: str,
        hmac_key_id: str | None = None, overlap_s: int | None = None, headers: Headers = None,
    ) -> Answer[SubscriptionAnswer, Any]:
        """Change the secret that signs a subscription's deliveries."""

    @_operation
    def put_v1_group_policy(
        self, *, group_id: str, policy: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Answer[ChangeAnswer, Any]:
        """Give a group a policy."""

    @_operation
    def put_v1_group_role(
        self, *, group_id: str, action: Literal["add", "remove"],
        roles: Iterable[str] | None = None, headers: Headers = None,
    ) -> Answer[ChangeAnswer, Any]:
        """Give a group roles, or take them away."""

    @_operation
    def put_v1_group_user(
        self, *, group_id: str, action: Literal["add", "remove"],
        users: Iterable[str] | None = None, headers: Headers = None,
    ) -> Answer[ChangeAnswer, Any]:
        """Add users to a group, or remove them."""

    @_operation
    def put_v1_role_policy(
        self, *, role_id: str, policy: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Answer[ChangeAnswer, Any]:
        """Give a role another policy."""

    @_operation
    def put_v1_user(
        self, *, user_id: str, status: Literal["enabled", "disabled"], headers: Headers = None,
    ) -> Answer[ChangeAnswer, Any]:
        """Enable or disable a user."""

    @_operation
    def put_v1_user_group(
        self, *, user_id: str, action: Literal["add", "remove"],
        groups: Iterable[str] | None = None, headers: Headers = None,
    ) -> Answer[ChangeAnswer, Any]:
        """Add a user to groups, or remove them."""

    @_operation
    def put_v1_user_policy(
        self, *, user_id: str, policy: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Answer[ChangeAnswer, Any]:
        """Give a user a policy of their own."""

    @_operation
    def put_v1_user_role(
        self, *, user_id: str, action: Literal["add", "remove"], roles: Iterable[str] | None = None,
        headers: Headers = None,
    ) -> Answer[ChangeAnswer, Any]:
        """Give a user roles, or take them away."""

    @_operation
    def replay_subscription(
        self, *, uuid: AnyUuid, replica: Replica, from_date: str | None = None,
        to_date: str | None = None, headers: Headers = None,
    ) -> Answer[ReplayAnswer, Any]:
        """Deliver the events of a time window again."""

    @_operation
    def resend_delivery(
        self, *, uuid: AnyUuid, id: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Answer[DeliveryAnswer, Any]:
        """Send a delivery once more, whatever the state of its subscription."""

    @_operation
    def resume_subscription(
        self, *, uuid: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Answer[SubscriptionAnswer, Any]:
        """Resume the deliveries of a subscription."""

    @_operation
    def retry_deliveries(
        self, *, uuid: AnyUuid, replica: Replica, since: str, until: str | None = None,
        event_type: str | None = None, headers: Headers = None,
    ) -> Answer[RetriedAnswer, Any]:
        """Retry the deliveries that failed since a time."""

    @_operation
    def retry_delivery(
        self, *, uuid: AnyUuid, id: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Answer[DeliveryAnswer, Any]:
        """Retry a delivery now."""

    @_operation
    def test_subscription(
        self, *, uuid: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Answer[DeliveryAnswer, Any]:
        """Send a test delivery."""

class AsyncOperations:
    @_async_operation
    def delete_area(
        self, *, uuid: AnyUuid, headers: Headers = None,
    ) -> Answer[AreaStateAnswer, Any]:
        """Delete your upload area."""

    @_async_operation
    def delete_area_upload(
        self, *, uuid: AnyUuid, filename: str, upload_id: str, headers: Headers = None,
    ) -> Answer[dict[str, Any], Any]:
        """Abort an upload."""

    @_async_operation
    def delete_bundle(
        self, *, uuid: AnyUuid, replica: Replica, reason: str, version: str | None = None,
        headers: Headers = None,
    ) -> Answer[dict[str, Any], Any]:
        """Delete a bundle, or one version of it."""

    @_async_operation
    def delete_collection(
        self, *, uuid: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Answer[dict[str, Any], Any]:
        """Delete one of your collections."""

    @_async_operation
    def delete_subscription(
        self, *, uuid: AnyUuid, replica: Replica,
        subscription_type: Literal["jmespath", "elasticsearch"] | None = None,
        headers: Headers = None,
    ) -> Answer[SubscriptionDeleted, Any]:
        """Delete one of your subscriptions."""

    @_async_operation
    def delete_v1_group(
        self, *, group_id: str, headers: Headers = None,
    ) -> Answer[ChangeAnswer, Any]:
        """Delete a group."""

    @_async_operation
    def delete_v1_role(self, *, role_id: str, headers: Headers = None) -> Answer[ChangeAnswer, Any]:
        """Delete a role."""

    @_async_operation
    def dry_run_subscription(
        self, *, replica: Replica, callback_url: str, es_query: Mapping[str, Any] | None = None,
        jmespath_query: str | None = None, method: Literal["POST", "PUT"] | None = None,
        encoding: Literal["application/json", "multipart/form-data"] | None = None,
        form_fields: Mapping[str, Any] | None = None, payload_form_field: str | None = None,
        hmac_key_id: str | None = None, hmac_secret_key: str | None = None,
        attachments: Mapping[str, Any] | None = None, bundles: int | None = None,
        payloads: int | None = None, bundle_uuid: AnyUuid | None = None,
        event_ids: Iterable[AnyUuid] | None = None, subscription_id: AnyUuid | None = None,
        headers: Headers = None,
    ) -> Answer[DryRunAnswer, Any]:
        """Show which of the latest bundles a subscription would match, and the payloads."""

    @_async_operation
    def get_area(
        self, *, uuid: AnyUuid, per_page: int | None = None, start_at: str | None = None,
        headers: Headers = None,
    ) -> Answer[AreaListing, AreaFileEntry]:
        """List the files of your upload area."""

    @_async_operation
    def get_area_checksum(
        self, *, uuid: AnyUuid, filename: str, headers: Headers = None,
    ) -> Answer[ChecksumStatus, Any]:
        """Show the checksums of a file of an upload area."""

    @_async_operation
    def get_area_checksums(
        self, *, uuid: AnyUuid, headers: Headers = None,
    ) -> Answer[AreaChecksumCounts, Any]:
        """Count the files of an upload area by the states of their checksums."""

    @_async_operation
    def get_area_upload(
        self, *, uuid: AnyUuid, filename: str, upload_id: str, headers: Headers = None,
    ) -> Answer[AreaUploadAnswer, Any]:
        """Show the stored parts of an upload."""

    @_async_operation
    def get_area_validate(
        self, *, uuid: AnyUuid, filename: str, headers: Headers = None,
    ) -> Answer[ValidationStatus, Any]:
        """Show the validation of a file of an upload area."""

    @_async_operation
    def get_area_validations(
        self, *, uuid: AnyUuid, headers: Headers = None,
    ) -> Answer[AreaValidationCounts, Any]:
        """Count the files of an upload area by the states of their validation."""

    @_async_operation
    def get_bundle(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        directurls: bool | None = None, presignedurls: bool | None = None, token: str | None = None,
        per_page: int | None = None, start_at: int | None = None, replication: bool | None = None,
        headers: Headers = None,
    ) -> Answer[BundleAnswer, FileEntry]:
        """Read a bundle."""

    @_async_operation
    def get_bundle_archive(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        format: Literal["zip", "tar", "bagit", "ro-crate"] | None = None, headers: Headers = None,
    ) -> Answer[Any, Any]:
        """Download a bundle as an archive."""

    @_async_operation
    def get_bundles_all(
        self, *, replica: Replica, prefix: str | None = None, token: str | None = None,
        per_page: int | None = None, search_after: str | None = None, headers: Headers = None,
    ) -> Answer[BundleList, BundleName]:
        """List bundles."""

    @_async_operation
    def get_bundles_checkout(
        self, *, checkout_job_id: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Answer[CheckoutStatus, Any]:
        """Show a checkout's status."""

    @_async_operation
    def get_collection(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        headers: Headers = None,
    ) -> Answer[CollectionAnswer, Any]:
        """Read one of your collections."""

    @_async_operation
    def get_collections(
        self, *, per_page: int | None = None, start_at: str | None = None, headers: Headers = None,
    ) -> Answer[CollectionList, CollectionName]:
        """List your collections."""

    @_async_operation
    def get_definition(self, *, headers: Headers = None) -> Answer[dict[str, Any], Any]:
        """This definition."""

    @_async_operation
    def get_deliveries(
        self, *, uuid: AnyUuid, replica: Replica,
        state: Literal["pending", "delivered", "failed", "superseded", "cancelled"] | None = None,
        event_type: Literal["CREATE", "TOMBSTONE", "DELETE", "TEST"] | None = None,
        bundle_uuid: AnyUuid | None = None, since: str | None = None, until: str | None = None,
        per_page: int | None = None, search_after: str | None = None, headers: Headers = None,
    ) -> Answer[DeliveryList, DeliveryAnswer]:
        """List the deliveries of a subscription."""

    @_async_operation
    def get_delivery(
        self, *, uuid: AnyUuid, id: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Answer[DeliveryDetail, Any]:
        """Show a delivery with its requests and their results."""

    @_async_operation
    def get_drs_access(
        self, *, object_id: str, access_id: Replica, headers: Headers = None,
    ) -> Answer[Any, Any]:
        """Get a URL of the bytes of an object of GA4GH DRS."""

    @_async_operation
    def get_drs_object(
        self, *, object_id: str, expand: bool | None = None, headers: Headers = None,
    ) -> Answer[Any, Any]:
        """Read an object of GA4GH DRS."""

    @_async_operation
    def get_drs_service_info(self, *, headers: Headers = None) -> Answer[ServiceInfo, Any]:
        """Describe this service to clients of GA4GH DRS."""

    @_async_operation
    def get_echo(self, *, headers: Headers = None) -> Answer[Echo, Any]:
        """Your request as it arrived, without the secrets in it."""

    @_async_operation
    def get_event(
        self, *, uuid: AnyUuid, replica: Replica, version: str, headers: Headers = None,
    ) -> Answer[EventDocument, Any]:
        """Read the metadata document of a bundle version."""

    @_async_operation
    def get_events(
        self, *, replica: Replica, from_date: str | None = None, to_date: str | None = None,
        per_page: int | None = None, token: str | None = None, headers: Headers = None,
    ) -> Answer[EventList, EventStream]:
        """List journals of events."""

    @_async_operation
    def get_events_feed(
        self, *, replica: Replica, after: str | None = None, per_page: int | None = None,
        from_date: str | None = None, headers: Headers = None,
    ) -> Answer[Feed, Any]:
        """Follow new events."""

    @_async_operation
    def get_file(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        token: str | None = None, directurl: bool | None = None,
        content_disposition: str | None = None, replication: bool | None = None,
        headers: Headers = None,
    ) -> Answer[Any, Any]:
        """Read a file: a redirect to its content."""

    @_async_operation
    def get_file_bundles(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        per_page: int | None = None, search_after: str | None = None, headers: Headers = None,
    ) -> Answer[BundleList, BundleName]:
        """List the bundles that contain a file."""

    @_async_operation
    def get_health(self, *, headers: Headers = None) -> Answer[Health, Any]:
        """Whether every part works."""

    @_async_operation
    def get_integrity(self, *, headers: Headers = None) -> Answer[Integrity, Any]:
        """Show how many objects are verified, and which are damaged."""

    @_async_operation
    def get_jwks_json(self, *, headers: Headers = None) -> Answer[KeySet, Any]:
        """The public keys that verify its tokens."""

    @_async_operation
    def get_login(
        self, *, redirect_uri: str, state: str | None = None, login_hint: str | None = None,
        headers: Headers = None,
    ) -> Answer[Any, Any]:
        """Log in the user of this browser, then redirect to redirect_uri with the same state."""

    @_async_operation
    def get_logout(
        self, *, id_token_hint: str | None = None, client_id: str | None = None,
        post_logout_redirect_uri: str | None = None, state: str | None = None,
        headers: Headers = None,
    ) -> Answer[Any, Any]:
        """Log out of this service and, if it supports that, of the identity provider."""

    @_async_operation
    def get_oauth_authorize(
        self, *, response_type: str | None = None, client_id: str | None = None,
        redirect_uri: str | None = None, scope: str | None = None, state: str | None = None,
        nonce: str | None = None, code_challenge: str | None = None,
        code_challenge_method: str | None = None, prompt: str | None = None,
        max_age: str | None = None, headers: Headers = None,
    ) -> Answer[Any, Any]:
        """Authorize an application to act for the user (RFC 6749, OpenID Connect)."""

    @_async_operation
    def get_oauth_userinfo(self, *, headers: Headers = None) -> Answer[UserInfo, Any]:
        """Whom the access token is of, as far as its scopes let it be known."""

    @_async_operation
    def get_openid_configuration(self, *, headers: Headers = None) -> Answer[Discovery, Any]:
        """What this service is and does."""

    @_async_operation
    def get_replay(
        self, *, uuid: AnyUuid, id: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Answer[ReplayAnswer, Any]:
        """Show the progress of a replay."""

    @_async_operation
    def get_replication(self, *, headers: Headers = None) -> Answer[Replication, Any]:
        """Show replication status."""

    @_async_operation
    def get_schemas(self, *, headers: Headers = None) -> Answer[MetadataSchemaList, Any]:
        """List the schemas of metadata."""

    @_async_operation
    def get_search_fields(
        self, *, replica: Replica, prefix: str | None = None, per_page: int | None = None,
        search_after: str | None = None, headers: Headers = None,
    ) -> Answer[FieldList, SearchField]:
        """List the fields that bundles have."""

    @_async_operation
    def get_subscription(
        self, *, uuid: AnyUuid, replica: Replica,
        subscription_type: Literal["jmespath", "elasticsearch"] | None = None,
        headers: Headers = None,
    ) -> Answer[SubscriptionAnswer, Any]:
        """Read one of your subscriptions."""

    @_async_operation
    def get_subscriptions(
        self, *, replica: Replica,
        subscription_type: Literal["jmespath", "elasticsearch"] | None = None,
        headers: Headers = None,
    ) -> Answer[SubscriptionList, Any]:
        """List your subscriptions."""

    @_async_operation
    def get_task(self, *, task_id: AnyUuid, headers: Headers = None) -> Answer[TaskAnswer, Any]:
        """Show how far a file's verification is."""

    @_async_operation
    def get_v1_account(self, *, headers: Headers = None) -> Answer[OwnPermissions, Any]:
        """Read your own roles and permissions."""

    @_async_operation
    def get_v1_audit(
        self, *, per_page: int | None = None, next_token: str | None = None, who: str | None = None,
        what: str | None = None, since: str | None = None, until: str | None = None,
        target: str | None = None, headers: Headers = None,
    ) -> Answer[AuditLog, AuditEntry]:
        """Read who changed what."""

    @_async_operation
    def get_v1_group(self, *, group_id: str, headers: Headers = None) -> Answer[GroupAnswer, Any]:
        """Read a group."""

    @_async_operation
    def get_v1_group_roles(
        self, *, group_id: str, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Answer[RoleList, str]:
        """List the roles of a group."""

    @_async_operation
    def get_v1_group_users(
        self, *, group_id: str, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Answer[UserList, str]:
        """List the users in a group."""

    @_async_operation
    def get_v1_groups(
        self, *, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Answer[GroupList, str]:
        """List groups."""

    @_async_operation
    def get_v1_policies_version(self, *, headers: Headers = None) -> Answer[PolicyVersion, Any]:
        """Which policies are in force."""

    @_async_operation
    def get_v1_role(self, *, role_id: str, headers: Headers = None) -> Answer[RoleAnswer, Any]:
        """Read a role."""

    @_async_operation
    def get_v1_roles(
        self, *, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Answer[RoleList, str]:
        """List roles."""

    @_async_operation
    def get_v1_user(self, *, user_id: str, headers: Headers = None) -> Answer[UserAnswer, Any]:
        """Read a user."""

    @_async_operation
    def get_v1_user_groups(
        self, *, user_id: str, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Answer[GroupList, str]:
        """List the groups that a user is in."""

    @_async_operation
    def get_v1_user_owns(
        self, *, user_id: str, per_page: int | None = None, next_token: str | None = None,
        resource_type: Literal["area", "collection", "subscription"] | None = None,
        headers: Headers = None,
    ) -> Answer[OwnedList, OwnedThing]:
        """List what a user owns."""

    @_async_operation
    def get_v1_user_roles(
        self, *, user_id: str, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Answer[RoleList, str]:
        """List the roles of a user."""

    @_async_operation
    def get_v1_users(
        self, *, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Answer[UserList, str]:
        """List users."""

    @_async_operation
    def head_area(self, *, uuid: AnyUuid, headers: Headers = None) -> Answer[Any, Any]:
        """Check whether your upload area exists."""

    @_async_operation
    def head_file(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        replication: bool | None = None, headers: Headers = None,
    ) -> Answer[Any, Any]:
        """Read a file's metadata."""

    @_async_operation
    def patch_area(
        self, *, uuid: AnyUuid, state: Literal["UNLOCKED", "LOCKED"], headers: Headers = None,
    ) -> Answer[AreaStateAnswer, Any]:
        """Lock or unlock your upload area."""

    @_async_operation
    def patch_bundle(
        self, *, uuid: AnyUuid, version: str, replica: Replica,
        add_files: Iterable[Mapping[str, Any]] | None = None,
        remove_files: Iterable[Mapping[str, Any]] | None = None, headers: Headers = None,
    ) -> Answer[BundleName, Any]:
        """Add files to a bundle and remove files from it."""

    @_async_operation
    def patch_collection(
        self, *, uuid: AnyUuid, version: str, replica: Replica,
        add_contents: Iterable[Mapping[str, Any]] | None = None,
        remove_contents: Iterable[Mapping[str, Any]] | None = None, name: str | None = None,
        description: str | None = None, details: Mapping[str, Any] | None = None,
        headers: Headers = None,
    ) -> Answer[CollectionName, Any]:
        """Add and remove links of one of your collections, and change its metadata."""

    @_async_operation
    def pause_subscription(
        self, *, uuid: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Answer[SubscriptionAnswer, Any]:
        """Pause the deliveries of a subscription."""

    @_async_operation
    def post_area(self, *, uuid: AnyUuid, headers: Headers = None) -> Answer[AreaCreated, Any]:
        """Open an upload area."""

    @_async_operation
    def post_area_credentials(
        self, *, uuid: AnyUuid, filenames: Iterable[str] | None = None, headers: Headers = None,
    ) -> Answer[AreaCredentials, Any]:
        """Get credentials or URLs to write to an upload area."""

    @_async_operation
    def post_area_file(
        self, *, uuid: AnyUuid, filename: str, content_type: str | None = None,
        size: int | None = None, checksums: Mapping[str, Any] | None = None,
        headers: Headers = None,
    ) -> Answer[FileStatus, Any]:
        """Register a file uploaded directly to the bucket."""

    @_async_operation
    def post_area_part(
        self, *, uuid: AnyUuid, filename: str, upload_id: str, part: int, crc32c: str,
        headers: Headers = None,
    ) -> Answer[AreaPartAddress, Any]:
        """Get the URL to put one part of an upload to."""

    @_async_operation
    def post_area_upload(
        self, *, uuid: AnyUuid, filename: str, size: int, content_type: str | None = None,
        upload_id: str | None = None, headers: Headers = None,
    ) -> Answer[AreaUploadAnswer, Any]:
        """Begin or resume a multipart upload into an upload area."""

    @_async_operation
    def post_area_upload_complete(
        self, *, uuid: AnyUuid, filename: str, upload_id: str,
        checksums: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Answer[AreaUploadDone, Any]:
        """Complete a multipart upload."""

    @_async_operation
    def post_bundles_checkout(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        destination: str | None = None, email: str | None = None, headers: Headers = None,
    ) -> Answer[CheckoutStarted, Any]:
        """Check a bundle out."""

    @_async_operation
    def post_logout(self, *, headers: Headers = None) -> Answer[Any, Any]:
        """Log out, with the parameters in a form."""

    @_async_operation
    def post_oauth_authorize(self, *, headers: Headers = None) -> Answer[Any, Any]:
        """Authorize an application, with the parameters in a form."""

    @_async_operation
    def post_oauth_device(
        self, *, client_id: str | None = None, client_secret: str | None = None,
        scope: str | None = None, headers: Headers = None,
    ) -> Answer[DeviceAnswer, Any]:
        """A code for a device without a browser, which a person enters at /device."""

    @_async_operation
    def post_oauth_revoke(
        self, *, token: str, client_id: str | None = None, client_secret: str | None = None,
        token_type_hint: str | None = None, headers: Headers = None,
    ) -> Answer[Any, Any]:
        """Give a token back."""

    @_async_operation
    def post_oauth_token(
        self, *, grant_type: str, client_id: str | None = None, client_secret: str | None = None,
        code: str | None = None, redirect_uri: str | None = None, code_verifier: str | None = None,
        refresh_token: str | None = None, device_code: str | None = None, scope: str | None = None,
        headers: Headers = None,
    ) -> Answer[TokenAnswer, Any]:
        """Tokens for a code, a refresh token or a device's code."""

    @_async_operation
    def post_oauth_userinfo(self, *, headers: Headers = None) -> Answer[UserInfo, Any]:
        """The same; the token may be `access_token` of a body instead of in the header."""

    @_async_operation
    def post_search(
        self, *, replica: Replica, es_query: Mapping[str, Any],
        output_format: Literal["summary", "raw"] | None = None, per_page: int | None = None,
        search_after: str | None = None, headers: Headers = None,
    ) -> Answer[SearchAnswer, SearchResult]:
        """Find bundles by their metadata."""

    @_async_operation
    def post_search_facets(
        self, *, replica: Replica, es_query: Mapping[str, Any], fields: Iterable[str],
        size: int | None = None, headers: Headers = None,
    ) -> Answer[FacetAnswer, Any]:
        """Count matching bundles by the values of fields."""

    @_async_operation
    def post_v1_group(
        self, *, group_id: str, roles: Iterable[str] | None = None,
        policy: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Answer[GroupAnswer, Any]:
        """Make a group."""

    @_async_operation
    def post_v1_policies_evaluate(
        self, *, principal: str, action: Iterable[str], resource: Iterable[str],
        groups: Iterable[str] | None = None, context: Mapping[str, Any] | None = None,
        grant: str | None = None, headers: Headers = None,
    ) -> Answer[Evaluation, Any]:
        """Say what a principal may do, and why."""

    @_async_operation
    def post_v1_role(
        self, *, role_id: str, policy: Mapping[str, Any], headers: Headers = None,
    ) -> Answer[RoleAnswer, Any]:
        """Make a role."""

    @_async_operation
    def post_v1_user(
        self, *, user_id: str, groups: Iterable[str] | None = None,
        roles: Iterable[str] | None = None, policy: Mapping[str, Any] | None = None,
        headers: Headers = None,
    ) -> Answer[UserAnswer, Any]:
        """Make a user."""

    @_async_operation
    def put_area_file(
        self, *, uuid: AnyUuid, filename: str,
        content: bytes | Path | BinaryIO | Callable[[], Iterable[bytes]] | None = None,
        headers: Headers = None,
    ) -> Answer[AreaFileAnswer, Any]:
        """Put a file into an upload area."""

    @_async_operation
    def put_area_files(
        self, *, uuid: AnyUuid,
        content: bytes | Path | BinaryIO | Callable[[], Iterable[bytes]] | None = None,
        headers: Headers = None,
    ) -> Answer[AreaFilesAnswer, Any]:
        """Put several small files into an upload area."""

    @_async_operation
    def put_area_part(
        self, *, uuid: AnyUuid, filename: str, upload_id: str, part: int,
        content: bytes | Path | BinaryIO | Callable[[], Iterable[bytes]] | None = None,
        headers: Headers = None,
    ) -> Answer[AreaPart, Any]:
        """Put one part of an upload."""

    @_async_operation
    def put_bundle(
        self, *, uuid: AnyUuid, version: str, replica: Replica, creator_uid: int,
        files: Iterable[Mapping[str, Any]], headers: Headers = None,
    ) -> Answer[BundleWritten, Any]:
        """Write a bundle version."""

    @_async_operation
    def put_collection(
        self, *, uuid: AnyUuid, version: str, replica: Replica, name: str, description: str,
        details: Mapping[str, Any], contents: Iterable[Mapping[str, Any]], headers: Headers = None,
    ) -> Answer[CollectionName, Any]:
        """Write a collection version."""

    @_async_operation
    def put_file(
        self, *, uuid: AnyUuid, version: str, source_url: str, creator_uid: int,
        replica: Replica | None = None, headers: Headers = None,
    ) -> Answer[FileWritten, Any]:
        """Write a file version."""

    @_async_operation
    def put_files(
        self, *, replica: Replica, files: Iterable[Mapping[str, Any]], headers: Headers = None,
    ) -> Answer[FilesWritten, Any]:
        """Write several file versions."""

    @_async_operation
    def put_subscription(
        self, *, replica: Replica, callback_url: str, es_query: Mapping[str, Any] | None = None,
        jmespath_query: str | None = None, method: Literal["POST", "PUT"] | None = None,
        encoding: Literal["application/json", "multipart/form-data"] | None = None,
        form_fields: Mapping[str, Any] | None = None, payload_form_field: str | None = None,
        hmac_key_id: str | None = None, hmac_secret_key: str | None = None,
        attachments: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Answer[SubscriptionAnswer, Any]:
        """Create a subscription."""

    @_async_operation
    def put_subscription_secret(
        self, *, uuid: AnyUuid, replica: Replica, hmac_secret_key: str,
        hmac_key_id: str | None = None, overlap_s: int | None = None, headers: Headers = None,
    ) -> Answer[SubscriptionAnswer, Any]:
        """Change the secret that signs a subscription's deliveries."""

    @_async_operation
    def put_v1_group_policy(
        self, *, group_id: str, policy: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Answer[ChangeAnswer, Any]:
        """Give a group a policy."""

    @_async_operation
    def put_v1_group_role(
        self, *, group_id: str, action: Literal["add", "remove"],
        roles: Iterable[str] | None = None, headers: Headers = None,
    ) -> Answer[ChangeAnswer, Any]:
        """Give a group roles, or take them away."""

    @_async_operation
    def put_v1_group_user(
        self, *, group_id: str, action: Literal["add", "remove"],
        users: Iterable[str] | None = None, headers: Headers = None,
    ) -> Answer[ChangeAnswer, Any]:
        """Add users to a group, or remove them."""

    @_async_operation
    def put_v1_role_policy(
        self, *, role_id: str, policy: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Answer[ChangeAnswer, Any]:
        """Give a role another policy."""

    @_async_operation
    def put_v1_user(
        self, *, user_id: str, status: Literal["enabled", "disabled"], headers: Headers = None,
    ) -> Answer[ChangeAnswer, Any]:
        """Enable or disable a user."""

    @_async_operation
    def put_v1_user_group(
        self, *, user_id: str, action: Literal["add", "remove"],
        groups: Iterable[str] | None = None, headers: Headers = None,
    ) -> Answer[ChangeAnswer, Any]:
        """Add a user to groups, or remove them."""

    @_async_operation
    def put_v1_user_policy(
        self, *, user_id: str, policy: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Answer[ChangeAnswer, Any]:
        """Give a user a policy of their own."""

    @_async_operation
    def put_v1_user_role(
        self, *, user_id: str, action: Literal["add", "remove"], roles: Iterable[str] | None = None,
        headers: Headers = None,
    ) -> Answer[ChangeAnswer, Any]:
        """Give a user roles, or take them away."""

    @_async_operation
    def replay_subscription(
        self, *, uuid: AnyUuid, replica: Replica, from_date: str | None = None,
        to_date: str | None = None, headers: Headers = None,
    ) -> Answer[ReplayAnswer, Any]:
        """Deliver the events of a time window again."""

    @_async_operation
    def resend_delivery(
        self, *, uuid: AnyUuid, id: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Answer[DeliveryAnswer, Any]:
        """Send a delivery once more, whatever the state of its subscription."""

    @_async_operation
    def resume_subscription(
        self, *, uuid: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Answer[SubscriptionAnswer, Any]:
        """Resume the deliveries of a subscription."""

    @_async_operation
    def retry_deliveries(
        self, *, uuid: AnyUuid, replica: Replica, since: str, until: str | None = None,
        event_type: str | None = None, headers: Headers = None,
    ) -> Answer[RetriedAnswer, Any]:
        """Retry the deliveries that failed since a time."""

    @_async_operation
    def retry_delivery(
        self, *, uuid: AnyUuid, id: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Answer[DeliveryAnswer, Any]:
        """Retry a delivery now."""

    @_async_operation
    def test_subscription(
        self, *, uuid: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Answer[DeliveryAnswer, Any]:
        """Send a test delivery."""
