"""Helpers of tests that use a running store over HTTP."""
