"""Every byte that leaves the process: blobs, catalog, search, notices, mail."""
