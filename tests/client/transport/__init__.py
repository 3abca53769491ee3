"""Asking over HTTP."""
