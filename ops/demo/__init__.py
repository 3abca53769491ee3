"""The demonstration: a newcomer's tour of a whole store, over HTTP only."""
