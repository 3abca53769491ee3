"""Uploading, against an embedded store that is served."""
