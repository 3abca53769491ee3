"""A store apart from its authorization service: what it asks there, and keeps of the answers."""
