"""Stored queries: compiled, found by what a document says, asked within their means."""
