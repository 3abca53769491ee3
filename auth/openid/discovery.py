"""Discovery (OpenID Connect Discovery 1.0, RFC 8414): where everything is that works."""

from typing import Any

from auth.openid.exchanging import GRANT_TYPES
from auth.openid.provider import SCOPES, Provider

CONFIGURATION = "/.well-known/openid-configuration"
KEYS = "/.well-known/jwks.json"
PROOFS = ("client_secret_basic", "client_secret_post", "none")
CLAIMS = (
    *("iss", "sub", "aud", "exp", "iat", "auth_time", "nonce", "at_hash", "azp"),
    *("email", "email_verified", "name", "preferred_username", "groups"),
)


def document(provider: Provider) -> dict[str, Any]:
    """The service as its clients find it."""
    base = provider.issuer.rstrip("/")
    return {
        "issuer": provider.issuer,
        "authorization_endpoint": f"{base}/oauth/authorize",
        "token_endpoint": f"{base}/oauth/token",
        "userinfo_endpoint": f"{base}/oauth/userinfo",
        "jwks_uri": base + KEYS,
        "revocation_endpoint": f"{base}/oauth/revoke",
        "device_authorization_endpoint": f"{base}/oauth/device_authorization",
        "end_session_endpoint": f"{base}/logout",
        "scopes_supported": list(SCOPES),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": list(GRANT_TYPES),
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": list(provider.keys.read().algorithms),
        "token_endpoint_auth_methods_supported": list(PROOFS),
        "revocation_endpoint_auth_methods_supported": list(PROOFS),
        "code_challenge_methods_supported": ["S256"],
        "prompt_values_supported": ["none", "login", "consent", "select_account"],
        "claim_types_supported": ["normal"],
        "claims_supported": list(CLAIMS),
        "authorization_response_iss_parameter_supported": True,
        "claims_parameter_supported": False,
        "request_parameter_supported": False,
        "request_uri_parameter_supported": False,
    }
