"""Tests of the OAuth authorization server."""
