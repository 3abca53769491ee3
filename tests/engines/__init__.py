"""The real engines for tests, installed and started as an operator would, on loopback."""
