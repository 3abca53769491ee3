"""Measurements of the real code on real stores; `python -m bench` runs them all."""
