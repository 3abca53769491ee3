"""The authorization service: a second application, with its own base URL."""

from api.authservice.app import create_auth_app

__all__ = ["create_auth_app"]
