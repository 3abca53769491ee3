"""Logins and tokens: saved, refreshed, requested and signed."""
