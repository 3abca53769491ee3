"""The client of a consortium's data store: the command `store`, and this library."""
