"""The command line of the client."""
