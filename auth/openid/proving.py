"""Which client asks: by HTTP Basic, by members of the body, or, if it is public, by its name."""

import base64
import binascii
from collections.abc import Mapping
from urllib.parse import unquote_plus

from auth.openid.clients import Client
from auth.openid.errors import OAuthError, invalid_request
from auth.openid.provider import Provider

Form = Mapping[str, str]
"""The members of a body, each once."""

MAX_HEADER = 4_096


def proven(provider: Provider, authorization: str | None, form: Form) -> Client:
    """The client that asks (RFC 6749, 2.3); OAuthError `invalid_client` unless it proves it."""
    client_id, secret = _given(authorization, form)
    with provider.catalog.read() as tx:
        client = provider.client(tx, client_id)
    if client is None or not _proves(client, secret):
        raise _unproven("The client is not known, or not proven.")
    return client


def _given(authorization: str | None, form: Form) -> tuple[str, str | None]:
    client_id, secret = form.get("client_id"), form.get("client_secret")
    if authorization is not None:
        if secret is not None:
            raise invalid_request("The client's secret is given in two places.")
        named, secret = _basic(authorization)
        if client_id not in (None, named):
            raise invalid_request("Two clients are named.")
        client_id = named
    if not client_id:
        raise _unproven("The client is not named.")
    return client_id, secret


def _basic(authorization: str) -> tuple[str, str]:
    """Both parts are form-encoded before they are joined (RFC 6749, 2.3.1)."""
    scheme, _, raw = authorization.strip().partition(" ")
    try:
        if scheme.lower() != "basic" or len(raw) > MAX_HEADER:
            raise ValueError("not what is read here")
        name, colon, secret = base64.b64decode(raw.strip(), validate=True).decode().partition(":")
        if not colon:
            raise ValueError("not two parts")
    except (binascii.Error, ValueError) as error:
        raise _unproven("The Authorization header names no client.") from error
    return unquote_plus(name), unquote_plus(secret)


def _proves(client: Client, secret: str | None) -> bool:
    if client.public:
        # Some libraries send an empty one for want of any.
        return not secret
    return secret is not None and client.proves(secret)


def _unproven(description: str) -> OAuthError:
    return OAuthError("invalid_client", description, status=401)
