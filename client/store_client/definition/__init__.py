"""What the store says it can do: fetched, kept, read into operations."""
