"""HTTP API of the data store."""
