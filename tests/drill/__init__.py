"""Drills: a whole store under kills. Run by `make drill`, never by `make test`."""
