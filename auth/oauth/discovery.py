"""OpenID Connect discovery document."""

from typing import Any

from auth.oauth.provider import SCOPES, OAuthProvider
from auth.oauth.tokens import GRANT_TYPES

CONFIGURATION_PATH = "/.well-known/openid-configuration"
KEYS_PATH = "/.well-known/jwks.json"
CLIENT_AUTH_METHODS = ("client_secret_basic", "client_secret_post", "none")
SUPPORTED_CLAIMS = (
    *("iss", "sub", "aud", "exp", "iat", "auth_time", "nonce", "at_hash", "azp"),
    *("email", "email_verified", "name", "preferred_username", "groups"),
)


def discovery_document(provider: OAuthProvider) -> dict[str, Any]:
    """Build the discovery document."""
    base = provider.issuer.rstrip("/")
    return {
        "issuer": provider.issuer,
        "authorization_endpoint": f"{base}/oauth/authorize",
        "token_endpoint": f"{base}/oauth/token",
        "userinfo_endpoint": f"{base}/oauth/userinfo",
        "jwks_uri": base + KEYS_PATH,
        "revocation_endpoint": f"{base}/oauth/revoke",
        "device_authorization_endpoint": f"{base}/oauth/device_authorization",
        "end_session_endpoint": f"{base}/logout",
        "scopes_supported": list(SCOPES),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": list(GRANT_TYPES),
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": list(provider.keys.read().algorithms),
        "token_endpoint_auth_methods_supported": list(CLIENT_AUTH_METHODS),
        "revocation_endpoint_auth_methods_supported": list(CLIENT_AUTH_METHODS),
        "code_challenge_methods_supported": ["S256"],
        "prompt_values_supported": ["none", "login", "consent", "select_account"],
        "claim_types_supported": ["normal"],
        "claims_supported": list(SUPPORTED_CLAIMS),
        "authorization_response_iss_parameter_supported": True,
        "claims_parameter_supported": False,
        "request_parameter_supported": False,
        "request_uri_parameter_supported": False,
    }
