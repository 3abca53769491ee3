"""Everything that leaves the process: blobs, catalog, search, cache and mail."""
