"""Drills: a whole store under kills, run by `make drill`."""
