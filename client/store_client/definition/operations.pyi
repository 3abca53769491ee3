"""The operations of a store as typed methods; written by `make docs`, never at run time.

Operations of a store that is newer than this file are found at run time, without types.
"""

# ruff: noqa: A002
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Concatenate, Generic, Literal, ParamSpec
from uuid import UUID

P = ParamSpec("P")
AnyUuid = str | UUID
Headers = Mapping[str, str] | None
Replica = Literal["aws", "gcp"]

class TypedMethod(Generic[P]):
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...
    def iterate(self, *args: P.args, **kwargs: P.kwargs) -> Iterator[Any]: ...
    def pages(self, *args: P.args, **kwargs: P.kwargs) -> Iterator[Any]: ...

class AsyncTypedMethod(Generic[P]):
    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...
    def iterate(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[Any]: ...
    def pages(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[Any]: ...

def _operation(method: Callable[Concatenate[Any, P], Any]) -> TypedMethod[P]: ...
def _async_operation(method: Callable[Concatenate[Any, P], Any]) -> AsyncTypedMethod[P]: ...

class Operations:
    @_operation
    def delete_area(self, *, uuid: AnyUuid, headers: Headers = None) -> Any:
        """Delete your upload area."""

    @_operation
    def delete_area_upload(
        self, *, uuid: AnyUuid, filename: str, upload_id: str, headers: Headers = None,
    ) -> Any:
        """Abort an upload."""

    @_operation
    def delete_bundle(
        self, *, uuid: AnyUuid, replica: Replica, reason: str, version: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """Delete a bundle, or one version of it."""

    @_operation
    def delete_collection(self, *, uuid: AnyUuid, replica: Replica, headers: Headers = None) -> Any:
        """Delete one of your collections."""

    @_operation
    def delete_subscription(
        self, *, uuid: AnyUuid, replica: Replica,
        subscription_type: Literal["jmespath", "elasticsearch"] | None = None,
        headers: Headers = None,
    ) -> Any:
        """Delete one of your subscriptions."""

    @_operation
    def delete_v1_group(self, *, group_id: str, headers: Headers = None) -> Any:
        """Delete a group."""

    @_operation
    def delete_v1_role(self, *, role_id: str, headers: Headers = None) -> Any:
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
    ) -> Any:
        """Show which of the latest bundles a subscription would match, and the payloads."""

    @_operation
    def get_area(
        self, *, uuid: AnyUuid, per_page: int | None = None, start_at: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """List the files of your upload area."""

    @_operation
    def get_area_checksum(self, *, uuid: AnyUuid, filename: str, headers: Headers = None) -> Any:
        """Show the checksums of a file of an upload area."""

    @_operation
    def get_area_checksums(self, *, uuid: AnyUuid, headers: Headers = None) -> Any:
        """Count the files of an upload area by the states of their checksums."""

    @_operation
    def get_area_upload(
        self, *, uuid: AnyUuid, filename: str, upload_id: str, headers: Headers = None,
    ) -> Any:
        """Show the stored parts of an upload."""

    @_operation
    def get_area_validate(self, *, uuid: AnyUuid, filename: str, headers: Headers = None) -> Any:
        """Show the validation of a file of an upload area."""

    @_operation
    def get_area_validations(self, *, uuid: AnyUuid, headers: Headers = None) -> Any:
        """Count the files of an upload area by the states of their validation."""

    @_operation
    def get_bundle(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        directurls: bool | None = None, presignedurls: bool | None = None, token: str | None = None,
        per_page: int | None = None, start_at: int | None = None, replication: bool | None = None,
        headers: Headers = None,
    ) -> Any:
        """Read a bundle."""

    @_operation
    def get_bundle_archive(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        format: Literal["zip", "tar", "bagit", "ro-crate"] | None = None, headers: Headers = None,
    ) -> Any:
        """Download a bundle as an archive."""

    @_operation
    def get_bundles_all(
        self, *, replica: Replica, prefix: str | None = None, token: str | None = None,
        per_page: int | None = None, search_after: str | None = None, headers: Headers = None,
    ) -> Any:
        """List bundles."""

    @_operation
    def get_bundles_checkout(
        self, *, checkout_job_id: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Any:
        """Show a checkout's status."""

    @_operation
    def get_collection(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """Read one of your collections."""

    @_operation
    def get_collections(
        self, *, per_page: int | None = None, start_at: str | None = None, headers: Headers = None,
    ) -> Any:
        """List your collections."""

    @_operation
    def get_definition(self, *, headers: Headers = None) -> Any:
        """This definition."""

    @_operation
    def get_deliveries(
        self, *, uuid: AnyUuid, replica: Replica,
        state: Literal["pending", "delivered", "failed", "superseded", "cancelled"] | None = None,
        event_type: Literal["CREATE", "TOMBSTONE", "DELETE", "TEST"] | None = None,
        bundle_uuid: AnyUuid | None = None, since: str | None = None, until: str | None = None,
        per_page: int | None = None, search_after: str | None = None, headers: Headers = None,
    ) -> Any:
        """List the deliveries of a subscription."""

    @_operation
    def get_delivery(
        self, *, uuid: AnyUuid, id: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Any:
        """Show a delivery with its requests and their results."""

    @_operation
    def get_echo(self, *, headers: Headers = None) -> Any:
        """Your request as it arrived, without the secrets in it."""

    @_operation
    def get_event(
        self, *, uuid: AnyUuid, replica: Replica, version: str, headers: Headers = None,
    ) -> Any:
        """Read the metadata document of a bundle version."""

    @_operation
    def get_events(
        self, *, replica: Replica, from_date: str | None = None, to_date: str | None = None,
        per_page: int | None = None, token: str | None = None, headers: Headers = None,
    ) -> Any:
        """List journals of events."""

    @_operation
    def get_events_feed(
        self, *, replica: Replica, after: str | None = None, per_page: int | None = None,
        from_date: str | None = None, headers: Headers = None,
    ) -> Any:
        """Follow new events."""

    @_operation
    def get_file(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        token: str | None = None, directurl: bool | None = None,
        content_disposition: str | None = None, replication: bool | None = None,
        headers: Headers = None,
    ) -> Any:
        """Read a file: a redirect to its content."""

    @_operation
    def get_file_bundles(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        per_page: int | None = None, search_after: str | None = None, headers: Headers = None,
    ) -> Any:
        """List the bundles that contain a file."""

    @_operation
    def get_health(self, *, headers: Headers = None) -> Any:
        """Whether every part works."""

    @_operation
    def get_integrity(self, *, headers: Headers = None) -> Any:
        """Show how many objects are verified, and which are damaged."""

    @_operation
    def get_jwks_json(self, *, headers: Headers = None) -> Any:
        """The public keys that verify its tokens."""

    @_operation
    def get_login(
        self, *, redirect_uri: str, state: str | None = None, login_hint: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """Log in the user of this browser, then redirect to redirect_uri with the same state."""

    @_operation
    def get_logout(
        self, *, id_token_hint: str | None = None, client_id: str | None = None,
        post_logout_redirect_uri: str | None = None, state: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """Log out of this service and, if it supports that, of the identity provider."""

    @_operation
    def get_oauth_authorize(
        self, *, response_type: str | None = None, client_id: str | None = None,
        redirect_uri: str | None = None, scope: str | None = None, state: str | None = None,
        nonce: str | None = None, code_challenge: str | None = None,
        code_challenge_method: str | None = None, prompt: str | None = None,
        max_age: str | None = None, headers: Headers = None,
    ) -> Any:
        """Authorize an application to act for the user (RFC 6749, OpenID Connect)."""

    @_operation
    def get_oauth_userinfo(self, *, headers: Headers = None) -> Any:
        """Whom the access token is of, as far as its scopes let it be known."""

    @_operation
    def get_openid_configuration(self, *, headers: Headers = None) -> Any:
        """What this service is and does."""

    @_operation
    def get_replay(
        self, *, uuid: AnyUuid, id: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Any:
        """Show the progress of a replay."""

    @_operation
    def get_replication(self, *, headers: Headers = None) -> Any:
        """Show replication status."""

    @_operation
    def get_schemas(self, *, headers: Headers = None) -> Any:
        """List the schemas of metadata."""

    @_operation
    def get_search_fields(
        self, *, replica: Replica, prefix: str | None = None, per_page: int | None = None,
        search_after: str | None = None, headers: Headers = None,
    ) -> Any:
        """List the fields that bundles have."""

    @_operation
    def get_subscription(
        self, *, uuid: AnyUuid, replica: Replica,
        subscription_type: Literal["jmespath", "elasticsearch"] | None = None,
        headers: Headers = None,
    ) -> Any:
        """Read one of your subscriptions."""

    @_operation
    def get_subscriptions(
        self, *, replica: Replica,
        subscription_type: Literal["jmespath", "elasticsearch"] | None = None,
        headers: Headers = None,
    ) -> Any:
        """List your subscriptions."""

    @_operation
    def get_task(self, *, task_id: AnyUuid, headers: Headers = None) -> Any:
        """Show how far a file's verification is."""

    @_operation
    def get_v1_account(self, *, headers: Headers = None) -> Any:
        """Read your own roles and permissions."""

    @_operation
    def get_v1_audit(
        self, *, per_page: int | None = None, next_token: str | None = None, who: str | None = None,
        what: str | None = None, since: str | None = None, until: str | None = None,
        target: str | None = None, headers: Headers = None,
    ) -> Any:
        """Read who changed what."""

    @_operation
    def get_v1_group(self, *, group_id: str, headers: Headers = None) -> Any:
        """Read a group."""

    @_operation
    def get_v1_group_roles(
        self, *, group_id: str, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """List the roles of a group."""

    @_operation
    def get_v1_group_users(
        self, *, group_id: str, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """List the users in a group."""

    @_operation
    def get_v1_groups(
        self, *, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """List groups."""

    @_operation
    def get_v1_policies_version(self, *, headers: Headers = None) -> Any:
        """Which policies are in force."""

    @_operation
    def get_v1_role(self, *, role_id: str, headers: Headers = None) -> Any:
        """Read a role."""

    @_operation
    def get_v1_roles(
        self, *, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """List roles."""

    @_operation
    def get_v1_user(self, *, user_id: str, headers: Headers = None) -> Any:
        """Read a user."""

    @_operation
    def get_v1_user_groups(
        self, *, user_id: str, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """List the groups that a user is in."""

    @_operation
    def get_v1_user_owns(
        self, *, user_id: str, per_page: int | None = None, next_token: str | None = None,
        resource_type: Literal["area", "collection", "subscription"] | None = None,
        headers: Headers = None,
    ) -> Any:
        """List what a user owns."""

    @_operation
    def get_v1_user_roles(
        self, *, user_id: str, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """List the roles of a user."""

    @_operation
    def get_v1_users(
        self, *, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """List users."""

    @_operation
    def head_area(self, *, uuid: AnyUuid, headers: Headers = None) -> Any:
        """Check whether your upload area exists."""

    @_operation
    def head_file(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        replication: bool | None = None, headers: Headers = None,
    ) -> Any:
        """Read a file's metadata."""

    @_operation
    def patch_area(
        self, *, uuid: AnyUuid, state: Literal["UNLOCKED", "LOCKED"], headers: Headers = None,
    ) -> Any:
        """Lock or unlock your upload area."""

    @_operation
    def patch_bundle(
        self, *, uuid: AnyUuid, version: str, replica: Replica,
        add_files: Iterable[Mapping[str, Any]] | None = None,
        remove_files: Iterable[Mapping[str, Any]] | None = None, headers: Headers = None,
    ) -> Any:
        """Add files to a bundle and remove files from it."""

    @_operation
    def patch_collection(
        self, *, uuid: AnyUuid, version: str, replica: Replica,
        add_contents: Iterable[Mapping[str, Any]] | None = None,
        remove_contents: Iterable[Mapping[str, Any]] | None = None, name: str | None = None,
        description: str | None = None, details: Mapping[str, Any] | None = None,
        headers: Headers = None,
    ) -> Any:
        """Add and remove links of one of your collections, and change its metadata."""

    @_operation
    def pause_subscription(
        self, *, uuid: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Any:
        """Pause the deliveries of a subscription."""

    @_operation
    def post_area(self, *, uuid: AnyUuid, headers: Headers = None) -> Any:
        """Open an upload area."""

    @_operation
    def post_area_credentials(
        self, *, uuid: AnyUuid, filenames: Iterable[str] | None = None, headers: Headers = None,
    ) -> Any:
        """Get credentials or URLs to write to an upload area."""

    @_operation
    def post_area_file(
        self, *, uuid: AnyUuid, filename: str, content_type: str | None = None,
        size: int | None = None, checksums: Mapping[str, Any] | None = None,
        headers: Headers = None,
    ) -> Any:
        """Register a file uploaded directly to the bucket."""

    @_operation
    def post_area_part(
        self, *, uuid: AnyUuid, filename: str, upload_id: str, part: int, crc32c: str,
        headers: Headers = None,
    ) -> Any:
        """Get the URL to put one part of an upload to."""

    @_operation
    def post_area_upload(
        self, *, uuid: AnyUuid, filename: str, size: int, content_type: str | None = None,
        upload_id: str | None = None, headers: Headers = None,
    ) -> Any:
        """Begin or resume a multipart upload into an upload area."""

    @_operation
    def post_area_upload_complete(
        self, *, uuid: AnyUuid, filename: str, upload_id: str,
        checksums: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Any:
        """Complete a multipart upload."""

    @_operation
    def post_bundles_checkout(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        destination: str | None = None, email: str | None = None, headers: Headers = None,
    ) -> Any:
        """Check a bundle out."""

    @_operation
    def post_logout(self, *, headers: Headers = None) -> Any:
        """Log out, with the parameters in a form."""

    @_operation
    def post_oauth_authorize(self, *, headers: Headers = None) -> Any:
        """Authorize an application, with the parameters in a form."""

    @_operation
    def post_oauth_device(
        self, *, client_id: str | None = None, client_secret: str | None = None,
        scope: str | None = None, headers: Headers = None,
    ) -> Any:
        """A code for a device without a browser, which a person enters at /device."""

    @_operation
    def post_oauth_revoke(
        self, *, token: str, client_id: str | None = None, client_secret: str | None = None,
        token_type_hint: str | None = None, headers: Headers = None,
    ) -> Any:
        """Give a token back."""

    @_operation
    def post_oauth_token(
        self, *, grant_type: str, client_id: str | None = None, client_secret: str | None = None,
        code: str | None = None, redirect_uri: str | None = None, code_verifier: str | None = None,
        refresh_token: str | None = None, device_code: str | None = None, scope: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """Tokens for a code, a refresh token or a device's code."""

    @_operation
    def post_oauth_userinfo(self, *, headers: Headers = None) -> Any:
        """The same; the token may be `access_token` of a body instead of in the header."""

    @_operation
    def post_search(
        self, *, replica: Replica, es_query: Mapping[str, Any],
        output_format: Literal["summary", "raw"] | None = None, per_page: int | None = None,
        search_after: str | None = None, headers: Headers = None,
    ) -> Any:
        """Find bundles by their metadata."""

    @_operation
    def post_search_facets(
        self, *, replica: Replica, es_query: Mapping[str, Any], fields: Iterable[str],
        size: int | None = None, headers: Headers = None,
    ) -> Any:
        """Count matching bundles by the values of fields."""

    @_operation
    def post_v1_group(
        self, *, group_id: str, roles: Iterable[str] | None = None,
        policy: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Any:
        """Make a group."""

    @_operation
    def post_v1_policies_evaluate(
        self, *, principal: str, action: Iterable[str], resource: Iterable[str],
        groups: Iterable[str] | None = None, context: Mapping[str, Any] | None = None,
        grant: str | None = None, headers: Headers = None,
    ) -> Any:
        """Say what a principal may do, and why."""

    @_operation
    def post_v1_role(
        self, *, role_id: str, policy: Mapping[str, Any], headers: Headers = None,
    ) -> Any:
        """Make a role."""

    @_operation
    def post_v1_user(
        self, *, user_id: str, groups: Iterable[str] | None = None,
        roles: Iterable[str] | None = None, policy: Mapping[str, Any] | None = None,
        headers: Headers = None,
    ) -> Any:
        """Make a user."""

    @_operation
    def put_area_file(
        self, *, uuid: AnyUuid, filename: str,
        content: bytes | Path | BinaryIO | Callable[[], Iterable[bytes]] | None = None,
        headers: Headers = None,
    ) -> Any:
        """Put a file into an upload area."""

    @_operation
    def put_area_part(
        self, *, uuid: AnyUuid, filename: str, upload_id: str, part: int,
        content: bytes | Path | BinaryIO | Callable[[], Iterable[bytes]] | None = None,
        headers: Headers = None,
    ) -> Any:
        """Put one part of an upload."""

    @_operation
    def put_bundle(
        self, *, uuid: AnyUuid, version: str, replica: Replica, creator_uid: int,
        files: Iterable[Mapping[str, Any]], headers: Headers = None,
    ) -> Any:
        """Write a bundle version."""

    @_operation
    def put_collection(
        self, *, uuid: AnyUuid, version: str, replica: Replica, name: str, description: str,
        details: Mapping[str, Any], contents: Iterable[Mapping[str, Any]], headers: Headers = None,
    ) -> Any:
        """Write a collection version."""

    @_operation
    def put_file(
        self, *, uuid: AnyUuid, version: str, source_url: str, creator_uid: int,
        replica: Replica | None = None, headers: Headers = None,
    ) -> Any:
        """Write a file version."""

    @_operation
    def put_files(
        self, *, replica: Replica, files: Iterable[Mapping[str, Any]], headers: Headers = None,
    ) -> Any:
        """Write several file versions."""

    @_operation
    def put_subscription(
        self, *, replica: Replica, callback_url: str, es_query: Mapping[str, Any] | None = None,
        jmespath_query: str | None = None, method: Literal["POST", "PUT"] | None = None,
        encoding: Literal["application/json", "multipart/form-data"] | None = None,
        form_fields: Mapping[str, Any] | None = None, payload_form_field: str | None = None,
        hmac_key_id: str | None = None, hmac_secret_key: str | None = None,
        attachments: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Any:
        """Create a subscription."""

    @_operation
    def put_subscription_secret(
        self, *, uuid: AnyUuid, replica: Replica, hmac_secret_key: str,
        hmac_key_id: str | None = None, overlap_s: int | None = None, headers: Headers = None,
    ) -> Any:
        """Change the secret that signs a subscription's deliveries."""

    @_operation
    def put_v1_group_policy(
        self, *, group_id: str, policy: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Any:
        """Give a group a policy."""

    @_operation
    def put_v1_group_role(
        self, *, group_id: str, action: Literal["add", "remove"],
        roles: Iterable[str] | None = None, headers: Headers = None,
    ) -> Any:
        """Give a group roles, or take them away."""

    @_operation
    def put_v1_group_user(
        self, *, group_id: str, action: Literal["add", "remove"],
        users: Iterable[str] | None = None, headers: Headers = None,
    ) -> Any:
        """Add users to a group, or remove them."""

    @_operation
    def put_v1_role_policy(
        self, *, role_id: str, policy: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Any:
        """Give a role another policy."""

    @_operation
    def put_v1_user(
        self, *, user_id: str, status: Literal["enabled", "disabled"], headers: Headers = None,
    ) -> Any:
        """Enable or disable a user."""

    @_operation
    def put_v1_user_group(
        self, *, user_id: str, action: Literal["add", "remove"],
        groups: Iterable[str] | None = None, headers: Headers = None,
    ) -> Any:
        """Add a user to groups, or remove them."""

    @_operation
    def put_v1_user_policy(
        self, *, user_id: str, policy: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Any:
        """Give a user a policy of their own."""

    @_operation
    def put_v1_user_role(
        self, *, user_id: str, action: Literal["add", "remove"], roles: Iterable[str] | None = None,
        headers: Headers = None,
    ) -> Any:
        """Give a user roles, or take them away."""

    @_operation
    def replay_subscription(
        self, *, uuid: AnyUuid, replica: Replica, from_date: str | None = None,
        to_date: str | None = None, headers: Headers = None,
    ) -> Any:
        """Deliver the events of a time window again."""

    @_operation
    def resend_delivery(
        self, *, uuid: AnyUuid, id: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Any:
        """Send a delivery once more, whatever the state of its subscription."""

    @_operation
    def resume_subscription(
        self, *, uuid: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Any:
        """Resume the deliveries of a subscription."""

    @_operation
    def retry_deliveries(
        self, *, uuid: AnyUuid, replica: Replica, since: str, until: str | None = None,
        event_type: str | None = None, headers: Headers = None,
    ) -> Any:
        """Retry the deliveries that failed since a time."""

    @_operation
    def retry_delivery(
        self, *, uuid: AnyUuid, id: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Any:
        """Retry a delivery now."""

    @_operation
    def test_subscription(self, *, uuid: AnyUuid, replica: Replica, headers: Headers = None) -> Any:
        """Send a test delivery."""

class AsyncOperations:
    @_async_operation
    def delete_area(self, *, uuid: AnyUuid, headers: Headers = None) -> Any:
        """Delete your upload area."""

    @_async_operation
    def delete_area_upload(
        self, *, uuid: AnyUuid, filename: str, upload_id: str, headers: Headers = None,
    ) -> Any:
        """Abort an upload."""

    @_async_operation
    def delete_bundle(
        self, *, uuid: AnyUuid, replica: Replica, reason: str, version: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """Delete a bundle, or one version of it."""

    @_async_operation
    def delete_collection(self, *, uuid: AnyUuid, replica: Replica, headers: Headers = None) -> Any:
        """Delete one of your collections."""

    @_async_operation
    def delete_subscription(
        self, *, uuid: AnyUuid, replica: Replica,
        subscription_type: Literal["jmespath", "elasticsearch"] | None = None,
        headers: Headers = None,
    ) -> Any:
        """Delete one of your subscriptions."""

    @_async_operation
    def delete_v1_group(self, *, group_id: str, headers: Headers = None) -> Any:
        """Delete a group."""

    @_async_operation
    def delete_v1_role(self, *, role_id: str, headers: Headers = None) -> Any:
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
    ) -> Any:
        """Show which of the latest bundles a subscription would match, and the payloads."""

    @_async_operation
    def get_area(
        self, *, uuid: AnyUuid, per_page: int | None = None, start_at: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """List the files of your upload area."""

    @_async_operation
    def get_area_checksum(self, *, uuid: AnyUuid, filename: str, headers: Headers = None) -> Any:
        """Show the checksums of a file of an upload area."""

    @_async_operation
    def get_area_checksums(self, *, uuid: AnyUuid, headers: Headers = None) -> Any:
        """Count the files of an upload area by the states of their checksums."""

    @_async_operation
    def get_area_upload(
        self, *, uuid: AnyUuid, filename: str, upload_id: str, headers: Headers = None,
    ) -> Any:
        """Show the stored parts of an upload."""

    @_async_operation
    def get_area_validate(self, *, uuid: AnyUuid, filename: str, headers: Headers = None) -> Any:
        """Show the validation of a file of an upload area."""

    @_async_operation
    def get_area_validations(self, *, uuid: AnyUuid, headers: Headers = None) -> Any:
        """Count the files of an upload area by the states of their validation."""

    @_async_operation
    def get_bundle(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        directurls: bool | None = None, presignedurls: bool | None = None, token: str | None = None,
        per_page: int | None = None, start_at: int | None = None, replication: bool | None = None,
        headers: Headers = None,
    ) -> Any:
        """Read a bundle."""

    @_async_operation
    def get_bundle_archive(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        format: Literal["zip", "tar", "bagit", "ro-crate"] | None = None, headers: Headers = None,
    ) -> Any:
        """Download a bundle as an archive."""

    @_async_operation
    def get_bundles_all(
        self, *, replica: Replica, prefix: str | None = None, token: str | None = None,
        per_page: int | None = None, search_after: str | None = None, headers: Headers = None,
    ) -> Any:
        """List bundles."""

    @_async_operation
    def get_bundles_checkout(
        self, *, checkout_job_id: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Any:
        """Show a checkout's status."""

    @_async_operation
    def get_collection(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """Read one of your collections."""

    @_async_operation
    def get_collections(
        self, *, per_page: int | None = None, start_at: str | None = None, headers: Headers = None,
    ) -> Any:
        """List your collections."""

    @_async_operation
    def get_definition(self, *, headers: Headers = None) -> Any:
        """This definition."""

    @_async_operation
    def get_deliveries(
        self, *, uuid: AnyUuid, replica: Replica,
        state: Literal["pending", "delivered", "failed", "superseded", "cancelled"] | None = None,
        event_type: Literal["CREATE", "TOMBSTONE", "DELETE", "TEST"] | None = None,
        bundle_uuid: AnyUuid | None = None, since: str | None = None, until: str | None = None,
        per_page: int | None = None, search_after: str | None = None, headers: Headers = None,
    ) -> Any:
        """List the deliveries of a subscription."""

    @_async_operation
    def get_delivery(
        self, *, uuid: AnyUuid, id: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Any:
        """Show a delivery with its requests and their results."""

    @_async_operation
    def get_echo(self, *, headers: Headers = None) -> Any:
        """Your request as it arrived, without the secrets in it."""

    @_async_operation
    def get_event(
        self, *, uuid: AnyUuid, replica: Replica, version: str, headers: Headers = None,
    ) -> Any:
        """Read the metadata document of a bundle version."""

    @_async_operation
    def get_events(
        self, *, replica: Replica, from_date: str | None = None, to_date: str | None = None,
        per_page: int | None = None, token: str | None = None, headers: Headers = None,
    ) -> Any:
        """List journals of events."""

    @_async_operation
    def get_events_feed(
        self, *, replica: Replica, after: str | None = None, per_page: int | None = None,
        from_date: str | None = None, headers: Headers = None,
    ) -> Any:
        """Follow new events."""

    @_async_operation
    def get_file(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        token: str | None = None, directurl: bool | None = None,
        content_disposition: str | None = None, replication: bool | None = None,
        headers: Headers = None,
    ) -> Any:
        """Read a file: a redirect to its content."""

    @_async_operation
    def get_file_bundles(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        per_page: int | None = None, search_after: str | None = None, headers: Headers = None,
    ) -> Any:
        """List the bundles that contain a file."""

    @_async_operation
    def get_health(self, *, headers: Headers = None) -> Any:
        """Whether every part works."""

    @_async_operation
    def get_integrity(self, *, headers: Headers = None) -> Any:
        """Show how many objects are verified, and which are damaged."""

    @_async_operation
    def get_jwks_json(self, *, headers: Headers = None) -> Any:
        """The public keys that verify its tokens."""

    @_async_operation
    def get_login(
        self, *, redirect_uri: str, state: str | None = None, login_hint: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """Log in the user of this browser, then redirect to redirect_uri with the same state."""

    @_async_operation
    def get_logout(
        self, *, id_token_hint: str | None = None, client_id: str | None = None,
        post_logout_redirect_uri: str | None = None, state: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """Log out of this service and, if it supports that, of the identity provider."""

    @_async_operation
    def get_oauth_authorize(
        self, *, response_type: str | None = None, client_id: str | None = None,
        redirect_uri: str | None = None, scope: str | None = None, state: str | None = None,
        nonce: str | None = None, code_challenge: str | None = None,
        code_challenge_method: str | None = None, prompt: str | None = None,
        max_age: str | None = None, headers: Headers = None,
    ) -> Any:
        """Authorize an application to act for the user (RFC 6749, OpenID Connect)."""

    @_async_operation
    def get_oauth_userinfo(self, *, headers: Headers = None) -> Any:
        """Whom the access token is of, as far as its scopes let it be known."""

    @_async_operation
    def get_openid_configuration(self, *, headers: Headers = None) -> Any:
        """What this service is and does."""

    @_async_operation
    def get_replay(
        self, *, uuid: AnyUuid, id: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Any:
        """Show the progress of a replay."""

    @_async_operation
    def get_replication(self, *, headers: Headers = None) -> Any:
        """Show replication status."""

    @_async_operation
    def get_search_fields(
        self, *, replica: Replica, prefix: str | None = None, per_page: int | None = None,
        search_after: str | None = None, headers: Headers = None,
    ) -> Any:
        """List the fields that bundles have."""

    @_async_operation
    def get_subscription(
        self, *, uuid: AnyUuid, replica: Replica,
        subscription_type: Literal["jmespath", "elasticsearch"] | None = None,
        headers: Headers = None,
    ) -> Any:
        """Read one of your subscriptions."""

    @_async_operation
    def get_subscriptions(
        self, *, replica: Replica,
        subscription_type: Literal["jmespath", "elasticsearch"] | None = None,
        headers: Headers = None,
    ) -> Any:
        """List your subscriptions."""

    @_async_operation
    def get_task(self, *, task_id: AnyUuid, headers: Headers = None) -> Any:
        """Show how far a file's verification is."""

    @_async_operation
    def get_v1_account(self, *, headers: Headers = None) -> Any:
        """Read your own roles and permissions."""

    @_async_operation
    def get_v1_audit(
        self, *, per_page: int | None = None, next_token: str | None = None, who: str | None = None,
        what: str | None = None, since: str | None = None, until: str | None = None,
        target: str | None = None, headers: Headers = None,
    ) -> Any:
        """Read who changed what."""

    @_async_operation
    def get_v1_group(self, *, group_id: str, headers: Headers = None) -> Any:
        """Read a group."""

    @_async_operation
    def get_v1_group_roles(
        self, *, group_id: str, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """List the roles of a group."""

    @_async_operation
    def get_v1_group_users(
        self, *, group_id: str, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """List the users in a group."""

    @_async_operation
    def get_v1_groups(
        self, *, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """List groups."""

    @_async_operation
    def get_v1_policies_version(self, *, headers: Headers = None) -> Any:
        """Which policies are in force."""

    @_async_operation
    def get_v1_role(self, *, role_id: str, headers: Headers = None) -> Any:
        """Read a role."""

    @_async_operation
    def get_v1_roles(
        self, *, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """List roles."""

    @_async_operation
    def get_v1_user(self, *, user_id: str, headers: Headers = None) -> Any:
        """Read a user."""

    @_async_operation
    def get_v1_user_groups(
        self, *, user_id: str, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """List the groups that a user is in."""

    @_async_operation
    def get_v1_user_owns(
        self, *, user_id: str, per_page: int | None = None, next_token: str | None = None,
        resource_type: Literal["area", "collection", "subscription"] | None = None,
        headers: Headers = None,
    ) -> Any:
        """List what a user owns."""

    @_async_operation
    def get_v1_user_roles(
        self, *, user_id: str, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """List the roles of a user."""

    @_async_operation
    def get_v1_users(
        self, *, per_page: int | None = None, next_token: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """List users."""

    @_async_operation
    def head_area(self, *, uuid: AnyUuid, headers: Headers = None) -> Any:
        """Check whether your upload area exists."""

    @_async_operation
    def head_file(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        replication: bool | None = None, headers: Headers = None,
    ) -> Any:
        """Read a file's metadata."""

    @_async_operation
    def patch_area(
        self, *, uuid: AnyUuid, state: Literal["UNLOCKED", "LOCKED"], headers: Headers = None,
    ) -> Any:
        """Lock or unlock your upload area."""

    @_async_operation
    def patch_bundle(
        self, *, uuid: AnyUuid, version: str, replica: Replica,
        add_files: Iterable[Mapping[str, Any]] | None = None,
        remove_files: Iterable[Mapping[str, Any]] | None = None, headers: Headers = None,
    ) -> Any:
        """Add files to a bundle and remove files from it."""

    @_async_operation
    def patch_collection(
        self, *, uuid: AnyUuid, version: str, replica: Replica,
        add_contents: Iterable[Mapping[str, Any]] | None = None,
        remove_contents: Iterable[Mapping[str, Any]] | None = None, name: str | None = None,
        description: str | None = None, details: Mapping[str, Any] | None = None,
        headers: Headers = None,
    ) -> Any:
        """Add and remove links of one of your collections, and change its metadata."""

    @_async_operation
    def pause_subscription(
        self, *, uuid: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Any:
        """Pause the deliveries of a subscription."""

    @_async_operation
    def post_area(self, *, uuid: AnyUuid, headers: Headers = None) -> Any:
        """Open an upload area."""

    @_async_operation
    def post_area_credentials(
        self, *, uuid: AnyUuid, filenames: Iterable[str] | None = None, headers: Headers = None,
    ) -> Any:
        """Get credentials or URLs to write to an upload area."""

    @_async_operation
    def post_area_file(
        self, *, uuid: AnyUuid, filename: str, content_type: str | None = None,
        size: int | None = None, checksums: Mapping[str, Any] | None = None,
        headers: Headers = None,
    ) -> Any:
        """Register a file uploaded directly to the bucket."""

    @_async_operation
    def post_area_part(
        self, *, uuid: AnyUuid, filename: str, upload_id: str, part: int, crc32c: str,
        headers: Headers = None,
    ) -> Any:
        """Get the URL to put one part of an upload to."""

    @_async_operation
    def post_area_upload(
        self, *, uuid: AnyUuid, filename: str, size: int, content_type: str | None = None,
        upload_id: str | None = None, headers: Headers = None,
    ) -> Any:
        """Begin or resume a multipart upload into an upload area."""

    @_async_operation
    def post_area_upload_complete(
        self, *, uuid: AnyUuid, filename: str, upload_id: str,
        checksums: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Any:
        """Complete a multipart upload."""

    @_async_operation
    def post_bundles_checkout(
        self, *, uuid: AnyUuid, replica: Replica, version: str | None = None,
        destination: str | None = None, email: str | None = None, headers: Headers = None,
    ) -> Any:
        """Check a bundle out."""

    @_async_operation
    def post_logout(self, *, headers: Headers = None) -> Any:
        """Log out, with the parameters in a form."""

    @_async_operation
    def post_oauth_authorize(self, *, headers: Headers = None) -> Any:
        """Authorize an application, with the parameters in a form."""

    @_async_operation
    def post_oauth_device(
        self, *, client_id: str | None = None, client_secret: str | None = None,
        scope: str | None = None, headers: Headers = None,
    ) -> Any:
        """A code for a device without a browser, which a person enters at /device."""

    @_async_operation
    def post_oauth_revoke(
        self, *, token: str, client_id: str | None = None, client_secret: str | None = None,
        token_type_hint: str | None = None, headers: Headers = None,
    ) -> Any:
        """Give a token back."""

    @_async_operation
    def post_oauth_token(
        self, *, grant_type: str, client_id: str | None = None, client_secret: str | None = None,
        code: str | None = None, redirect_uri: str | None = None, code_verifier: str | None = None,
        refresh_token: str | None = None, device_code: str | None = None, scope: str | None = None,
        headers: Headers = None,
    ) -> Any:
        """Tokens for a code, a refresh token or a device's code."""

    @_async_operation
    def post_oauth_userinfo(self, *, headers: Headers = None) -> Any:
        """The same; the token may be `access_token` of a body instead of in the header."""

    @_async_operation
    def post_search(
        self, *, replica: Replica, es_query: Mapping[str, Any],
        output_format: Literal["summary", "raw"] | None = None, per_page: int | None = None,
        search_after: str | None = None, headers: Headers = None,
    ) -> Any:
        """Find bundles by their metadata."""

    @_async_operation
    def post_search_facets(
        self, *, replica: Replica, es_query: Mapping[str, Any], fields: Iterable[str],
        size: int | None = None, headers: Headers = None,
    ) -> Any:
        """Count matching bundles by the values of fields."""

    @_async_operation
    def post_v1_group(
        self, *, group_id: str, roles: Iterable[str] | None = None,
        policy: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Any:
        """Make a group."""

    @_async_operation
    def post_v1_policies_evaluate(
        self, *, principal: str, action: Iterable[str], resource: Iterable[str],
        groups: Iterable[str] | None = None, context: Mapping[str, Any] | None = None,
        grant: str | None = None, headers: Headers = None,
    ) -> Any:
        """Say what a principal may do, and why."""

    @_async_operation
    def post_v1_role(
        self, *, role_id: str, policy: Mapping[str, Any], headers: Headers = None,
    ) -> Any:
        """Make a role."""

    @_async_operation
    def post_v1_user(
        self, *, user_id: str, groups: Iterable[str] | None = None,
        roles: Iterable[str] | None = None, policy: Mapping[str, Any] | None = None,
        headers: Headers = None,
    ) -> Any:
        """Make a user."""

    @_async_operation
    def put_area_file(
        self, *, uuid: AnyUuid, filename: str,
        content: bytes | Path | BinaryIO | Callable[[], Iterable[bytes]] | None = None,
        headers: Headers = None,
    ) -> Any:
        """Put a file into an upload area."""

    @_async_operation
    def put_area_part(
        self, *, uuid: AnyUuid, filename: str, upload_id: str, part: int,
        content: bytes | Path | BinaryIO | Callable[[], Iterable[bytes]] | None = None,
        headers: Headers = None,
    ) -> Any:
        """Put one part of an upload."""

    @_async_operation
    def put_bundle(
        self, *, uuid: AnyUuid, version: str, replica: Replica, creator_uid: int,
        files: Iterable[Mapping[str, Any]], headers: Headers = None,
    ) -> Any:
        """Write a bundle version."""

    @_async_operation
    def put_collection(
        self, *, uuid: AnyUuid, version: str, replica: Replica, name: str, description: str,
        details: Mapping[str, Any], contents: Iterable[Mapping[str, Any]], headers: Headers = None,
    ) -> Any:
        """Write a collection version."""

    @_async_operation
    def put_file(
        self, *, uuid: AnyUuid, version: str, source_url: str, creator_uid: int,
        replica: Replica | None = None, headers: Headers = None,
    ) -> Any:
        """Write a file version."""

    @_async_operation
    def put_files(
        self, *, replica: Replica, files: Iterable[Mapping[str, Any]], headers: Headers = None,
    ) -> Any:
        """Write several file versions."""

    @_async_operation
    def put_subscription(
        self, *, replica: Replica, callback_url: str, es_query: Mapping[str, Any] | None = None,
        jmespath_query: str | None = None, method: Literal["POST", "PUT"] | None = None,
        encoding: Literal["application/json", "multipart/form-data"] | None = None,
        form_fields: Mapping[str, Any] | None = None, payload_form_field: str | None = None,
        hmac_key_id: str | None = None, hmac_secret_key: str | None = None,
        attachments: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Any:
        """Create a subscription."""

    @_async_operation
    def put_subscription_secret(
        self, *, uuid: AnyUuid, replica: Replica, hmac_secret_key: str,
        hmac_key_id: str | None = None, overlap_s: int | None = None, headers: Headers = None,
    ) -> Any:
        """Change the secret that signs a subscription's deliveries."""

    @_async_operation
    def put_v1_group_policy(
        self, *, group_id: str, policy: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Any:
        """Give a group a policy."""

    @_async_operation
    def put_v1_group_role(
        self, *, group_id: str, action: Literal["add", "remove"],
        roles: Iterable[str] | None = None, headers: Headers = None,
    ) -> Any:
        """Give a group roles, or take them away."""

    @_async_operation
    def put_v1_group_user(
        self, *, group_id: str, action: Literal["add", "remove"],
        users: Iterable[str] | None = None, headers: Headers = None,
    ) -> Any:
        """Add users to a group, or remove them."""

    @_async_operation
    def put_v1_role_policy(
        self, *, role_id: str, policy: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Any:
        """Give a role another policy."""

    @_async_operation
    def put_v1_user(
        self, *, user_id: str, status: Literal["enabled", "disabled"], headers: Headers = None,
    ) -> Any:
        """Enable or disable a user."""

    @_async_operation
    def put_v1_user_group(
        self, *, user_id: str, action: Literal["add", "remove"],
        groups: Iterable[str] | None = None, headers: Headers = None,
    ) -> Any:
        """Add a user to groups, or remove them."""

    @_async_operation
    def put_v1_user_policy(
        self, *, user_id: str, policy: Mapping[str, Any] | None = None, headers: Headers = None,
    ) -> Any:
        """Give a user a policy of their own."""

    @_async_operation
    def put_v1_user_role(
        self, *, user_id: str, action: Literal["add", "remove"], roles: Iterable[str] | None = None,
        headers: Headers = None,
    ) -> Any:
        """Give a user roles, or take them away."""

    @_async_operation
    def replay_subscription(
        self, *, uuid: AnyUuid, replica: Replica, from_date: str | None = None,
        to_date: str | None = None, headers: Headers = None,
    ) -> Any:
        """Deliver the events of a time window again."""

    @_async_operation
    def resend_delivery(
        self, *, uuid: AnyUuid, id: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Any:
        """Send a delivery once more, whatever the state of its subscription."""

    @_async_operation
    def resume_subscription(
        self, *, uuid: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Any:
        """Resume the deliveries of a subscription."""

    @_async_operation
    def retry_deliveries(
        self, *, uuid: AnyUuid, replica: Replica, since: str, until: str | None = None,
        event_type: str | None = None, headers: Headers = None,
    ) -> Any:
        """Retry the deliveries that failed since a time."""

    @_async_operation
    def retry_delivery(
        self, *, uuid: AnyUuid, id: AnyUuid, replica: Replica, headers: Headers = None,
    ) -> Any:
        """Retry a delivery now."""

    @_async_operation
    def test_subscription(self, *, uuid: AnyUuid, replica: Replica, headers: Headers = None) -> Any:
        """Send a test delivery."""
