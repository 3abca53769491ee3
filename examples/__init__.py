"""Examples of programs that use the data store."""
