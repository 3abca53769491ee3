"""Tests of the units on a machine that runs systemd."""
