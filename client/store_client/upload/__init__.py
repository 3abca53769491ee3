"""Bringing a directory of files into the store as a bundle."""
