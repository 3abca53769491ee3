"""OAuth 2.0 and OpenID Connect endpoints for applications, and their consent pages."""
