"""Real engines for tests, installed and started on loopback."""
