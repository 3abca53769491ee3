"""Stored queries: compile them, evaluate them within budgets, and build payloads."""
