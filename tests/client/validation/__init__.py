"""Validation of folders, documents and tables by the client."""
