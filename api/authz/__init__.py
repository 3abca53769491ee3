"""HTTP API of the authorization service, an application with its own base URL."""

from api.authz.app import create_auth_app

__all__ = ["create_auth_app"]
