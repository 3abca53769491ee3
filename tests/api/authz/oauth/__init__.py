"""Tests of the OAuth and OpenID Connect endpoints."""
