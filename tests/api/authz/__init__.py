"""Tests of the authorization service over HTTP."""
