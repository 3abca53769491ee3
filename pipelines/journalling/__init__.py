"""Journals: the events of a replica as objects in its bucket."""
