"""Request and response schemas of the authorization service."""
