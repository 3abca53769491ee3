"""Tests of the transfer engine."""
