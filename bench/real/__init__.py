"""Benches on the real engines, which the environment names; `python -m bench real` runs them."""
