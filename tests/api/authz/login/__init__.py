"""Tests of login in the browser."""
