"""Identify the caller and its address, resolve defaults, and authorize the request by policies.

Each application has its own subclass of `RequestContext` with its services, and its own `Guard`.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Generic, Protocol, TypeVar

from flask import Request

from auth.accounts import MAX_EVALUATED_LENGTH
from auth.authorization import BULK_OPERATIONS, VERSIONED_READS, StoreAuthorizer
from auth.policies import keys
from auth.policies.patterns import Value
from auth.tokens.verification import parse_bearer
from storage.catalog import Catalog, Tx, ingest, versions
from storage.errors import Invalid, NotFoundError, Unauthorized
from storage.model import REPLICAS, Principal, Replica
from storage.protocols import Sources

VerifyToken = Callable[[str], Principal]
"""Returns the principal of a bearer token; raises Unauthorized."""


def identify_caller(verify: VerifyToken, authorization: str | None) -> Principal | None:
    """Return the caller, None without a header; an invalid token is always Unauthorized."""
    token = parse_bearer(authorization)
    return None if token is None else verify(token)


Q = TypeVar("Q")
B = TypeVar("B")
S = TypeVar("S")


@dataclass(frozen=True)
class RequestContext(Generic[S, Q, B]):
    """One request, loaded and authorized."""

    services: S
    operation: str
    request: Request
    request_id: str
    path: Mapping[str, str]
    query: Q
    body: B
    principal: Principal | None
    base: str
    """Base of absolute URLs, without `/v1`."""

    @property
    def caller(self) -> Principal:
        """The caller of an operation that requires a token."""
        if self.principal is None:
            raise Unauthorized("This operation requires a token")
        return self.principal

    @property
    def is_head(self) -> bool:
        """Whether the request is a HEAD request."""
        return self.request.method == "HEAD"


class Guard(Protocol):
    """The access control of one application; takes operations by their names."""

    def wants(self, operation: str) -> str | None:
        """Describe what an operation requires of its caller; None if it is public."""

    def may(self, principal: Principal | None, operation: str) -> bool:
        """Return whether to read a large body: False only if `require` would certainly refuse."""

    def require(
        self, operation: str, context: RequestContext[Any, Any, Any]
    ) -> RequestContext[Any, Any, Any]:
        """Authorize a request and return its context with the defaults that were resolved for it.

        Raises Unauthorized without a token, and Forbidden with one.
        """

    def refuse(self, principal: Principal | None, operation: str, request: Request) -> None:
        """Refuse a caller for whom `may` is False, before the body is read."""


IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_WITH_PORT = re.compile(r"([0-9.]+):[0-9]+|\[([0-9a-fA-F:.]+)\](?::[0-9]+)?")


def client_address(request: Request, proxies: int) -> IpAddress | None:
    """Return the address that connected to the outermost of our proxies; None if it is unknown."""
    text = request.remote_addr or ""
    if proxies > 0:
        hops = _split_header(request, "X-Forwarded-For")
        text = hops[-proxies] if len(hops) >= proxies else ""
    if with_port := _WITH_PORT.fullmatch(text):
        # Some proxies add the port, which changes with each connection of the same client.
        text = with_port[1] or with_port[2]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    # A dual-stack socket reports an IPv4 address as an IPv4-mapped IPv6 address.
    return getattr(address, "ipv4_mapped", None) or address


def is_secure(request: Request, proxies: int) -> bool:
    """Return whether the client certainly uses TLS, up to us or to the outermost of our proxies."""
    if proxies == 0:
        return request.scheme == "https"
    schemes = _split_header(request, "X-Forwarded-Proto")
    # Most proxies pass on the value of the previous one; some append to it, as with addresses.
    if len(schemes) == 1:
        return schemes[0].lower() == "https"
    return len(schemes) >= proxies and schemes[-proxies].lower() == "https"


def _split_header(request: Request, header: str) -> list[str]:
    return [value.strip() for value in request.headers.get(header, "").split(",")]


@dataclass(frozen=True)
class PolicyContextBuilder:
    """Builds the context of policy conditions; `clock` returns seconds since 1970."""

    proxies: int
    clock: Callable[[], float]

    def build(self, request: Request, principal: Principal | None) -> Mapping[str, Value]:
        """Return the values of the condition keys; keys without a value are absent."""
        now = int(self.clock())
        address = client_address(request, self.proxies)
        values: dict[str, Value | None] = {
            keys.SOURCE_IP: None if address is None else str(address),
            keys.SECURE_TRANSPORT: is_secure(request, self.proxies),
            keys.CURRENT_TIME: format_condition_time(now),
            keys.EPOCH_TIME: now,
            # Not verified; cut off at the length that an evaluation accepts.
            keys.USER_AGENT: request.headers.get("User-Agent", "")[:MAX_EVALUATED_LENGTH] or None,
        }
        if principal is not None:
            issued_at = principal.issued_at
            values[keys.TOKEN_ISSUE_TIME] = (
                None if issued_at is None else format_condition_time(issued_at)
            )
            values[keys.ISSUER] = principal.issuer
        return {key: value for key, value in values.items() if value is not None}


def format_condition_time(seconds: float) -> str:
    """Return a time as conditions compare it."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


AnyContext = RequestContext[Any, Any, Any]

REPLICA_BY_SCHEME: dict[str, Replica] = {"s3": "aws", "gs": "gcp", "file": "aws"}
"""Default replica of a new file by the scheme of its source URL."""
AREA_REPLICA: Replica = "aws"
"""Default replica of a file from an upload area."""


def resolve_version(context: AnyContext, catalog: Catalog, kind: str) -> AnyContext | None:
    """Set the version of a read to the latest one by default; None if there is no version."""
    if context.query.version is not None:
        return context
    with catalog.read() as tx:
        version = _find_latest_version(tx, kind, context.query.replica, context.path["uuid"])
    return (
        None if version is None else replace(context, query=replace(context.query, version=version))
    )


def _find_latest_version(tx: Tx, kind: str, replica: Replica, uuid: str) -> str | None:
    """Look in this replica, then in the other one, then at files that are being verified."""
    for name in sorted(REPLICAS, key=lambda name: name != replica):
        latest = versions.find_latest(tx, kind, name, uuid)
        if latest is not None:
            return latest[0]
    task = ingest.find_latest_open(tx, uuid) if kind == "file" else None
    return None if task is None else task.fqid.version


def find_source_replica(source_url: str, sources: Sources) -> Replica:
    """Return the default replica of a source; Invalid (`unknown_source_schema`)."""
    scheme = source_url.partition(":")[0].lower()
    if scheme in REPLICA_BY_SCHEME:
        return REPLICA_BY_SCHEME[scheme]
    if sources.resolve_area_key(source_url) is not None:
        return AREA_REPLICA
    message = "Must begin with s3://, gs:// or file://."
    raise Invalid(
        f"source_url: {message}", code="unknown_source_schema", errors={"/source_url": [message]}
    )


@dataclass(frozen=True)
class StoreGuard:
    """The guard of the storage API."""

    access: StoreAuthorizer
    catalog: Catalog
    sources: Sources
    circumstances: PolicyContextBuilder

    def wants(self, operation: str) -> str | None:
        """See Guard."""
        return self.access.wants(operation)

    def may(self, principal: Principal | None, operation: str) -> bool:
        """See Guard."""
        return self.access.may(principal, operation)

    def require(
        self, operation: str, context: RequestContext[Any, Any, Any]
    ) -> RequestContext[Any, Any, Any]:
        """See Guard; the view then acts on exactly the version and replica that were authorized."""
        kind = VERSIONED_READS.get(operation)
        resolved: AnyContext | None = context
        if kind is not None and operation not in self.access.open:
            resolved = resolve_version(context, self.catalog, kind)
        elif operation == "put_file" and context.query.replica is None:
            replica = find_source_replica(context.body.source_url, self.sources)
            resolved = replace(context, query=replace(context.query, replica=replica))
        values = self.circumstances.build(context.request, context.principal)
        self.access.require_each(
            context.principal, operation, list_resources(resolved or context), values
        )
        if resolved is None:
            # A version that was published meanwhile was not authorized.
            raise NotFoundError(f"There is no {kind} {context.path['uuid']}.")
        return resolved

    def find_allowed(
        self, operation: str, context: AnyContext, named: Sequence[Mapping[str, str]]
    ) -> list[bool]:
        """Return for each of several resources whether the caller may do an operation."""
        values = self.circumstances.build(context.request, context.principal)
        return self.access.find_allowed(context.principal, operation, named, values)

    def refuse(self, principal: Principal | None, operation: str, request: Request) -> None:
        """See Guard."""
        values = self.circumstances.build(request, principal)
        self.access.require(principal, operation, {}, values)


def list_resources(context: RequestContext[Any, Any, Any]) -> list[Mapping[str, str]]:
    """Return the parameters of each resource of a request; path parameters win over the query's."""
    query = {} if context.query is None else vars(context.query)
    resources = (
        [vars(file) for file in context.body.files]
        if context.operation in BULK_OPERATIONS
        else [context.path]
    )
    return [
        {name: value for name, value in {**query, **resource}.items() if isinstance(value, str)}
        for resource in resources
    ]
