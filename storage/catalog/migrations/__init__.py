"""The catalog's migrations: forward only, each tested on a filled database."""
