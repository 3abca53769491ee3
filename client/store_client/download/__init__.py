"""Bringing files, bundles and collections here, each byte proved."""
