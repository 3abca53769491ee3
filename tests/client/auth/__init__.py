"""Logging in, against the real authorization service."""
