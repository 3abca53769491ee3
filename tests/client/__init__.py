"""The client: the command `store` and the library."""
